"""Repair of wrong code that Relay-era TVM generates through LLVM.

TVM tells LLVM which bytes of a buffer an instruction touches, by tags for LLVM's type-based alias
analysis.  The Relay-era build at hand tags a vector access at a *variable* place as if every
variable in it were zero: ``b[16 * i + 2 : 16 * i + 4]`` as bytes 8 to 16.  LLVM then moves a load
of ``b[16:32]`` before the stores that fill it, and the kernel computes garbage.  Vectorised
initialisation beside an unrolled consumer is enough, as in a few per cent of MetaSchedule's
candidates for a dense layer.  Today's TVM gives such an access the tag of the whole buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import tvm
from tvm import arith, tir

#: TVM's code generators that share the tags
_ENTRIES = ("target.build.llvm", "target.build.rocm", "target.build.nvptx")
_ACCESSES = ["tir.BufferLoad", "tir.BufferStore"]
#: TVM has tags for aligned ranges of at most this many bytes; what is wider has the whole buffer's
_WIDEST = 1024


class _Range(NamedTuple):
    """The bytes of a buffer that a tag names: as many as a power of two, aligned."""

    start: int
    width: int

    def overlaps(self, other: _Range) -> bool:
        """Whether LLVM must take accesses with these two tags for dependent."""
        if max(self.width, other.width) > _WIDEST:
            return True
        return self.start < other.start + other.width and other.start < self.start + self.width


class _Buffer:
    """How a program accesses one buffer."""

    def __init__(self) -> None:
        self.places: list[tuple[Any, int]] = []  # tagged: where it begins, how many items it spans
        self.written = self.at_variable_place = False

    def record(self, index: Any) -> None:
        """Note an access at ``index``."""
        if isinstance(index, tir.IntImm):
            self.places.append((index, 1))
        elif isinstance(index, tir.Ramp):
            self.places.append((index.base, abs(int(index.stride)) * int(index.lanes)))
            self.at_variable_place |= not isinstance(index.base, tir.IntImm)
        # a variable scalar place is tagged as the whole buffer, which is right

    def mistagged(self, dtype: str) -> bool:
        """Whether LLVM may take dependent accesses for independent ones."""
        if not (self.written and self.at_variable_place):
            return False
        kind = tvm.DataType(dtype)
        size = max(1, kind.bits * kind.lanes // 8)
        ranges = {_range(_with_variables_zero(base) * size, n * size) for base, n in self.places}
        return not all(a.overlaps(b) for a, b in combinations(ranges, 2))


def _range(start: int, count: int) -> _Range:
    width = 1
    while width < count:
        width *= 2
    return _Range(start // width * width, width)


_ANALYZER = arith.Analyzer()


def _with_variables_zero(place: Any) -> int:
    if not isinstance(place, tir.IntImm):
        variables = tir.analysis.undefined_vars(tir.Evaluate(place), [])
        zeros = {variable: tir.const(0, variable.dtype) for variable in variables}
        place = _ANALYZER.simplify(tir.stmt_functor.substitute(place, zeros))
    return int(place) if isinstance(place, tir.IntImm) else 0


def _on_accesses(body: Any, change: Callable[[Any], Any]) -> Any:
    return tir.stmt_functor.ir_transform(body, None, change, _ACCESSES)


def mistagged_buffers(body: Any) -> set[Any]:
    """The data variables of a lowered program's buffers that get contradictory tags."""
    buffers: dict[Any, _Buffer] = {}
    dtypes: dict[Any, str] = {}

    def look(node: Any) -> None:
        data = node.buffer.data
        dtypes[data] = node.buffer.dtype
        buffer = buffers.setdefault(data, _Buffer())
        buffer.written |= isinstance(node, tir.BufferStore)
        (index,) = node.indices  # lowered programs have flat buffers
        buffer.record(index)

    _on_accesses(body, look)
    return {data for data, buffer in buffers.items() if buffer.mistagged(dtypes[data])}


def _opaque(index: Any) -> Any:
    """The same index; TVM sees nothing constant in it, LLVM folds it to what it was."""
    zero = tir.const(0, index.dtype)
    return tir.Call(index.dtype, tvm.ir.Op.get("tir.bitwise_or"), [index, zero])


def repaired(function: Any) -> Any:
    """A lowered PrimFunc in which all tags of a mistagged buffer begin at its first byte.

    They overlap then, so that nothing is taken for independent within that buffer.
    """
    wrong = mistagged_buffers(function.body)
    if not wrong:
        return function

    def change(node: Any) -> Any:
        if node.buffer.data not in wrong:
            return None
        (index,) = node.indices
        if isinstance(index, tir.Ramp):
            index = tir.Ramp(_opaque(index.base), index.stride, index.lanes)
        elif isinstance(index, tir.IntImm):
            index = _opaque(index)
        else:
            return None
        if isinstance(node, tir.BufferStore):
            return tir.BufferStore(node.buffer, node.value, [index])
        return tir.BufferLoad(node.buffer, [index])

    return function.with_body(_on_accesses(function.body, change))


def _tags_are_wrong(target: Any) -> bool:
    """Whether this TVM tags ``b[16 * i + 8 : 16 * i + 12]``, beside another, as bytes 32 to 48."""
    buffer = tir.decl_buffer((64,), "float32", "b")
    i, parameter = tir.Var("i", "int32"), tir.Var("b", "handle")
    zeros = tir.Broadcast(tir.const(0, "float32"), 4)
    places = [tir.Ramp(i * 16 + first, 1, 4) for first in (0, 8)]
    store = tir.SeqStmt([tir.BufferStore(buffer, zeros, [place]) for place in places])
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, store)
    function = tir.PrimFunc([parameter], loop, buffer_map={parameter: buffer})
    with tvm.transform.PassContext(opt_level=0):
        built = tvm.build(function.with_attr("global_symbol", "probe"), target=target)
    return '.b32"' in str(built.get_source("ll"))


def _in_front_of(stock: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def build(mod: Any, target: Any) -> Any:
        functions = {
            name: repaired(function) if isinstance(function, tir.PrimFunc) else function
            for name, function in mod.functions.items()
        }
        return stock(tvm.IRModule(functions, attrs=mod.attrs), target)

    return build


def repair(target: Any) -> bool:
    """From now on, compile mistagged programs right; returns whether this TVM needs that.

    Everything that this process builds through LLVM is covered, by whomever it is asked for.
    Programs without contradictory tags are compiled as before.

    Args:
        target: an LLVM target that this TVM can generate code for
    """
    entries = {name: tvm.get_global_func(name, allow_missing=True) for name in _ENTRIES}
    if entries[_ENTRIES[0]] is None or not _tags_are_wrong(target):
        return False
    for name, stock in entries.items():
        if stock is not None:
            tvm.register_func(name, _in_front_of(stock), override=True)
    return True
