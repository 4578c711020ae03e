"""What a tiling amounts to: iterations and bytes inside each cut of the loop nest.

These words go to the value head beside the decoded sequence: how much data the tiles at each
level touch is what decides which cache holds them, and it is a product over many knobs that a
network would have to learn to multiply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...space import Prefix, Word
from .program import Access, Block
from .trace import Ref, TraceFacts

#: elements of the longest vector register met (512 bits of float32)
WIDEST_VECTOR = 16


def describe_tiling(
    facts: TraceFacts,
    blocks: Mapping[str, Block],
    positions: Mapping[Ref, int],
    values: Prefix,
) -> tuple[Word, ...]:
    """Words for a complete assignment of a multi-level tiling; none for other sketches."""
    block = blocks.get(facts.main_block)
    if block is None or not facts.tiling_structure:
        return ()
    tiles = [t for t in facts.tiles if t.axis is not None and t.axis[0] == block.name]
    inside = [1] * len(block.extents)
    depth = {"S": 0, "R": 0}
    words: list[Word] = []
    # from the innermost level of the nest outwards
    for cut, letter in enumerate(reversed(facts.tiling_structure)):
        kind = {"S": "spatial", "R": "reduction"}.get(letter, "other")
        for tile in tiles:
            level = tile.ways - 1 - depth.get(letter, 0)
            if tile.kind == kind and level >= 0 and tile.axis is not None:
                inside[tile.axis[1]] *= int(values[positions[tile.instruction, level]])
        depth[letter] = depth.get(letter, 0) + 1
        iterations = math.prod(inside)
        touched = sum(touched_bytes(a, inside) for a in block.accesses)
        words.append((f"cut{cut}.iterations", iterations))
        words.append((f"cut{cut}.bytes", touched))
        words.append((f"cut{cut}.intensity", iterations / touched))
        # what runs outside of here: the outermost cuts are what threads and blocks share out
        words.append((f"cut{cut}.outside", block.iterations // iterations))
        if cut == 0:
            words += _lane_words(block, inside)
    return tuple(words)


def _lane_words(block: Block, inside: list[int]) -> list[Word]:
    """How many elements lie in a row innermost, and the vectors that they fill without rest."""
    words: list[Word] = []
    for number, access in enumerate(block.accesses):
        name = "write" if access.is_write else f"read{number}"
        run = contiguous_run(access, inside)
        words += [(f"lanes.{name}", run), (f"lanes.{name}.whole", math.gcd(run, WIDEST_VECTOR))]
    return words


def touched_bytes(access: Access, extents: list[int]) -> int:
    """Bytes that an access touches when its iteration variables run over ``extents``."""
    size = access.element_bytes
    for row, limit in zip(access.coefficients, access.shape, strict=True):
        if row is None:
            continue
        span = 1 + sum(abs(c) * (e - 1) for c, e in zip(row, extents, strict=True))
        size *= min(span, limit) if limit else span
    return size


def contiguous_run(access: Access, extents: list[int]) -> int:
    """Elements in a row along the last dimension, which is what a vector register loads."""
    row = access.coefficients[-1] if access.coefficients else None
    if row is None:
        return 1
    return 1 + sum(e - 1 for c, e in zip(row, extents, strict=True) if abs(c) == 1)
