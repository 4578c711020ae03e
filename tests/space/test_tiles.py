"""Perfect tiles against brute force: every extent, number of factors, bound and decode order."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.space.cases import Tiled, factorisations, numbers
from tunerplugin.errors import SpaceError
from tunerplugin.space import Prefix
from tunerplugin.space.tiles import Tile, divisors


def in_decode_order(tile: Tile) -> list[Prefix]:
    """All factorisations, as value sequences."""
    return [
        tuple(factors[tile.positions.index(p)] for p in range(len(tile.positions)))
        for factors in factorisations(tile)
    ]


def check(tile: Tile) -> None:
    """Domains hold exactly the values with a completion; reachable products are exact."""
    whole = sorted(in_decode_order(tile))
    assert sorted(Tiled((tile,), {}).space().enumerate()) == whole
    ways = len(tile.positions)
    subsets = [
        frozenset(s) for n in range(1, ways + 1) for s in itertools.combinations(range(ways), n)
    ]
    for length in range(ways + 1):
        for prefix in {values[:length] for values in whole}:
            below = [values for values in whole if values[:length] == prefix]
            assert tile.remaining(prefix) == tile.extent // math.prod(numbers(prefix))
            if length < ways:
                assert tile.domain(prefix) == tuple(sorted({v[length] for v in below}))
            for subset in subsets:
                products = {math.prod(values[p] for p in subset) for values in below}
                assert tile.achievable(prefix, subset) == tuple(sorted(products))


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("bound", [0, 1, 2, 5, 6])
def test_every_order_of_deciding(ways: int, bound: int) -> None:
    for order in itertools.permutations(range(ways)):
        check(Tile(24, order, bound))
        check(Tile(1, order, bound))
        check(Tile(7, order, bound))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_tile(data: st.DataObject) -> None:
    extent = data.draw(st.integers(1, 96))
    order = data.draw(st.integers(2, 5).flatmap(lambda ways: st.permutations(range(ways))))
    bound = data.draw(st.one_of(st.just(0), st.integers(1, 96)))
    check(Tile(extent, tuple(order), bound))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_last_factor_is_forced(order: tuple[int, ...]) -> None:
    tile = Tile(60, order, 4)
    for values in Tiled((tile,), {}).space().enumerate():
        assert tile.domain(values[:-1]) == (values[-1],)


def test_knobs_of_others_do_not_matter() -> None:
    """Positions need be neither dense nor in order."""
    tile = Tile(12, (5, 1), 4)
    assert tile.innermost == 1
    assert tile.domain((99,)) == (1, 2, 3, 4)
    assert tile.domain((99, 3, 99, 99, 99)) == (4,)
    assert tile.achievable((99, 3, 99), frozenset({5})) == (4,)
    assert tile.achievable((), frozenset({5})) == (3, 4, 6, 12)


@given(st.integers(1, 5000))
@settings(max_examples=50)
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tile(0, (0, 1)), "positive extent"),
        (lambda: Tile(4, (0, 1), -1), "bound of at least 0"),
        (lambda: Tile(4, ()), "at least one"),
        (lambda: Tile(4, (1, 1)), "distinct positions"),
        (lambda: Tile(4, (0,), 2), "two factors or more"),
    ],
)
def test_impossible_tiles_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(SpaceError, match=message):
        make()
