"""Perfect tiles: splitting an axis into factors whose product is the extent.

An n-way tile is n knobs, each a divisor of what remains.  Knobs may be decided in any order; the
last one decided is forced.  ``Tile.achievable`` says exactly which products a subset of the
factors can still reach, which is what makes look-ahead over tiles exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..errors import SpaceError
from .space import Prefix


@lru_cache(maxsize=65536)
def divisors(number: int) -> tuple[int, ...]:
    """The divisors of a positive integer, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])


@dataclass(frozen=True)
class Tile:
    """One tiled axis of a space.

    ``positions[j]`` is the place, in the space's value sequence, of the factor of level ``j``
    (0 is the outermost).  ``max_innermost`` bounds the innermost factor (0: no bound).  Raises
    ``SpaceError`` when no factors can make the extent, or a position comes twice.
    """

    extent: int
    positions: tuple[int, ...]
    max_innermost: int = 0

    def __post_init__(self) -> None:
        if self.extent < 1 or self.max_innermost < 0:
            raise SpaceError(f"expected a positive extent and a bound of at least 0, got {self}")
        if not self.positions or len(set(self.positions)) != len(self.positions):
            raise SpaceError(f"expected distinct positions, at least one, got {self}")
        if len(self.positions) == 1 and 0 < self.max_innermost < self.extent:
            raise SpaceError(f"expected two factors or more under an innermost bound, got {self}")

    @property
    def innermost(self) -> int:
        """The position of the innermost factor."""
        return self.positions[-1]

    def remaining(self, prefix: Prefix) -> int:
        """The extent divided by the factors already decided."""
        rest = self.extent
        for position in self.positions:
            if position < len(prefix):
                rest //= int(prefix[position])
        return rest

    def domain(self, prefix: Prefix) -> tuple[int, ...]:
        """Values of the factor at position ``len(prefix)``.

        The last factor decided takes what remains.  The innermost bound matters only at the
        innermost itself and where the innermost alone is still to come: as long as another factor
        is open, that one can take whatever the innermost may not.
        """
        here = len(prefix)
        rest = self.remaining(prefix)
        later = [p for p in self.positions if p > here]
        if not later:
            values: tuple[int, ...] = (rest,)
        else:
            values = divisors(rest)
        if not self.max_innermost:
            return values
        if here == self.innermost:
            return tuple(v for v in values if v <= self.max_innermost)
        if later == [self.innermost]:
            return tuple(v for v in values if rest // v <= self.max_innermost)
        return values

    def achievable(self, prefix: Prefix, subset: frozenset[int]) -> tuple[int, ...]:
        """Every product that the factors at the positions ``subset`` can still take, ascending.

        Exact: the decided factors of the subset times each product that the open ones can reach.
        Of a prefix that ``domain`` would not have led to, it may be empty.
        """
        decided = 1
        open_in: list[int] = []
        open_out: list[int] = []
        for position in self.positions:
            if position < len(prefix):
                decided *= int(prefix[position]) if position in subset else 1
            else:
                (open_in if position in subset else open_out).append(position)
        if not open_in:
            return (decided,)
        rest = self.remaining(prefix)
        bound = self.max_innermost or rest
        innermost_open = self.innermost >= len(prefix)
        reach = divisors(rest) if open_out else (rest,)
        if innermost_open and open_in == [self.innermost]:
            reach = tuple(v for v in reach if v <= bound)
        elif innermost_open and open_out == [self.innermost]:
            reach = tuple(v for v in reach if rest // v <= bound)
        return tuple(decided * v for v in reach)
