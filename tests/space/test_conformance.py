"""Our own spaces and constraints keep the contract that others' are held to."""

from __future__ import annotations

from collections.abc import Sequence

from tests.space.cases import Tiled, extent, footprint_bytes, in_order, numbers
from tunerplugin.space import Constraint, ListSpace, Prefix, Space, UnionSpace, Value
from tunerplugin.space.constraints import (
    AtMost,
    Dimension,
    EqualProducts,
    Footprint,
    Growth,
    MemoryLimit,
    OneOf,
    ProductRange,
    Term,
)
from tunerplugin.space.tiles import Tile
from tunerplugin.testing import ConstraintConformance, SpaceConformance

# two axes of three factors, decided in mixed order under an innermost bound, and a vector width
CASE = Tiled((Tile(24, (5, 0, 2), 4), Tile(18, (1, 6, 3), 6)), {4: (1, 2, 4)})
OUTER, INNER = Term(frozenset({5, 1})), Term(frozenset({2, 3}), 2)
MIXED = Term(frozenset({0, 2, 4}), 3)
BUFFERS = [
    Footprint(
        4,
        (
            Dimension(1, (Growth(Term(frozenset({0, 2})), slope=2),), 30),
            Dimension(2, (Growth(Term(frozenset({3, 6})), table=((1, 0), (3, 4), (18, 9))),), 64),
        ),
    ),
    Footprint(2, (Dimension(1, (Growth(Term(frozenset({2})), slope=1),), 99),)),
]


class TestListSpace(SpaceConformance):
    """Numbers, fractions, text, and a domain that hangs on the prefix."""

    def make_space(self) -> Space:
        def third(prefix: Prefix) -> tuple[Value, ...]:
            return tuple(range(int(prefix[0]))) if prefix[1] == "few" else (0.5, 2.5, 7)

        return ListSpace(["a", "b", "c"], [(1, 2, 4), ("few", "any"), third], [AtMost("c", 2, 3)])

    def make_others(self) -> Sequence[Space]:
        first, words = [(1, 2, 4), ("few", "any"), (1,)], [(("kind", n),) for n in "xyz"]
        return [
            ListSpace(["a", "b", "d"], first),
            ListSpace(["a", "b", "c"], first),
            ListSpace(["a", "b", "c"], [(1, 2, 8), *first[1:]]),
            ListSpace(["a", "b", "c"], first, words=words),
            ListSpace(["a", "b", "c"], first, version="2"),
        ]

    def is_legal(self, values: Prefix) -> bool:
        return not isinstance(values[2], str) and values[2] <= 3


class TestUnionSpace(SpaceConformance):
    """Sketches of different length, one that refuses all, and one without any knob."""

    def spaces(self) -> list[Space]:
        tiles = in_order((12, 3))
        limit = ProductRange("inner", Term(frozenset({0, 1})), 2, 6, tiles.tiles)
        nothing = OneOf("nothing", Term(frozenset({0})), frozenset({5}), tiles.tiles)
        return [
            tiles.space([limit]),
            ListSpace(["u"], [(0, 16)]),
            tiles.space([nothing]),
            ListSpace([], []),
        ]

    def make_space(self) -> Space:
        return UnionSpace(self.spaces(), [("op", "matmul")])

    def make_others(self) -> Sequence[Space]:
        return [UnionSpace(self.spaces()[:2]), UnionSpace(self.spaces()[::-1])]

    def is_legal(self, values: Prefix) -> bool:
        whole = numbers(values)
        return whole[0] in (1, 3) or (whole[0] == 0 and 2 <= whole[1] * whole[2] <= 6)


class TestTiles(SpaceConformance):
    """Tiles alone have no dead ends, in any order."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return CASE.space()

    def is_legal(self, values: Prefix) -> bool:
        whole = numbers(values)
        return whole[2] <= 4 and whole[3] <= 6


class TestTilesUnderLimits(SpaceConformance):
    """Several constraints at once: sound and exact together, dead ends allowed."""

    def make_space(self) -> Space:
        threads = ProductRange("threads", MIXED, 12, 72, CASE.tiles, CASE.choices)
        agree = EqualProducts("agree", [OUTER, INNER], 64, CASE.tiles)
        memory = MemoryLimit("memory", BUFFERS, 900, CASE.tiles)
        return CASE.space([threads, agree, memory, AtMost("vector", 4, 8, 4)])

    def is_legal(self, values: Prefix) -> bool:
        return (
            12 <= extent(MIXED, values) <= 72
            and extent(OUTER, values) == extent(INNER, values) <= 64
            and sum(footprint_bytes(b, values) for b in BUFFERS) <= 900
            and numbers(values)[4] * 4 <= 8
        )


class _OnCase(ConstraintConformance):
    def make_space(self) -> Space:
        return CASE.space()


class TestProductRange(_OnCase):
    exact_on_prefixes = True

    def make_constraint(self) -> Constraint:
        return ProductRange("threads", MIXED, 12, 72, CASE.tiles, CASE.choices)

    def is_legal(self, values: Prefix) -> bool:
        return 12 <= extent(MIXED, values) <= 72


class TestOneOf(_OnCase):
    exact_on_prefixes = True

    def make_constraint(self) -> Constraint:
        return OneOf("static", INNER, frozenset({4, 6, 24}), CASE.tiles)

    def is_legal(self, values: Prefix) -> bool:
        return extent(INNER, values) in {4, 6, 24}


class TestEqualProducts(_OnCase):
    """Terms over different tiles."""

    exact_on_prefixes = True
    first, second = Term(frozenset({5, 0})), Term(frozenset({1, 3}))

    def make_constraint(self) -> Constraint:
        return EqualProducts("agree", [self.first, self.second], 12, CASE.tiles)

    def is_legal(self, values: Prefix) -> bool:
        return extent(self.first, values) == extent(self.second, values) <= 12


class TestEqualProductsOfOneTile(_OnCase):
    """Terms that share tiles: sound, and exact once all is decided."""

    def make_constraint(self) -> Constraint:
        return EqualProducts("agree", [OUTER, INNER], 64, CASE.tiles)

    def is_legal(self, values: Prefix) -> bool:
        return extent(OUTER, values) == extent(INNER, values) <= 64


class TestMemoryLimit(_OnCase):
    exact_on_prefixes = True

    def make_constraint(self) -> Constraint:
        return MemoryLimit("memory", BUFFERS, 300, CASE.tiles)

    def is_legal(self, values: Prefix) -> bool:
        return sum(footprint_bytes(b, values) for b in BUFFERS) <= 300


class TestAtMost(_OnCase):
    exact_on_prefixes = True

    def make_constraint(self) -> Constraint:
        return AtMost("vector", 4, 8, 4)

    def is_legal(self, values: Prefix) -> bool:
        return numbers(values)[4] <= 2
