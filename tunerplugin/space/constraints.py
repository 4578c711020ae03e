"""Constraints over tiled axes: thread counts, agreement of thread extents, memory footprints.

All of them look ahead with what the open factors of each tile can still reach (see ``Tile``).
Tiles are independent of each other, so each look-ahead is exact for its own constraint; only
several constraints together can still leave a dead end, which the beam search then backs out of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .space import Constraint, Prefix
from .tiles import Tile


@dataclass(frozen=True)
class Term:
    """A product of knob values: ``scale`` times the values at ``positions``.

    Positions of tiles look ahead through their tile; a position that belongs to none (a
    categorical knob) through ``choices``, its values.
    """

    positions: frozenset[int]
    scale: int = 1


class _Reach:
    """What terms can still become, given the tiles and the values of the free knobs."""

    def __init__(self, tiles: Sequence[Tile], choices: dict[int, tuple[int, ...]]) -> None:
        self._tiles = tuple(tiles)
        self._choices = choices

    def factors(self, term: Term, prefix: Prefix) -> list[tuple[int, ...]]:
        """For every independent part of the term, the values that it can take, ascending."""
        parts: list[tuple[int, ...]] = [(term.scale,)]
        left = set(term.positions)
        for tile in self._tiles:
            mine = left.intersection(tile.positions)
            if mine:
                parts.append(tile.achievable(prefix, frozenset(mine)))
                left -= mine
        for position in sorted(left):
            if position < len(prefix):
                parts.append((int(prefix[position]),))
            else:
                parts.append(tuple(sorted(self._choices[position])))
        return parts

    def products(self, term: Term, prefix: Prefix, high: int) -> frozenset[int]:
        """Every value up to ``high`` that the term can take."""
        return _products(tuple(self.factors(term, prefix)), high)

    def least(self, term: Term, prefix: Prefix) -> int:
        """The smallest value that the term can take."""
        least = 1
        for values in self.factors(term, prefix):
            least *= values[0]
        return least


@lru_cache(maxsize=65536)
def _products(parts: tuple[tuple[int, ...], ...], high: int) -> frozenset[int]:
    reached = {1}
    for values in parts:
        reached = {a * b for a in reached for b in values if a * b <= high}
    return frozenset(reached)


class ProductRange(Constraint):
    """A term must end in ``[low, high]``, e.g. the threads of a block."""

    def __init__(
        self,
        name: str,
        term: Term,
        low: int,
        high: int,
        tiles: Sequence[Tile],
        choices: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.name, self._term, self._low, self._high = name, term, low, high
        self._reach = _Reach(tiles, choices or {})

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``; exact on prefixes."""
        reached = self._reach.products(self._term, prefix, self._high)
        return any(value >= self._low for value in reached)


class OneOf(Constraint):
    """A term must end in a given set, e.g. the tile extents for which no loop becomes dynamic."""

    def __init__(
        self, name: str, term: Term, allowed: frozenset[int], tiles: Sequence[Tile]
    ) -> None:
        self.name, self._term, self._allowed = name, term, allowed
        self._reach = _Reach(tiles, {})

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``; exact on prefixes."""
        reached = self._reach.products(self._term, prefix, max(self._allowed))
        return not reached.isdisjoint(self._allowed)


class EqualProducts(Constraint):
    """Several terms must end equal, e.g. two loops bound to one thread axis of one kernel."""

    def __init__(
        self,
        name: str,
        terms: Sequence[Term],
        high: int,
        tiles: Sequence[Tile],
        choices: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.name, self._terms, self._high = name, tuple(terms), high
        self._reach = _Reach(tiles, choices or {})

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``; exact unless two terms share an open tile."""
        common: frozenset[int] | None = None
        for term in self._terms:
            reached = self._reach.products(term, prefix, self._high)
            common = reached if common is None else common & reached
            if not common:
                return False
        return True


@dataclass(frozen=True)
class Growth:
    """How a buffer dimension grows with the extent that a term stands for.

    Either linearly, by ``slope`` for each step beyond ``start`` (an image tile of a convolution
    grows by the stride with the output rows, by 1 with the kernel rows), or as ``table`` says:
    ascending (extent, growth) pairs of a function that never falls.
    """

    term: Term
    start: int = 1
    slope: int = 0
    table: tuple[tuple[int, int], ...] = ()

    def at(self, extent: int) -> int:
        """Growth at an extent; for one between two of the table, that of the next larger."""
        if not self.table:
            return self.slope * max(0, extent - self.start)
        return next((g for e, g in self.table if e >= extent), self.table[-1][1])


@dataclass(frozen=True)
class Dimension:
    """One dimension of a buffer: ``base`` plus the growth with each axis, at most ``limit``."""

    base: int
    growths: tuple[Growth, ...]
    limit: int

    def size(self, extent_of: Callable[[Term], int]) -> int:
        """Elements along this dimension."""
        grown = sum(growth.at(extent_of(growth.term)) for growth in self.growths)
        return min(self.limit, self.base + grown)


@dataclass(frozen=True)
class Footprint:
    """A buffer: ``element_bytes`` times the product of its dimensions."""

    element_bytes: int
    dimensions: tuple[Dimension, ...]


class MemoryLimit(Constraint):
    """The buffers that live together must fit into ``limit_bytes``."""

    def __init__(
        self,
        name: str,
        buffers: Sequence[Footprint],
        limit_bytes: int,
        tiles: Sequence[Tile],
        choices: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.name, self.buffers, self.limit_bytes = name, tuple(buffers), limit_bytes
        self._reach = _Reach(tiles, choices or {})

    def bytes_used(self, prefix: Prefix) -> int:
        """Bytes of a complete assignment; of a prefix, the least that any completion uses.

        Footprints grow with every factor and tiles are independent, so the least is reached by
        taking each axis at its smallest.
        """
        def extent_of(term: Term) -> int:
            return self._reach.least(term, prefix)

        total = 0
        for buffer in self.buffers:
            size = buffer.element_bytes
            for dimension in buffer.dimensions:
                size *= dimension.size(extent_of)
            total += size
        return total

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        return self.bytes_used(prefix) <= self.limit_bytes


class AtMost(Constraint):
    """One knob's value times ``scale`` must not exceed ``high`` (vector bytes, unroll steps)."""

    def __init__(self, name: str, position: int, high: int, scale: int = 1) -> None:
        self.name, self._position, self._high, self._scale = name, position, high, scale

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        if len(prefix) <= self._position:
            return True
        return int(prefix[self._position]) * self._scale <= self._high
