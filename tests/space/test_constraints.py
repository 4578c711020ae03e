"""Constraints against brute force over random tiled spaces and random terms."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.space.cases import Tiled, extent, footprint_bytes, in_order, terms, tiled
from tunerplugin.errors import SpaceError
from tunerplugin.space import Constraint, Prefix
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
from tunerplugin.space.reach import Memo

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assignments(case: Tiled) -> list[Prefix]:
    """All of them, by domains."""
    return list(case.space().enumerate())


def check(case: Tiled, constraint: Constraint, legal: set[Prefix], exact: bool) -> None:
    """Exact on complete assignments, sound on prefixes and, if claimed, exact on them too."""
    whole = assignments(case)
    reachable = {values[:n] for values in whole for n in range(case.length + 1)}
    completable = {values[:n] for values in legal for n in range(case.length + 1)}
    for prefix in reachable:
        if exact or len(prefix) == case.length:
            assert constraint.allows(prefix) == (prefix in completable), prefix
        else:
            assert constraint.allows(prefix) or prefix not in completable, prefix


@given(st.data())
@SETTINGS
def test_product_range(data: st.DataObject) -> None:
    case = data.draw(tiled())
    term = data.draw(terms(case))
    low, high = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 80))
    constraint = ProductRange("range", term, low, high, case.tiles, case.choices)
    legal = {v for v in assignments(case) if low <= extent(term, v) <= high}
    check(case, constraint, legal, exact=True)


@given(st.data())
@SETTINGS
def test_one_of(data: st.DataObject) -> None:
    case = data.draw(tiled())
    term = data.draw(terms(case))
    allowed = data.draw(st.frozensets(st.integers(1, 48), max_size=6))
    constraint = OneOf("one of", term, allowed, case.tiles, case.choices)
    legal = {v for v in assignments(case) if extent(term, v) in allowed}
    check(case, constraint, legal, exact=True)


@given(st.data())
@SETTINGS
def test_equal_products(data: st.DataObject) -> None:
    case = data.draw(tiled(max_extent=12, max_tiles=3, free=0))
    chosen = data.draw(st.lists(terms(case), min_size=2, max_size=3))
    high = data.draw(st.integers(1, 24))
    constraint = EqualProducts("agree", chosen, high, case.tiles)
    legal = {
        v
        for v in assignments(case)
        if len({extent(term, v) for term in chosen}) == 1 and extent(chosen[0], v) <= high
    }
    touched = [
        {i for i, tile in enumerate(case.tiles) if term.positions & set(tile.positions)}
        for term in chosen
    ]
    apart = sum(len(t) for t in touched) == len(set().union(*touched))
    check(case, constraint, legal, exact=apart)


@st.composite
def growths(draw: st.DrawFn, term: Term) -> Growth:
    if draw(st.booleans()):
        return Growth(term, draw(st.integers(1, 3)), draw(st.integers(0, 3)))
    extents = sorted(draw(st.sets(st.integers(1, 24), min_size=1, max_size=5)))
    grown = sorted(draw(st.lists(st.integers(0, 20), min_size=len(extents), max_size=len(extents))))
    return Growth(term, table=tuple(zip(extents, grown, strict=True)))


@st.composite
def footprints(draw: st.DrawFn, choice: st.SearchStrategy[Term]) -> Footprint:
    dimensions = []
    for _ in range(draw(st.integers(1, 3))):
        grown = tuple(draw(growths(draw(choice))) for _ in range(draw(st.integers(0, 2))))
        base = draw(st.integers(1, 3))
        dimensions.append(Dimension(base, grown, draw(st.integers(base, 40))))
    return Footprint(draw(st.sampled_from([1, 2, 4])), tuple(dimensions))


def memory_legal(case: Tiled, buffers: list[Footprint], limit: int) -> set[Prefix]:
    return {v for v in assignments(case) if sum(footprint_bytes(b, v) for b in buffers) <= limit}


@given(st.data())
@SETTINGS
def test_memory_limit_is_sound(data: st.DataObject) -> None:
    case = data.draw(tiled())
    buffers = data.draw(st.lists(footprints(terms(case)), min_size=1, max_size=2))
    limit = data.draw(st.integers(1, 400))
    constraint = MemoryLimit("memory", buffers, limit, case.tiles, case.choices)
    check(case, constraint, memory_legal(case, buffers, limit), exact=False)
    for values in assignments(case):
        assert constraint.bytes_used(values) == sum(footprint_bytes(b, values) for b in buffers)


@given(st.data())
@SETTINGS
def test_memory_limit_is_exact_for_nested_terms(data: st.DataObject) -> None:
    """What a multi-level tiling asks: everything inside of some level of each axis."""
    case = data.draw(tiled())
    nests = []
    for tile in case.tiles:
        order = data.draw(st.permutations(tile.positions))
        nests += [Term(frozenset(order[:n])) for n in range(1, len(order) + 1)]
    buffers = data.draw(st.lists(footprints(st.sampled_from(nests)), min_size=1, max_size=2))
    limit = data.draw(st.integers(1, 400))
    constraint = MemoryLimit("memory", buffers, limit, case.tiles, case.choices)
    legal = memory_legal(case, buffers, limit)
    check(case, constraint, legal, exact=True)
    values = data.draw(st.sampled_from(assignments(case)))
    for length in range(case.length):
        below = list(case.space().enumerate(values[:length]))
        least = min(sum(footprint_bytes(b, v) for b in buffers) for v in below)
        assert constraint.bytes_used(values[:length]) == least


@given(st.data())
@SETTINGS
def test_at_most(data: st.DataObject) -> None:
    case = data.draw(tiled())
    position = data.draw(st.integers(0, case.length - 1))
    high, scale = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 4))
    legal = {v for v in assignments(case) if extent(Term(frozenset({position})), v) * scale <= high}
    check(case, AtMost("most", position, high, scale), legal, exact=False)


def test_at_most_compares_fractions_and_refuses_text() -> None:
    assert not AtMost("most", 0, 2).allows((2.5,))
    assert AtMost("most", 0, 2).allows((0,))
    with pytest.raises(SpaceError, match="expected a number for 'most', got 'all'"):
        AtMost("most", 0, 2).allows(("all",))


def test_growth_reads_its_table_upwards() -> None:
    growth = Growth(Term(frozenset({0})), table=((1, 0), (4, 3), (8, 9)))
    assert [growth.at(e) for e in (1, 2, 4, 5, 8, 99)] == [0, 3, 3, 9, 9, 9]
    assert [Growth(Term(frozenset({0})), 2, 3).at(e) for e in (1, 2, 4)] == [0, 0, 6]


def test_a_term_needs_a_tile_or_choices() -> None:
    case = in_order((8, 2))
    with pytest.raises(SpaceError, match="expected a tile or positive integers .* position 7"):
        ProductRange("range", Term(frozenset({1, 7})), 1, 8, case.tiles)
    with pytest.raises(SpaceError, match=r"got \(0, 4\)"):
        OneOf("one of", Term(frozenset({2})), frozenset({4}), case.tiles, {2: (4, 0)})


def test_a_memo_asks_again_only_for_what_it_hangs_on() -> None:
    asked: list[Prefix] = []
    memo = Memo((1, 3), lambda prefix: asked.append(prefix) or len(asked))  # type: ignore[func-returns-value]
    assert [memo(p) for p in ((), (9,), (9, 5), (8, 5), (9, 5, 0), (9, 6, 0))] == [1, 1, 2, 2, 2, 3]
    assert memo((9, 5, 0, 1)) == 4 == memo((0, 5, 7, 1, 3, 3))
    memo.LIMIT = 4
    assert memo((9, 5, 0, 2)) == 5 and memo(()) == 6
