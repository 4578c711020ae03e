"""Small tiled spaces and what their constraints mean, told by brute force."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tunerplugin.space import Constraint, ListSpace, Prefix, Value
from tunerplugin.space.constraints import Footprint, Term
from tunerplugin.space.tiles import Tile


@dataclass(frozen=True)
class Tiled:
    """Tiles whose factors are decided in any order, and free knobs."""

    tiles: tuple[Tile, ...]
    choices: Mapping[int, tuple[int, ...]]

    @property
    def length(self) -> int:
        return sum(len(tile.positions) for tile in self.tiles) + len(self.choices)

    def space(self, constraints: Sequence[Constraint] = ()) -> ListSpace:
        """The space of these knobs."""
        owner = {position: tile for tile in self.tiles for position in tile.positions}
        domains = [owner[p].domain if p in owner else self.choices[p] for p in range(self.length)]
        return ListSpace([f"k{p}" for p in range(self.length)], domains, constraints)


def in_order(*tiles: tuple[int, int], bound: int = 0) -> Tiled:
    """Tiles of (extent, ways), one after another, each from the innermost factor outwards."""
    made, start = [], 0
    for extent, ways in tiles:
        made.append(Tile(extent, tuple(range(start + ways - 1, start - 1, -1)), bound))
        start += ways
    return Tiled(tuple(made), {})


def numbers(values: Sequence[Value]) -> tuple[int, ...]:
    assert all(isinstance(value, int) for value in values)
    return tuple(int(value) for value in values)


def extent(term: Term, values: Prefix) -> int:
    """The value of a term of a complete assignment."""
    whole = numbers(values)
    return term.scale * math.prod(whole[p] for p in term.positions)


def footprint_bytes(buffer: Footprint, values: Prefix) -> int:
    """Bytes of a buffer, straight from the meaning of its fields."""
    total = buffer.element_bytes
    for dimension in buffer.dimensions:
        size = dimension.base
        for growth in dimension.growths:
            reached = extent(growth.term, values)
            if growth.table:
                listed = [g for e, g in growth.table if e >= reached] or [growth.table[-1][1]]
                size += listed[0]
            else:
                size += growth.slope * max(0, reached - growth.start)
        total *= min(dimension.limit, size)
    return total


def factorisations(tile: Tile) -> list[tuple[int, ...]]:
    """Every way to write the extent as factors (by level) within the innermost bound."""

    def split(rest: int, ways: int) -> list[tuple[int, ...]]:
        if ways == 1:
            return [(rest,)]
        return [
            (d, *below)
            for d in range(1, rest + 1)
            if rest % d == 0
            for below in split(rest // d, ways - 1)
        ]

    bound = tile.max_innermost or tile.extent
    return [f for f in split(tile.extent, len(tile.positions)) if f[-1] <= bound]


@st.composite
def tiled(draw: st.DrawFn, max_extent: int = 24, max_tiles: int = 2, free: int = 1) -> Tiled:
    """Up to ``max_tiles`` tiles of 2 or 3 factors, decided in any mixed order, and free knobs."""
    ways = draw(st.lists(st.integers(2, 3), min_size=1, max_size=max_tiles))
    extra = draw(st.integers(0, free))
    order = draw(st.permutations(range(sum(ways) + extra)))
    tiles, start = [], 0
    for count in ways:
        bound = draw(st.sampled_from([0, 0, 1, 2, 3, 4, 6]))
        positions = tuple(order[start : start + count])
        tiles.append(Tile(draw(st.integers(1, max_extent)), positions, bound))
        start += count
    values = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3, unique=True)
    choices = {position: tuple(draw(values)) for position in order[start:]}
    return Tiled(tuple(tiles), choices)


@st.composite
def terms(draw: st.DrawFn, case: Tiled) -> Term:
    """Any product of knobs of a space."""
    positions = draw(st.sets(st.integers(0, case.length - 1), min_size=1))
    return Term(frozenset(positions), draw(st.sampled_from([1, 1, 2, 3])))
