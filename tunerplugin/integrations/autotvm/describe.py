"""From an AutoTVM task to the problem language: template, target, arguments."""

from __future__ import annotations

from typing import Any

from ...space import Problem, Word
from ..metaschedule.describe import vector_bits
from ..metaschedule.limits import is_gpu

_GPU_WORDS = {
    "threads.max": "max_num_threads",
    "shared.bytes": "max_shared_memory_per_block",
    "warp": "thread_warp_size",
}


def describe_task(task: Any) -> Problem:
    """The target's words, then the template's name and its arguments in order."""
    words = [*_target_words(task.target), ("template", str(task.name))]
    for number, argument in enumerate(task.args):
        words += _argument_words(f"arg{number}", argument)
    return Problem(tuple(words))


def _target_words(target: Any) -> list[Word]:
    kind = str(target.kind.name)
    words: list[Word] = [("target", kind)]
    if is_gpu(target):
        limits = {field: target.attrs.get(name) for field, name in _GPU_WORDS.items()}
        return words + [(f, int(limit)) for f, limit in limits.items() if limit is not None]
    words.append(("cores", int(target.attrs.get("num-cores", 1))))
    return [*words, ("vector.bits", vector_bits(target))] if kind == "llvm" else words


def _argument_words(field: str, argument: Any) -> list[Word]:
    """Tensors by extents and element type; tuples item by item; the rest as it is."""
    if isinstance(argument, (list, tuple)):
        if len(argument) == 3 and argument[0] == "TENSOR":
            extents = [(f"{field}.dim{i}", _extent(d)) for i, d in enumerate(argument[1])]
            return [*extents, (f"{field}.dtype", str(argument[2]))]
        return [w for i, item in enumerate(argument) for w in _argument_words(f"{field}.{i}", item)]
    if isinstance(argument, (bool, int)):
        return [(field, int(argument))]
    return [(field, "none" if argument is None else str(argument))]


def _extent(extent: Any) -> int | str:
    """An extent; a symbolic one as text."""
    return extent if isinstance(extent, int) else str(extent)
