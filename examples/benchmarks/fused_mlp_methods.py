"""The ways of running an MLP that ``fused_mlp.py`` compares, in a process of their own.

TVM and torch each have threads that spin for a while when there is nothing to do; so each runs in
a process of its own, and ``fused_mlp.py`` lets only one of them work at a time.  A process gets a
case as its argument, prepares and checks its methods, answers ``{"ready": [...]}``, and then runs
the method whose name it reads, answering with wall and CPU seconds, line by line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tunerplugin.schedules.fused_mlp import MLP, Activation

Array = npt.NDArray[Any]
Method = Callable[[], Any]
Layers = list[tuple[Array, Array]]

PEAK = "peak"
TVM_METHODS = ("ours", "unfused", "tvm-default")
TORCH_METHODS = ("torch", "torch-chunked", "torch-compile")
CHUNK_ROWS = 1024
#: TVM's default build is so slow that it gets this part of the batch, counted as such
TVM_DEFAULT_PART = 16

_PEAK_SUMS, _PEAK_FMAS, _PEAK_TASKS = 12, 1 << 18, 64
_CHECKED_ROWS, _LARGEST_ERROR = 64, 1e-4


@dataclass(frozen=True)
class Case:
    """Square layers, ReLU, linear output, float32: the paper's benchmark."""

    width: int
    layers: int
    batch: int
    seed: int
    threads: int

    @property
    def mlp(self) -> MLP:
        """What is computed."""
        return MLP.uniform(self.width, self.layers)

    def rows(self, method: str) -> int:
        """Rows of the batch that a call of a method works on."""
        return max(1, self.batch // TVM_DEFAULT_PART) if method == "tvm-default" else self.batch

    def flops(self, method: str) -> int:
        """Floating-point operations of a call of a method, or of the FMA loop."""
        if method == PEAK:
            return 2 * _PEAK_TASKS * _PEAK_FMAS * _PEAK_SUMS
        return self.mlp.flops(self.rows(method))

    def data(self) -> tuple[Array, Layers]:
        """Input and parameters, the same in every process."""
        rng = np.random.default_rng(self.seed)
        scale = np.sqrt(2 / self.width)
        layers = [
            (
                (rng.standard_normal((self.width, self.width)) * scale).astype(np.float32),
                (rng.standard_normal(self.width) * 0.1).astype(np.float32),
            )
            for _ in range(self.layers)
        ]
        return rng.standard_normal((self.batch, self.width), np.float32), layers


def reference(case: Case, x: Array, layers: Layers) -> Array:
    """The first rows of the output, in float64."""
    h = x[:_CHECKED_ROWS].astype(np.float64)
    for index, (weight, bias) in enumerate(layers):
        h = h @ weight + bias
        h = np.maximum(h, 0) if index + 1 < case.layers else h
    return h


def tvm_methods(case: Case, names: set[str]) -> dict[str, Method]:
    """The methods that TVM compiles, and the FMA loop."""
    import tvm

    from tunerplugin.measure import host_target

    target = tvm.target.Target(host_target(case.threads))
    x, layers = case.data()
    made: dict[str, Method] = {PEAK: _fma_loop(target)}
    if "ours" in names:
        made["ours"] = _fused(case, target, x, layers)
    if "unfused" in names:
        made["unfused"] = _unfused(case, target, x, layers)
    if "tvm-default" in names:
        made["tvm-default"] = _relax_default(target, x[: case.rows("tvm-default")], layers)
    return made


def _kernel(mlp: MLP, batch: int, target: Any, layers: Layers) -> tuple[Any, list[Any]]:
    """A compiled template and its packed parameters."""
    import tvm

    from tunerplugin.schedules.fused_mlp.cpu import fused_mlp
    from tunerplugin.schedules.fused_mlp.template import ENTRY

    kernel = fused_mlp(mlp, batch, target)
    built = tvm.compile(tvm.IRModule({ENTRY: kernel.func}), target=target)
    return built[ENTRY], [tvm.runtime.tensor(array) for array in kernel.pack(list(layers))]


def _fused(case: Case, target: Any, x: Array, layers: Layers) -> Method:
    import tvm

    function, packed = _kernel(case.mlp, case.batch, target, layers)
    arguments = [tvm.runtime.tensor(x), *packed, tvm.runtime.tensor(np.zeros_like(x))]

    def run() -> Any:
        function(*arguments)
        return arguments[-1]

    return run


def _unfused(case: Case, target: Any, x: Array, layers: Layers) -> Method:
    """The same kernel, layer by layer, between two arrays of the whole batch."""
    import tvm

    source = tvm.runtime.tensor(x)
    arrays = [tvm.runtime.tensor(np.zeros_like(x)) for _ in range(2)]
    calls = []
    for index, layer in enumerate(layers):
        activation = case.mlp.activations[index]
        single = MLP.of((case.width, case.width), last=activation)
        function, packed = _kernel(single, case.batch, target, [layer])
        target_array = arrays[index % 2]
        calls.append((function, (source, *packed, target_array)))
        source = target_array

    def run() -> Any:
        for function, arguments in calls:
            function(*arguments)
        return source

    return run


def _relax_default(target: Any, x: Array, layers: Layers) -> Method:
    """What TVM's default pipeline makes of the network."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    shapes = [x.shape, *(array.shape for layer in layers for array in layer)]
    variables = [
        relax.Var(f"v{index}", relax.TensorType(shape, "float32"))
        for index, shape in enumerate(shapes)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            h: Any = variables[0]
            for index in range(len(layers)):
                product = builder.emit(relax.op.matmul(h, variables[1 + 2 * index]))
                h = builder.emit(relax.op.add(product, variables[2 + 2 * index]))
                if index + 1 < len(layers):
                    h = builder.emit(relax.op.nn.relu(h))
            output = builder.emit_output(h)
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target=target), tvm.cpu())
    arrays = (x, *(array for layer in layers for array in layer))
    arguments = [tvm.runtime.tensor(array) for array in arrays]
    return lambda: machine["main"](*arguments)


def _fma_loop(target: Any) -> Method:
    """Independent chains of multiply-adds in registers, on all threads."""
    import tvm

    from tunerplugin.integrations.compat import IRBuilder, T
    from tunerplugin.schedules.fused_mlp.cpu.machine import Machine

    lanes = Machine.of(target).lanes
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("peak")
        T.func_attr({"global_symbol": "peak", "tirx.noalias": True})
        x = T.arg("x", T.buffer((2, lanes), "float32"))
        y = T.arg("y", T.buffer((_PEAK_TASKS, _PEAK_SUMS, lanes), "float32"))
        with T.parallel(0, _PEAK_TASKS) as task:
            sums = T.alloc_buffer((_PEAK_SUMS, lanes), "float32", scope="local")
            with T.unroll(0, _PEAK_SUMS) as i, T.vectorized(0, lanes) as lane:
                T.buffer_store(sums, x[0, lane], [i, lane])
            with T.serial(0, _PEAK_FMAS // lanes):
                with T.unroll(0, _PEAK_SUMS) as i, T.vectorized(0, lanes) as lane:
                    T.buffer_store(sums, sums[i, lane] * x[0, lane] + x[1, lane], [i, lane])
            with T.unroll(0, _PEAK_SUMS) as i, T.vectorized(0, lanes) as lane:
                T.buffer_store(y, sums[i, lane], [task, i, lane])
    function = tvm.compile(tvm.IRModule({"peak": builder.get()}), target=target)["peak"]
    arguments = [
        tvm.runtime.tensor(np.full((2, lanes), 0.5, np.float32)),
        tvm.runtime.tensor(np.zeros((_PEAK_TASKS, _PEAK_SUMS, lanes), np.float32)),
    ]

    return lambda: function(*arguments)


def torch_methods(case: Case, names: set[str]) -> dict[str, Method]:
    """The methods that torch runs."""
    import torch
    from torch import nn

    torch.set_num_threads(case.threads)
    x, layers = case.data()
    modules: list[nn.Module] = []
    for (weight, bias), activation in zip(layers, case.mlp.activations, strict=True):
        linear = nn.Linear(case.width, case.width)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias))
        modules += [linear] if activation == Activation() else [linear, nn.ReLU()]
    network = nn.Sequential(*modules).eval()
    given = torch.from_numpy(x)
    chunks = given.split(CHUNK_ROWS)

    def no_gradients(run: Method) -> Method:
        def wrapped() -> Any:
            with torch.inference_mode():
                return run()

        return wrapped

    made: dict[str, Method] = {}
    if "torch" in names:
        made["torch"] = no_gradients(lambda: network(given))
    if "torch-chunked" in names:
        room = torch.empty_like(given)

        def chunked() -> Any:
            for source, target in zip(chunks, room.split(CHUNK_ROWS), strict=True):
                target.copy_(network(source))
            return room

        made["torch-chunked"] = no_gradients(chunked)
    if "torch-compile" in names:
        compiled = torch.compile(network)
        made["torch-compile"] = no_gradients(lambda: compiled(given))
    return made


def _checked(case: Case, methods: dict[str, Method]) -> tuple[dict[str, Method], dict[str, str]]:
    """The methods that run and are right, and why the others are not among them."""
    x, layers = case.data()
    expected = reference(case, x, layers)
    good: dict[str, Method] = {}
    refused: dict[str, str] = {}
    for name, method in methods.items():
        try:
            output = method()
        except RuntimeError as error:  # torch.compile without a C++ compiler, say
            refused[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        if name != PEAK:
            got = np.asarray(output.numpy()[:_CHECKED_ROWS], np.float64)
            error_size = np.abs(got - expected[: len(got)]).max() / np.abs(expected).max()
            if not error_size <= _LARGEST_ERROR:
                refused[name] = f"wrong: relative error {error_size:.1e}"
                continue
        good[name] = method
    return good, refused


def main() -> None:
    """Serve one case: ``tvm`` or ``torch``, the case, the methods' names."""
    kind, text, *names = sys.argv[1:]
    case = Case(**json.loads(text))
    make = tvm_methods if kind == "tvm" else torch_methods
    methods, refused = _checked(case, make(case, set(names)))
    print(json.dumps({"ready": list(methods), "refused": refused}), flush=True)
    for line in sys.stdin:
        method = methods[line.strip()]
        cpu, start = time.process_time(), time.perf_counter()
        method()
        wall = time.perf_counter() - start
        print(json.dumps({"wall_s": wall, "cpu_s": time.process_time() - cpu}), flush=True)


def as_argument(case: Case) -> str:
    """A case as ``main`` takes it."""
    return json.dumps(asdict(case))


if __name__ == "__main__":
    main()
