"""Building and running one IRModule inside a worker (imports tvm)."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import te

from ..integrations import compat
from ..outcome import Status
from .values import Array, Param, compare, epsilon, make_inputs, numpy_dtype, tolerance

_BUDGET_S = 1.0
_TOLERATED_SHORTFALL = 0.8
_REDUCTION_AXIS = 2


class CorruptedError(Exception):
    """This process's own inputs or reference were overwritten, so it can judge nothing."""


@dataclass(frozen=True)
class Signature:
    """What a PrimFunc takes and returns, and how its outputs must be compared."""

    name: str
    params: tuple[Param, ...]
    relative: float


def open_device(kind: str) -> Any:
    """Device 0 of that kind.  Raises ``RuntimeError`` when it does not exist."""
    device = tvm.device(kind, 0)
    if not device.exist:
        raise RuntimeError(f"device {kind!r} does not exist on this machine")
    return device


def require_fit(target: Any, device: Any) -> None:
    """Raise ``ValueError`` when code for the target cannot run on the device."""
    if target.get_target_device_type() != compat.device_type(device):
        raise ValueError(
            f"expected a target for device {device}, got one of kind {target.kind.name}; "
            "give Measurer the target's device"
        )


def warm_up() -> None:
    """Compile and run a small kernel on the host, which loads what the first build needs."""
    source = te.placeholder((16,), "float32", name="source")
    copy = te.compute((16,), lambda i: source[i], name="copy")
    mod = tvm.IRModule({"main": te.create_prim_func([source, copy])})
    built = compat.compile_module(mod, _host())
    built["main"](*[compat.tensor(np.zeros(16, np.float32)) for _ in range(2)])


def _host() -> Any:
    """A target that code for the host's reference is built for."""
    return tvm.target.Target({"kind": "llvm", "mtriple": compat.host_triple()})


def load_module(text: str) -> Any:
    """The IRModule of a ``save_json`` text."""
    return tvm.ir.load_json(text)


def load_target(text: str) -> Any:
    """The Target of a JSON text."""
    return tvm.target.Target(json.loads(text))


def signature(mod: Any) -> Signature:
    """Read parameters, written buffers, reduction length and coarsest dtype off the one PrimFunc.

    A function without blocks says nothing about its buffers, so all count as read and written.
    Raises ``ValueError`` unless there is exactly one PrimFunc with static buffer parameters.
    """
    functions = [(gv.name_hint, f) for gv, f in mod.functions.items()]
    if len(functions) != 1:
        raise ValueError(f"expected one PrimFunc in the module, got {len(functions)}")
    name, function = functions[0]
    written: list[Any] = []
    read: list[Any] = []
    extents: list[int] = []

    def visit(block: Any) -> None:
        written.extend(compat.region_buffer(region) for region in block.writes)
        read.extend(compat.region_buffer(region) for region in block.reads)
        reduced = [int(v.dom.extent) for v in block.iter_vars if v.iter_type == _REDUCTION_AXIS]
        extents.append(math.prod(reduced) if reduced else 0)

    compat.visit_blocks(function, visit)
    buffers = compat.function_buffers(function)
    writes = [any(b.same_as(p) for b in written) for p in buffers]
    reads = [any(b.same_as(p) for b in read) for p in buffers]
    if not any(writes):
        writes = reads = [True] * len(writes)
    params = tuple(
        Param(p.name, _static_shape(p), str(p.dtype), is_written, is_read or not is_written)
        for p, is_written, is_read in zip(buffers, writes, reads, strict=True)
    )
    coarsest = max(epsilon(str(b.dtype)) for b in (*buffers, *written))
    return Signature(name, params, tolerance(coarsest, sum(extents)))


def _static_shape(param: Any) -> tuple[int, ...]:
    shape = getattr(param, "shape", None)
    if shape is None:
        raise ValueError(f"expected buffer parameters, got the scalar {param.name}")
    if not all(isinstance(d, (int, compat.tirx.IntImm)) for d in shape):
        raise ValueError(f"expected static shapes, got {param.name} of shape {list(shape)}")
    return tuple(int(d) for d in shape)


@dataclass
class Program:
    """A built candidate: what is checked, and what is timed.

    They differ when the layout-rewrite postproc moved a weight into another layout: the checked
    build rewrites the weight at run time, the timed one expects it already rewritten.
    """

    signature: Signature
    checked: Any
    timed: Any
    timed_params: tuple[Param, ...] | None
    arguments: list[Any] = field(default_factory=list)


def build(mod: Any, target: Any) -> Program:
    """Compile a candidate in memory: no linker, no files.  TVM's errors pass through."""
    stripped = compat.without_layout_rewrite(mod)
    shape = signature(mod)
    timed = _machine_code(stripped, target, shape.name)
    if compat.structural_equal(stripped, mod):
        return Program(shape, timed, timed, None)
    checked = _machine_code(mod, target, shape.name)
    return Program(shape, checked, timed, signature(stripped).params)


def _machine_code(mod: Any, target: Any, name: str) -> Any:
    """Compile and look the function up, as LLVM makes machine code only then."""
    built = compat.compile_module(mod, target)
    built.get_function(name, query_imports=True)
    return built


class Reference:
    """The task in a worker: its signature, the inputs of one seed and the outputs expected."""

    def __init__(self, module: str, seed: int) -> None:
        self.mod = load_module(module)
        self.signature = signature(self.mod)
        self.seed = seed
        self.inputs = make_inputs(self.signature.params, seed)
        self.expected: list[Array] = []
        self._checksum = 0

    def compute(self, target: Any) -> bytes:
        """Run the untuned module on the host; the bytes of all written parameters in order."""
        host = target if target.kind.name == "llvm" else _host()
        built = compat.compile_module(self.mod, host)
        arguments = [compat.tensor(a) for a in self.inputs]
        built[self.signature.name](*arguments)
        pairs = zip(self.signature.params, arguments, strict=True)
        return b"".join(a.numpy().tobytes() for p, a in pairs if p.written)

    def accept(self, payload: bytes) -> None:
        """Take the outputs that ``compute`` returned, perhaps in another worker."""
        offset = 0
        for param, array in zip(self.signature.params, self.inputs, strict=True):
            if not param.written:
                self.expected.append(array)
                continue
            flat = np.frombuffer(payload, np.uint8, array.nbytes, offset)
            self.expected.append(flat.view(numpy_dtype(param.dtype)).reshape(param.shape))
            offset += array.nbytes
        if offset != len(payload):
            raise ValueError(f"expected {offset} bytes of reference outputs, got {len(payload)}")
        self._checksum = self._digest()

    def judge(self, outputs: Sequence[Any]) -> tuple[Status, str] | None:
        """Compare every parameter after a run; ``None`` when all agree.

        Inputs must be untouched.  Raises ``CorruptedError`` when the comparison failed because
        an earlier candidate wrote over the expected values.
        """
        for param, output, want in zip(self.signature.params, outputs, self.expected, strict=True):
            relative = self.signature.relative if param.written else 0.0
            fault = compare(param.name, output.numpy(), want, relative, self.seed)
            if fault is not None:
                if self._digest() != self._checksum:
                    raise CorruptedError("inputs or reference outputs were overwritten")
                return fault
        return None

    def _digest(self) -> int:
        value = 0
        for array in (*self.inputs, *self.expected):
            value = zlib.crc32(array.tobytes(), value)
        return value


def check(
    program: Program, reference: Reference, device: Any
) -> tuple[float, tuple[Status, str] | None]:
    """Run once on fresh inputs.  Returns (seconds of that run, fault or ``None``)."""
    want, got = (
        [(p.shape, p.dtype) for p in s.params] for s in (reference.signature, program.signature)
    )
    if want != got:
        return 0.0, (Status.WRONG_RESULT, f"expected parameters {want}, got {got}")
    arguments = [compat.tensor(a, device) for a in reference.inputs]
    function = program.checked[program.signature.name]
    device.sync()
    start = time.perf_counter()
    function(*arguments)
    device.sync()
    first_s = time.perf_counter() - start
    fault = reference.judge(arguments)
    program.arguments = arguments
    if program.timed_params is not None:
        moved = make_inputs(program.timed_params, reference.seed)
        program.arguments = [compat.tensor(a, device) for a in moved]
    return first_s, fault


def time_samples(
    program: Program, device: Any, repeats: int, min_repeat_s: float, first_s: float
) -> list[float]:
    """Mean seconds per run, one value per repeat.

    A repeat lasts at least ``min_repeat_s``.  A candidate that needs much longer than that (more
    than a second in all) gets fewer repeats, and one whose first run took a second is not run
    again: its first run, ``first_s``, is the sample.
    """
    if first_s >= _BUDGET_S and program.timed_params is None:
        return [first_s]
    least_ms = int(min_repeat_s * _TOLERATED_SHORTFALL * 1e3)
    once = _evaluate(program, device, 1, 1, 0)[0]
    number = max(1, math.ceil(min_repeat_s / once)) if once > 0 else 1
    budget_s = max(_BUDGET_S, repeats * min_repeat_s)
    affordable = max(1, int(budget_s / max(number * once, min_repeat_s)))
    return _evaluate(program, device, number, min(repeats, affordable), least_ms)


def _evaluate(
    program: Program, device: Any, number: int, repeat: int, least_ms: int
) -> list[float]:
    """TVM's evaluator; it raises ``number`` itself when a repeat is shorter than ``least_ms``."""
    evaluator = program.timed.time_evaluator(
        program.signature.name, device, number=number, repeat=repeat, min_repeat_ms=least_ms
    )
    return [float(s) for s in evaluator(*program.arguments).results]
