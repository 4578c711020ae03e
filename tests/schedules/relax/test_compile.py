"""Models from torch and ONNX, fused, compiled and run, against torch in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tunerplugin
from tests.schedules.relax.modules import Array, calls, random
from tunerplugin.measure import host_target
from tunerplugin.schedules import FuseMLP
from tunerplugin.schedules.fused_mlp.relax.pipeline import PIPELINE, register_pipeline
from tunerplugin.schedules.offline.amd import rocm_target
from tunerplugin.schedules.offline.amd_child import without_rocm


class Field(nn.Module):
    """A convolution, an MLP with residuals and most activations, a softmax, a second MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(1, 2, 3, padding=1)
        self.first = nn.Linear(32, 24)
        self.square = nn.ModuleList(nn.Linear(24, 24, bias=i != 2) for i in range(6))
        self.classes = nn.Linear(24, 7)
        self.head = nn.Sequential(
            nn.Linear(7, 33), nn.GELU(approximate="tanh"), nn.Linear(33, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.silu(self.first(self.image(x).flatten(1)))
        a, b, c, d, e, f = self.square
        h = functional.gelu(a(h)) + h
        h = functional.leaky_relu(b(h) + h, 0.2)
        h = torch.sin(3 * c(h))
        h = functional.softplus(d(h))
        h = torch.tanh(e(h))
        h = functional.relu(f(h))
        result: torch.Tensor = self.head(torch.softmax(self.classes(h), 1))
        return result


def exported(net: nn.Module, x: torch.Tensor, *, keep: bool) -> Any:
    """The Relax module of a torch net with a dynamic batch."""
    batch = torch.export.Dim("batch", max=4096)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    return from_exported_program(program, keep_params_as_input=keep, unwrap_unit_return_tuple=True)


def run(built: Any, *arguments: Any) -> Array:
    machine = relax.VirtualMachine(built, tvm.cpu())
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    result: Array = machine["main"](*tensors).numpy()
    return result


@pytest.fixture(scope="module")
def target() -> Any:
    return tvm.target.Target(host_target())


@pytest.fixture(scope="module")
def field() -> Field:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Field().eval()


def expected(net: nn.Module, x: Array) -> Array:
    with torch.no_grad():
        doubled = net.double()(torch.from_numpy(x).double()).numpy()
        net.float()
    result: Array = doubled
    return result


def images(batch: int) -> Array:
    shape = (batch, 1, 4, 4)
    return np.random.default_rng(batch).standard_normal(shape).astype(np.float32)


def test_a_torch_model_by_the_named_pipeline(target: Any, field: Field) -> None:
    """Two chains in a bigger model, symbolic batch, whole and torn tiles."""
    tunerplugin.register()  # which registers the pipeline too
    register_pipeline()
    mod = exported(field, torch.zeros(2, 1, 4, 4), keep=False)
    fuse = FuseMLP(target)
    names = calls(fuse(mod)["main"])
    assert [line.fused for line in fuse.report] == [True, True], fuse.report
    assert [line.widths for line in fuse.report] == [(32, *[24] * 7, 7), (7, 33, 1)]
    assert not {"matmul", "permute_dims", "sigmoid"} & set(names)
    assert sum(name.startswith("call_tir fused_mlp") for name in names) == 2
    built = tvm.compile(mod, target, relax_pipeline=PIPELINE)
    for batch in (1, 64, 77):
        x = images(batch)
        np.testing.assert_allclose(run(built, x), expected(field, x), 1e-5, 1e-6)


def test_packing_is_lifted_and_operator_fusion_leaves_the_kernel(target: Any, field: Field) -> None:
    """The CPU pipeline with FuseOps and FuseTIR, parameters as arguments."""
    mod, parameters = relax.frontend.detach_params(
        exported(field, torch.zeros(2, 1, 4, 4), keep=True)
    )
    lifted = relax.transform.LiftTransformParams()(FuseMLP(target)(mod))
    assert not [name for name in calls(lifted["main"]) if "pack" in name]
    built = tvm.compile(lifted, target, relax_pipeline=relax.get_default_pipeline(target))
    machine = relax.VirtualMachine(built, tvm.cpu())
    packed = machine["main_transform_params"](parameters["main"])
    x = images(19)
    result = machine["main"](tvm.runtime.tensor(x), *packed).numpy()
    np.testing.assert_allclose(result, expected(field, x), 1e-5, 1e-6)


def onnx_model() -> tuple[Any, dict[str, Array]]:
    """Gemm and MatMul, biases on both sides, GELU, SiLU and softplus in primitive operators."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    weights = {
        "w0": random(16, 8, seed=1),
        "b0": random(16, seed=2),
        "w1": random(16, 16, seed=3),
        "b1": random(16, seed=4),
        "w2": random(16, 3, seed=5),
    }
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    node = helper.make_node
    nodes = [
        *(
            node("Constant", [], [name], value=numpy_helper.from_array(np.float32(number)))
            for name, number in numbers.items()
        ),
        node("Gemm", ["x", "w0", "b0"], ["g"], transB=1),
        node("Div", ["g", "root"], ["scaled"]),
        node("Erf", ["scaled"], ["erf"]),
        node("Add", ["erf", "one"], ["gate"]),
        node("Mul", ["g", "gate"], ["gated"]),
        node("Mul", ["gated", "half"], ["h0"]),
        node("MatMul", ["h0", "w1"], ["m1"]),
        node("Add", ["b1", "m1"], ["z1"]),
        node("Sigmoid", ["z1"], ["s1"]),
        node("Mul", ["s1", "z1"], ["h1"]),
        node("MatMul", ["h1", "w1"], ["m2"]),
        node("Add", ["m2", "b1"], ["z2"]),
        node("Softplus", ["z2"], ["h2"]),
        node("Add", ["h2", "h1"], ["h3"]),
        node("MatMul", ["h3", "w2"], ["y"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", kind, ["n", 8])],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), weights


def onnx_expected(x: Array, weights: dict[str, Array]) -> Array:
    w = {name: torch.from_numpy(array).double() for name, array in weights.items()}
    h = functional.gelu(torch.from_numpy(x).double() @ w["w0"].T + w["b0"])
    h = functional.silu(h @ w["w1"] + w["b1"])
    h = functional.softplus(h @ w["w1"] + w["b1"]) + h
    result: Array = (h @ w["w2"]).numpy()
    return result


def test_an_onnx_model(target: Any) -> None:
    model, weights = onnx_model()
    from tvm.relax.frontend.onnx import from_onnx

    for keep in (False, True):
        fuse = FuseMLP(target)
        mod = fuse(from_onnx(model, keep_params_in_input=keep))
        (line,) = fuse.report
        assert line.fused and line.widths == (8, 16, 16, 16, 3), line
    assert [name for name in calls(mod["main"]) if "pack" not in name] == calls(mod["main"])[-1:]
    mod, parameters = relax.frontend.detach_params(mod)
    built = tvm.compile(mod, target)
    x = random(9, 8, seed=6)
    result = run(built, x, *parameters["main"])
    np.testing.assert_allclose(result, onnx_expected(x, weights), 1e-5, 1e-6)


def test_mixed_precision(target: Any) -> None:
    """float16 storage: within a few of its roundings of the float64 net."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8)).eval()
    mod = exported(net, torch.zeros(2, 16), keep=False)
    fuse = FuseMLP(target)
    mod = fuse(relax.transform.ToMixedPrecision(out_dtype="float32")(mod))
    (line,) = fuse.report
    assert line.fused and line.widths == (16, 32, 8), line
    x = random(11, 16, seed=7)
    result = run(tvm.compile(mod, target), x)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected(net, x), atol=4 * 2**-11)


OPENCL = {
    "kind": "opencl",
    "max_num_threads": 1024,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 65536,
    "host": "llvm",
}


def half_precision_model(dtype: str) -> Any:
    """relax.frontend.nn: two dense layers and a softmax, parameters as arguments."""
    from tvm.relax.frontend import nn as relax_nn

    class Model(relax_nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.first = relax_nn.Linear(64, 64, dtype=dtype)
            self.second = relax_nn.Linear(64, 48, dtype=dtype)

        def forward(self, x: Any) -> Any:
            return relax_nn.op.softmax(self.second(relax_nn.op.silu(self.first(x))))

    mod, _ = Model().export_tvm({"forward": {"x": relax_nn.spec.Tensor((256, 64), dtype)}})
    return mod


def device_source(built: Any, kind: str, form: str = "") -> str:
    """The device code inside a compiled model."""
    found, work = [], [built.mod]
    while work:
        module = work.pop()
        work.extend(module.imports)
        if module.kind == kind:
            found.append(str(module.inspect_source(form)))
    (source,) = found
    return source


@pytest.mark.parametrize(
    ("model", "dtype", "template"),
    [("pvc", "float16", "opencl-xmx-pvc"), ("unknown", "float32", "opencl-plain")],
)
def test_gpu_models_build_with_dlight_on_the_rest(model: str, dtype: str, template: str) -> None:
    target = tvm.target.Target(OPENCL | {"model": model})
    fuse = FuseMLP(target)
    mod = fuse(half_precision_model(dtype))
    (line,) = fuse.report
    assert line.fused and f"template {template};" in line.reason, line
    source = device_source(tvm.compile(mod, target), "opencl")
    for kernel in source.split("// Function: ")[1:]:
        name, _, code = kernel.partition("\n")
        required = f"intel_reqd_sub_group_size(16)))\n__kernel void {name}("
        fused = name.startswith("fused_mlp_")
        # Only the fused kernel's source is amended; the softmax is dlight's.
        assert (required in code) == (fused and model == "pvc"), name
        assert "get_local_id" in code, name


def test_amd_models_build_without_rocm() -> None:
    target = tvm.target.Target(rocm_target("gfx90a"))
    fuse = FuseMLP(target)
    mod = fuse(half_precision_model("float16"))
    (line,) = fuse.report
    assert line.fused and "template amd-matrix;" in line.reason, line
    with without_rocm():
        built = tvm.compile(mod, target)
    assembly = device_source(built, "hip", "asm")
    kernels = re.findall(r"\.amdhsa_kernel (\w+)", assembly)
    assert [name for name in kernels if name.startswith("fused_mlp_")] == kernels[:1]
    assert "softmax_kernel" in kernels
    # 4 x 4 and 4 x 3 tiles of 16 x 16, depth 16, unrolled for one block row at least
    assert assembly.count("v_mfma") >= 4 * 4 + 4 * 3
