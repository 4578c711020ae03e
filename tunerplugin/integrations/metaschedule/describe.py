"""From a TIR function and a target to the problem language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tvm

from ...space import Problem, Word
from .limits import HardwareLimits, is_gpu
from .program import Block

#: blocks described, largest first: longer fused functions repeat what their largest blocks say
MAX_BLOCKS = 6
_IMPORTED = re.compile(r"^lv\d*_")
_VECTOR_BITS = {"avx512f": 512, "avx2": 256, "avx": 256, "sve": 256, "v": 256, "neon": 128}
_BASELINE_VECTOR_BITS = 128


def describe_problem(blocks: Sequence[Block], target: Any, limits: HardwareLimits) -> Problem:
    """The target's words, then each block's: its family, axes, and how it reads and writes."""
    words = _target_words(target, limits)
    largest = sorted(blocks, key=lambda block: -block.iterations)[:MAX_BLOCKS]
    words.append(("blocks", len(blocks)))
    for block in blocks:
        if block in largest:
            words += _block_words(block)
    return Problem(tuple(words))


def block_family(name: str) -> str:
    """A block's name without the numbers and importer variables that only tell copies apart."""
    return _IMPORTED.sub("", name).rstrip("0123456789_") or name


def main_block(blocks: Sequence[Block]) -> Block:
    """The block with the most work; a reduction before anything else."""
    return max(blocks, key=lambda block: (block.reduces, block.iterations))


def vector_bits(target: Any) -> int:
    """Width of the CPU's vector registers in bits, from the features of ``mcpu`` and ``mattr``."""
    features = {str(f) for f in tvm.target.codegen.llvm_get_cpu_features(target)}
    switched = {str(attribute) for attribute in target.attrs.get("mattr", ())}
    features -= {attribute[1:] for attribute in switched if attribute.startswith("-")}
    features |= {attribute[1:] for attribute in switched if attribute.startswith("+")}
    widths = [bits for name, bits in _VECTOR_BITS.items() if name in features]
    return max(widths, default=_BASELINE_VECTOR_BITS)


def _target_words(target: Any, limits: HardwareLimits) -> list[Word]:
    words: list[Word] = [("target", str(target.kind.name))]
    if is_gpu(target):
        return [
            *words,
            ("threads.max", limits.max_threads_per_block or 0),
            ("shared.bytes", limits.max_shared_memory_bytes or 0),
            ("warp", int(target.attrs.get("thread_warp_size", 1))),
        ]
    if limits.max_vector_bytes:  # an accelerator: its lanes are no host's
        bits = 8 * limits.max_vector_bytes
        shared = limits.max_shared_memory_bytes or 0
        return [*words, ("shared.bytes", shared), ("vector.bits", bits)]
    cores = int(target.attrs.get("num-cores", 1))
    return [*words, ("cores", cores), ("vector.bits", vector_bits(target))]


def _block_words(block: Block) -> list[Word]:
    words: list[Word] = [("block", block_family(block.name)), ("pattern", block.kinds)]
    for extent, kind in zip(block.extents, block.kinds, strict=True):
        words.append((f"extent.{kind}", extent))
    for access in block.accesses:
        direction = "write" if access.is_write else "read"
        words.append((f"{direction}.bytes", access.element_bytes))
        # the stride along the last dimension of each axis that moves it: who is contiguous
        row = access.coefficients[-1] if access.coefficients else None
        if row is None:
            words.append((f"{direction}.last", "irregular"))
            continue
        moving = [i for i, coefficient in enumerate(row) if coefficient]
        words.append((f"{direction}.last", moving[-1] if moving else -1))
    return words
