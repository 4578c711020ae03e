"""What ``relay.build`` makes of a fused module: right numbers, in every way to run it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import autotvm, relay
from tvm.contrib import graph_executor
from tvm.relay import nn

from tunerplugin.errors import ScheduleError
from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp import MLP, Activation
from tunerplugin.schedules.fused_mlp.activations import reference as activation_reference
from tunerplugin.schedules.fused_mlp.cpu.inference import KNOBS, space
from tunerplugin.schedules.fused_mlp.packing import numpy_dtype
from tunerplugin.schedules.fused_mlp.relay.operator import NAME, Call
from tunerplugin.schedules.relay import FuseMLP

CPU = tvm.target.Target(host_target(2))
Array = npt.NDArray[Any]


def arrays(widths: list[int], dtype: str = "float32") -> dict[str, Array]:
    """w0 (n, k), b0 (n,), w1, ... of a chain; products stay near one."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for layer, (k, n) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        made[f"w{layer}"] = (rng.standard_normal((n, k)) / k**0.5).astype(numpy_dtype(dtype))
        made[f"b{layer}"] = rng.standard_normal(n).astype(numpy_dtype(dtype))
    return made


def batch_of(rows: int, width: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(1).standard_normal((rows, width)).astype(numpy_dtype(dtype))


def network(
    rows: Any,
    widths: list[int],
    activations: Sequence[Callable[[Any], Any]],
    dtype: str = "float32",
) -> Any:
    """dense, bias and activation for each layer; the parameters are variables."""
    h = relay.var("x", shape=(rows, widths[0]), dtype=dtype)
    for layer, activation in enumerate(activations):
        weight = relay.var(f"w{layer}", shape=(widths[layer + 1], widths[layer]), dtype=dtype)
        bias = relay.var(f"b{layer}", shape=(widths[layer + 1],), dtype=dtype)
        h = activation(nn.bias_add(nn.dense(h, weight), bias))
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(h), h))


def bound(mod: Any, parameters: dict[str, Array]) -> Any:
    literals = {name: tvm.nd.array(array) for name, array in parameters.items()}
    return tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], literals))


def build(mod: Any, parameters: dict[str, Array] | None = None) -> Any:
    literals = {name: tvm.nd.array(array) for name, array in (parameters or {}).items()}
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target=CPU, params=literals)


def run(lib: Any, **inputs: Array) -> Array:
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    for name, array in inputs.items():
        executor.set_input(name, tvm.nd.array(array))
    executor.run()
    result: Array = executor.get_output(0).numpy()
    return result


def reference(x: Array, parameters: dict[str, Array], activations: list[Activation]) -> Array:
    """A chain of layers in float64, of the activations' own references."""
    h = x.astype(np.float64)
    for layer, activation in enumerate(activations):
        weight, bias = (parameters[f"{kind}{layer}"].astype(np.float64) for kind in "wb")
        h = activation_reference(activation, h @ weight.T + bias)
    return h


ACTIVATIONS: list[tuple[Callable[[Any], Any], Activation]] = [
    (nn.relu, Activation("relu")),
    (relay.tanh, Activation("tanh")),
    (relay.sigmoid, Activation("sigmoid")),
    (relay.exp, Activation("exponential")),
    (lambda x: nn.leaky_relu(x, alpha=0.1), Activation("leaky_relu", 0.1)),
    (lambda x: x * relay.sigmoid(x), Activation("silu")),
    (
        lambda x: x * (relay.const(0.5) + relay.erf(x * relay.const(0.5**0.5)) * relay.const(0.5)),
        Activation("gelu"),
    ),
    (lambda x: relay.log(relay.exp(x) + relay.const(1.0)), Activation("softplus")),
    (lambda x: relay.sin(x * relay.const(3.0)), Activation("sine", 3.0)),
    (lambda x: x, Activation()),
]


def test_every_activation() -> None:
    """Widths that are no multiple of a vector, a last tile that is not full."""
    widths = [5, 64, 17, 33, 8, 1, 12, 40, 16, 9, 7]
    parameters, x = arrays(widths), batch_of(83, 5)
    written, activations = (list(column) for column in zip(*ACTIVATIONS, strict=True))
    fuse = FuseMLP(CPU, always=True)
    fused = fuse(bound(network(83, widths, written), parameters))
    assert [(line.widths, line.fused) for line in fuse.report] == [(tuple(widths), True)]
    wanted = reference(x, parameters, activations)
    np.testing.assert_allclose(run(build(fused), x=x), wanted, rtol=1e-5, atol=1e-5)


WIDTHS = [24, 40, 10, 24]
RELU = [Activation("relu")] * 3


def relu_network(rows: Any, dtype: str = "float32") -> Any:
    return network(rows, WIDTHS, [nn.relu] * 3, dtype)


@pytest.fixture(scope="module")
def literal_network() -> Any:
    return bound(relu_network(65), arrays(WIDTHS))


@pytest.fixture(scope="module")
def fused_library(literal_network: Any) -> Any:
    return build(FuseMLP(CPU, always=True)(literal_network))


def test_equal_to_the_unfused_build(literal_network: Any, fused_library: Any) -> None:
    x = batch_of(65, WIDTHS[0])
    got, wanted = run(fused_library, x=x), run(build(literal_network), x=x)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_residuals() -> None:
    x, w = batch_of(50, 16), arrays([16, 16, 16])
    variable = relay.var("x", shape=(50, 16))
    h = nn.relu(nn.dense(variable, relay.const(w["w0"])) + variable)
    h = nn.relu(nn.dense(h, relay.const(w["w1"]))) + h
    lib = build(FuseMLP(CPU, always=True)(tvm.IRModule.from_expr(h)))
    first = np.maximum(x @ w["w0"].T + x, 0)
    second = np.maximum(first @ w["w1"].T, 0) + first
    np.testing.assert_allclose(run(lib, x=x), second, rtol=1e-5, atol=1e-5)


def test_parameters_as_inputs_and_bound_in_the_build() -> None:
    parameters, x = arrays(WIDTHS), batch_of(65, WIDTHS[0])
    fused = FuseMLP(CPU, always=True)(relu_network(65))
    wanted = reference(x, parameters, RELU)
    unbound, folded = build(fused), build(fused, parameters)
    np.testing.assert_allclose(run(unbound, x=x, **parameters), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(folded, x=x), wanted, rtol=1e-5, atol=1e-5)
    operators = [
        node for node in json.loads(folded.get_graph_json())["nodes"] if node["op"] != "null"
    ]
    assert len(operators) == 1, "packing is folded at compile time"


def test_exported_and_loaded_again(fused_library: Any, tmp_path: Path) -> None:
    x, file = batch_of(65, WIDTHS[0]), tmp_path / "model.so"
    fused_library.export_library(file)
    got = run(tvm.runtime.load_module(str(file)), x=x)
    np.testing.assert_allclose(got, run(fused_library, x=x))


def test_virtual_machine_and_dynamic_batch() -> None:
    parameters = arrays(WIDTHS)
    fuse = FuseMLP(CPU, always=True)
    fused = fuse(bound(relu_network(relay.Any()), parameters))
    assert [(line.batch, line.fused) for line in fuse.report] == [(None, True)]
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(fused, target=CPU)
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    for rows in (1, 65, 200):
        x = batch_of(rows, WIDTHS[0])
        got = machine.invoke("main", tvm.nd.array(x)).numpy()
        np.testing.assert_allclose(got, reference(x, parameters, RELU), rtol=1e-5, atol=1e-5)


def test_virtual_machine_and_leading_extents() -> None:
    """An input of three extents, inside a Let, one of its extents dynamic."""
    x = batch_of(30, 24).reshape(10, 3, 24)
    parameters = arrays([24, 24, 24])
    variable = relay.var("x", shape=(relay.Any(), 3, 24))
    h = nn.relu(nn.dense(variable, relay.const(parameters["w0"])))
    h = nn.relu(nn.dense(h, relay.const(parameters["w1"]))) + variable
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(h))
    fused = FuseMLP(CPU, always=True)(relay.transform.ToANormalForm()(mod))
    assert NAME in str(fused)
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(fused, target=CPU)
    got = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", tvm.nd.array(x))
    first = np.maximum(x @ parameters["w0"].T, 0)
    wanted = np.maximum(first @ parameters["w1"].T, 0) + x
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "limit"), [("float16", 2e-3), ("bfloat16", 1e-2)])
def test_sixteen_bits(dtype: str, limit: float) -> None:
    """Sums stay in float32, so the float64 reference is met within the rounding of the output."""
    parameters, x = arrays(WIDTHS, dtype), batch_of(33, WIDTHS[0], dtype)
    got = run(build(FuseMLP(CPU, always=True)(bound(relu_network(33, dtype), parameters))), x=x)
    # That generation hands bfloat16 out as its bits.
    got = got.view(numpy_dtype(dtype)).astype(np.float64)
    np.testing.assert_allclose(got, reference(x, parameters, RELU), rtol=limit, atol=limit)


def test_autotvm_extracts_and_tunes_the_kernel(
    literal_network: Any, fused_library: Any, tmp_path: Path
) -> None:
    x = batch_of(65, WIDTHS[0])
    fused = FuseMLP(CPU, always=True)(literal_network)
    (task,) = autotvm.task.extract_from_program(fused["main"], target=CPU, params={})
    mlp = MLP.of(WIDTHS, "relu", "relu")
    assert (task.name, list(task.config_space.space_map)) == (NAME, list(KNOBS))
    assert task.flop == mlp.flops(65)
    choices, legal, other = space(mlp, CPU), None, None
    for index in np.random.default_rng(0).permutation(len(task.config_space))[:8]:
        config = task.config_space.get(int(index))
        with CPU:
            task.instantiate(config)
        values = [config[name].val for name in KNOBS]
        values[3] = max(1, round(values[3] / values[0])) * values[0]
        assert config.valid() == choices.contains(values), values
        legal, other = (config, other) if config.valid() else (legal, config)
    assert legal is not None and other is not None, "some of both"
    log = tmp_path / "autotvm.log"
    result = autotvm.MeasureResult([1e-6], 0, 0.1, 0.0)
    pair = autotvm.MeasureInput(CPU, task, legal), result
    log.write_text(autotvm.record.encode(*pair) + "\n")
    with autotvm.apply_history_best(str(log)):
        tuned = build(fused)
    assert tuned.get_lib().get_source() != fused_library.get_lib().get_source()
    wanted = run(fused_library, x=x)
    np.testing.assert_allclose(run(tuned, x=x), wanted, rtol=1e-5, atol=1e-5)


def test_given_knobs_are_used_and_are_no_task(literal_network: Any) -> None:
    mlp = MLP.of(WIDTHS, "relu", "relu")
    fuse = FuseMLP(CPU, always=True, knobs={mlp: {"block_rows": 1, "rows": 7}})
    fused = fuse(literal_network)
    assert autotvm.task.extract_from_program(fused["main"], target=CPU, params={}) == []
    call = Call.loads(str(fused["main"].body.attrs["call"]))
    assert (dict(call.knobs)["rows"], call.tunable) == (7, False)


def test_the_targets_must_agree(literal_network: Any) -> None:
    sse = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64"
    fused = FuseMLP(sse, always=True)(literal_network)
    if "avx2" not in str(tvm.target.codegen.llvm_get_cpu_features(CPU)):
        pytest.skip("needs a CPU with wider vectors than SSE")
    with pytest.raises((ScheduleError, tvm.error.TVMError), match="build for the target"):
        build(fused)


@pytest.mark.skipif(
    tvm.get_global_func("target.build.opencl", True) is None, reason="this TVM has no OpenCL"
)
def test_opencl_source(literal_network: Any) -> None:
    """No device here: the source has one kernel, with shared memory, for the whole chain."""
    opencl = tvm.target.Target("opencl -max_threads_per_block=256", CPU)
    fuse = FuseMLP(opencl, always=True)
    fused = fuse(literal_network)
    assert fuse.report[0].reason.startswith("template opencl-plain")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(fused, target=opencl)
    (device,) = lib.get_lib().imported_modules
    source = device.get_source()
    assert source.count("__kernel void") == 2, "declared and defined"
    assert "fused_mlp" in source and "__local float" in source
