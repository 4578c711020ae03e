"""Constraints over tiled axes: thread counts, agreement of thread extents, memory footprints.

All of them look ahead with what the open factors of each tile can still reach (see ``Tile``).
Tiles are independent of each other, so each look-ahead is exact for its own constraint, but for
the exceptions that a class states; several constraints together can still leave a dead end, which
the beam search then backs out of.

``tiles`` are the tiled axes of the space and ``choices`` the values of the knobs that belong to
none, by position.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..errors import SpaceError
from .reach import Memo, Reach, Term
from .space import Constraint, Prefix
from .tiles import Tile

__all__ = [
    "AtMost",
    "Dimension",
    "EqualProducts",
    "Footprint",
    "Growth",
    "MemoryLimit",
    "OneOf",
    "ProductRange",
    "Term",
]

Choices = Mapping[int, Sequence[int]]


class _TermConstraint(Constraint):
    """A constraint over terms; its answer hangs on the tiles and knobs of these terms alone."""

    def __init__(
        self, name: str, terms: Sequence[Term], tiles: Sequence[Tile], choices: Choices | None
    ) -> None:
        self.name = name
        self._reach = Reach(terms, tiles, choices)
        self._answer = Memo(self._reach.positions_of(terms), self._decide)

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        return self._answer(prefix)

    @abstractmethod
    def _decide(self, prefix: Prefix) -> bool:
        """``allows``, without memory."""


class ProductRange(_TermConstraint):
    """A term must end in ``[low, high]``, e.g. the threads of a block.  Exact on prefixes."""

    def __init__(
        self,
        name: str,
        term: Term,
        low: int,
        high: int,
        tiles: Sequence[Tile],
        choices: Choices | None = None,
    ) -> None:
        super().__init__(name, [term], tiles, choices)
        self._term, self._low, self._high = term, low, high

    def _decide(self, prefix: Prefix) -> bool:
        reached = self._reach.products(self._term, prefix, self._high)
        return any(value >= self._low for value in reached)


class OneOf(_TermConstraint):
    """A term must end in a given set, e.g. the tile extents for which no loop becomes dynamic.

    Exact on prefixes.  An empty set refuses everything.
    """

    def __init__(
        self,
        name: str,
        term: Term,
        allowed: frozenset[int],
        tiles: Sequence[Tile],
        choices: Choices | None = None,
    ) -> None:
        super().__init__(name, [term], tiles, choices)
        self._term, self._allowed = term, allowed
        self._high = max(allowed, default=0)

    def _decide(self, prefix: Prefix) -> bool:
        reached = self._reach.products(self._term, prefix, self._high)
        return not reached.isdisjoint(self._allowed)


class EqualProducts(_TermConstraint):
    """Several terms must end equal, and at most ``high``.

    E.g. two loops bound to one thread axis of one kernel.  Exact on prefixes unless two terms
    share an open tile.
    """

    def __init__(
        self,
        name: str,
        terms: Sequence[Term],
        high: int,
        tiles: Sequence[Tile],
        choices: Choices | None = None,
    ) -> None:
        super().__init__(name, terms, tiles, choices)
        self._terms, self._high = tuple(terms), high

    def _decide(self, prefix: Prefix) -> bool:
        common: frozenset[int] | None = None
        for term in self._terms:
            reached = self._reach.products(term, prefix, self._high)
            common = reached if common is None else common & reached
            if not common:
                return False
        return True


@dataclass(frozen=True)
class Growth:
    """How many elements a buffer dimension gains with the extent that a term stands for.

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
        index = bisect_left(self.table, (extent,))
        return self.table[min(index, len(self.table) - 1)][1]


@dataclass(frozen=True)
class Dimension:
    """One dimension of a buffer: ``base`` plus the growth with each axis, at most ``limit``."""

    base: int
    growths: tuple[Growth, ...]
    limit: int

    @property
    def terms(self) -> tuple[Term, ...]:
        """What the dimension grows with."""
        return tuple(growth.term for growth in self.growths)

    def size(self, extent_of: Callable[[Term], int]) -> int:
        """Elements along this dimension."""
        grown = sum(growth.at(extent_of(growth.term)) for growth in self.growths)
        return min(self.limit, self.base + grown)


@dataclass(frozen=True)
class Footprint:
    """A buffer: ``element_bytes`` times the product of its dimensions."""

    element_bytes: int
    dimensions: tuple[Dimension, ...]


class MemoryLimit(_TermConstraint):
    """The buffers that live together must fit into ``limit_bytes``.

    Exact on prefixes if, of any two terms that share a tile, one's positions there contain the
    other's; else still sound.
    """

    def __init__(
        self,
        name: str,
        buffers: Sequence[Footprint],
        limit_bytes: int,
        tiles: Sequence[Tile],
        choices: Choices | None = None,
    ) -> None:
        self.buffers, self.limit_bytes = tuple(buffers), limit_bytes
        dimensions = [d for buffer in self.buffers for d in buffer.dimensions]
        super().__init__(name, [t for d in dimensions for t in d.terms], tiles, choices)
        # one decision changes a dimension or two: the others are remembered
        self._sizes = [
            (buffer.element_bytes, [self._size(dimension) for dimension in buffer.dimensions])
            for buffer in self.buffers
        ]

    def _size(self, dimension: Dimension) -> Memo[int]:
        """The least elements along a dimension, given a prefix."""

        def least(prefix: Prefix) -> int:
            return dimension.size(lambda term: self._reach.least(term, prefix))

        return Memo(self._reach.positions_of(dimension.terms), least)

    def bytes_used(self, prefix: Prefix) -> int:
        """Bytes of a complete assignment; of a prefix, a bound that no completion goes below.

        Footprints grow with every factor, so taking each term at its smallest gives a bound, and
        the least there is where the terms can be smallest all at once (see the class).
        """
        return sum(
            prod([size(prefix) for size in sizes], start=element_bytes)
            for element_bytes, sizes in self._sizes
        )

    def _decide(self, prefix: Prefix) -> bool:
        return self.bytes_used(prefix) <= self.limit_bytes


class AtMost(Constraint):
    """One knob's value times ``scale`` must not exceed ``high`` (vector bytes, unroll steps).

    Exact on prefixes if the knob always has a value that fits, or if ``choices`` names its values.
    """

    def __init__(
        self,
        name: str,
        position: int,
        high: int,
        scale: int = 1,
        choices: Sequence[int] | None = None,
    ) -> None:
        self.name, self._position, self._high, self._scale = name, position, high, scale
        self._hopeless = choices is not None and min(choices) * scale > high

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``.  Raises ``SpaceError`` when the knob's value is text."""
        if len(prefix) <= self._position:
            return not self._hopeless
        value = prefix[self._position]
        if isinstance(value, str):
            raise SpaceError(f"expected a number for {self.name!r}, got {value!r}")
        return value * self._scale <= self._high
