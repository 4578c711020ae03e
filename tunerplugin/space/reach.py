"""Look-ahead: what products of knob values can still become.

Search asks the same about siblings again and again, so answers are remembered (``Memo``) by the
values that they depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from operator import itemgetter
from typing import Any, Generic, TypeVar

from ..errors import SpaceError
from .space import Prefix
from .tiles import Tile

T = TypeVar("T")


@dataclass(frozen=True)
class Term:
    """A product of knob values: ``scale`` times the values at ``positions``.

    Positions of tiles look ahead through their tile; a position that belongs to none (a
    categorical knob) through ``choices``, its values.
    """

    positions: frozenset[int]
    scale: int = 1


class Memo(Generic[T]):
    """A function of a prefix that depends on the values at ``positions`` only, remembered."""

    #: answers kept; beyond that memory is worth more than time, and all are forgotten
    LIMIT = 1 << 14

    def __init__(self, positions: Iterable[int], function: Callable[[Prefix], T]) -> None:
        self.positions = frozenset(positions)
        ordered = sorted(self.positions)
        self._last = ordered[-1] + 1 if ordered else 0
        self._pickers = [_picker(ordered, length) for length in range(self._last + 1)]
        self._function = function
        self._known: dict[Any, T] = {}

    def __call__(self, prefix: Prefix) -> T:
        length = len(prefix)
        key = self._pickers[length if length < self._last else self._last](prefix)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= self.LIMIT:
                self._known.clear()
            answer = self._known[key] = self._function(prefix)
            return answer


def _picker(positions: Sequence[int], length: int) -> Callable[[Prefix], Any]:
    """Picks the decided values: a tuple, or the bare value of a single one (never a tuple)."""
    decided = [position for position in positions if position < length]
    return itemgetter(*decided) if decided else _nothing


def _nothing(prefix: Prefix) -> tuple[()]:
    return ()


class Reach:
    """What terms can still become, given the tiles and the values of the free knobs.

    Raises ``SpaceError`` when a position belongs to neither, or a free knob of a term has a value
    that is not a positive integer: products could then shrink again, and look-ahead would lie.
    """

    def __init__(
        self,
        terms: Iterable[Term],
        tiles: Sequence[Tile],
        choices: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self._parts: dict[Term, list[Memo[tuple[int, ...]]]] = {}
        for term in terms:
            if term not in self._parts:
                self._parts[term] = self._split(term, tiles, choices or {})

    def _split(
        self, term: Term, tiles: Sequence[Tile], choices: Mapping[int, Sequence[int]]
    ) -> list[Memo[tuple[int, ...]]]:
        """The independent parts of a term: one for each tile, one for each free knob."""
        parts: list[Memo[tuple[int, ...]]] = []
        left = set(term.positions)
        for tile in tiles:
            mine = left.intersection(tile.positions)
            if mine:
                function = partial(tile.achievable, subset=frozenset(mine))
                parts.append(Memo(tile.positions, function))
                left -= mine
        for position in sorted(left):
            values = tuple(sorted(choices.get(position, ())))
            if not values or not all(isinstance(v, int) and v > 0 for v in values):
                raise SpaceError(
                    f"expected a tile or positive integers to choose from at position {position} "
                    f"of {term}, got {values}"
                )
            parts.append(Memo((position,), partial(_chosen, position, values)))
        return parts

    def positions_of(self, terms: Iterable[Term]) -> set[int]:
        """The positions on whose values it hangs what these terms can become."""
        return {p for term in terms for part in self._parts[term] for p in part.positions}

    def products(self, term: Term, prefix: Prefix, high: int) -> frozenset[int]:
        """Every value up to ``high`` that the term can take."""
        return _products(term.scale, tuple(part(prefix) for part in self._parts[term]), high)

    def least(self, term: Term, prefix: Prefix) -> int:
        """The smallest value that the term can take.

        A factor that can take none (a prefix outside the domains) counts as 1.
        """
        return prod((min(part(prefix), default=1) for part in self._parts[term]), start=term.scale)


def _chosen(position: int, values: tuple[int, ...], prefix: Prefix) -> tuple[int, ...]:
    return (int(prefix[position]),) if position < len(prefix) else values


@lru_cache(maxsize=65536)
def _products(scale: int, parts: tuple[tuple[int, ...], ...], high: int) -> frozenset[int]:
    reached = {scale} if scale <= high else set()
    for values in parts:
        reached = {a * b for a in reached for b in values if a * b <= high}
    return frozenset(reached)
