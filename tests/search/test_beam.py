"""Constrained beam search against brute-force enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.cases import PROBLEM, PrefixScorer, log_probability, tile_space, trap_space
from tests.space.cases import terms, tiled
from tunerplugin.errors import EmptySpaceError
from tunerplugin.search import BeamSearch, Candidate, Explored, UniformScorer
from tunerplugin.search.scorer import FloatArray
from tunerplugin.space import ListSpace, Prefix, Space, UnionSpace, Value
from tunerplugin.space.constraints import (
    AtMost,
    Dimension,
    EqualProducts,
    Footprint,
    Growth,
    MemoryLimit,
    OneOf,
    ProductRange,
)


def beam_of(
    space: Space, scorer: UniformScorer | None = None, explored: Explored | None = None
) -> BeamSearch:
    return BeamSearch(PROBLEM, space, scorer or PrefixScorer(), explored or Explored(space))


def values_of(candidates: list[Candidate]) -> list[Prefix]:
    return [candidate.values for candidate in candidates]


def several() -> UnionSpace:
    """Sketches of different lengths, with dead ends, a hopeless one and one without knobs."""
    hopeless = ListSpace(["a"], [(1, 2)], [AtMost("hopeless", 0, 0)])
    return UnionSpace([tile_space(), trap_space(), hopeless, ListSpace([], [])])


SPACES = {"tiles": tile_space, "trap": trap_space, "several": several}


@pytest.mark.parametrize("make", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("extra", [0, 1, 1000])
def test_a_wide_beam_is_the_legal_set(
    make: Callable[[], Space], temperature: float, extra: int
) -> None:
    space = make()
    legal = list(space.enumerate())
    rng = np.random.default_rng(3)
    found = values_of(beam_of(space).search(len(legal) + extra, rng, temperature))
    assert len(found) == len(legal) and set(found) == set(legal)


@pytest.mark.parametrize("make", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("explored_share", [0.0, 0.4])
def test_without_noise_the_order_is_by_log_probability(
    make: Callable[[], Space], explored_share: float
) -> None:
    space, scorer = make(), PrefixScorer()
    legal = list(space.enumerate())
    explored = Explored(space)
    for values in legal[: int(explored_share * len(legal))]:
        explored.add(values)
    left = [values for values in legal if values not in explored]
    ranked = sorted(left, key=lambda values: -log_probability(scorer, space, values))
    search = beam_of(space, scorer, explored)
    found = search.search(len(legal), np.random.default_rng(0), temperature=0.0)
    assert values_of(found) == ranked
    for candidate in found:
        expected = log_probability(scorer, space, candidate.values)
        assert candidate.log_probability == pytest.approx(expected)


@pytest.mark.parametrize("make", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("width", [1, 7, 64])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_asking_until_nothing_is_left(
    make: Callable[[], Space], width: int, temperature: float
) -> None:
    """Never illegal, never twice, never one that was measured; and always as many as are left."""
    space = make()
    legal = set(space.enumerate())
    explored = Explored(space)
    search, rng = beam_of(space, explored=explored), np.random.default_rng(5)
    found: list[Prefix] = []
    while len(found) < len(legal):
        new = values_of(search.search(width, rng, temperature))
        assert len(new) == min(width, len(legal) - len(found))
        found += new
        for values in new:
            explored.add(values)
    assert len(found) == len(set(found)) and set(found) == legal
    with pytest.raises(EmptySpaceError, match="the space is used up"):
        search.search(width, rng, temperature)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_tiled_space_under_any_constraints(data: st.DataObject) -> None:
    case = data.draw(tiled(max_extent=12))
    one, two, three = (data.draw(terms(case)) for _ in range(3))
    dimension = Dimension(1, (Growth(one, slope=1), Growth(two, slope=2)), 60)
    made = [
        ProductRange("range", one, 1, data.draw(st.integers(2, 40)), case.tiles, case.choices),
        OneOf("one of", two, frozenset({1, 2, 3, 4, 6, 8, 12}), case.tiles, case.choices),
        EqualProducts("agree", [one, three], 24, case.tiles, case.choices),
        MemoryLimit("memory", [Footprint(4, (dimension,))], 120, case.tiles, case.choices),
    ]
    space = case.space(data.draw(st.lists(st.sampled_from(made), max_size=3, unique=True)))
    unlimited = case.space().enumerate()
    legal = {v for v in unlimited if all(c.allows(v) for c in space.constraints)}
    search = beam_of(space)
    if not legal:
        with pytest.raises(EmptySpaceError):
            search.search(5, np.random.default_rng(0))
        return
    width = data.draw(st.integers(1, len(legal) + 3))
    found = values_of(search.search(width, np.random.default_rng(0)))
    assert len(found) == len(set(found)) == min(width, len(legal))
    assert set(found) <= legal


def test_no_dead_ends_where_look_ahead_is_exact() -> None:
    space = tile_space()
    search = beam_of(space)
    for seed in range(30):
        assert len(search.search(8, np.random.default_rng(seed))) == 8
    assert search.report.dead_ends == 0 and search.report.restarts == 0
    assert search.report.refused["threads"] > 0 and search.report.refused["vector"] > 0


def test_one_candidate_among_thousands_of_dead_ends() -> None:
    """4096 prefixes of five knobs look alike; one of them can be completed."""
    needle = (3, 1, 4, 1, 5)

    def last(prefix: Prefix) -> tuple[int, ...]:
        return (7,) if prefix == needle else ()

    space = ListSpace([f"k{i}" for i in range(6)], [tuple(range(6))] * 5 + [last])
    search = beam_of(space, UniformScorer())
    assert values_of(search.search(1, np.random.default_rng(0))) == [(*needle, 7)]
    assert search.report.dead_ends > 1000 and search.report.restarts < 32


def test_a_hopeless_search_ends() -> None:
    space = ListSpace([f"k{i}" for i in range(12)], [(0, 1, 2)] * 11 + [()])
    search = beam_of(space, UniformScorer())
    search.MAX_RESTARTS = 4
    with pytest.raises(EmptySpaceError, match="dead ends, gave up after 4 descents"):
        search.search(1, np.random.default_rng(0))
    assert search.report.restarts == 4


def test_empty_spaces_name_their_constraints() -> None:
    space = ListSpace(
        ["a", "b"], [(1, 2, 4), (2, 3)], [AtMost("unroll", 0, 2), AtMost("vector", 1, 1)]
    )
    explored = Explored(space)
    with pytest.raises(EmptySpaceError) as caught:
        beam_of(space, explored=explored).search(4, np.random.default_rng(0))
    message = str(caught.value)
    assert "vector refused 4 values" in message and "unroll refused 1 values" in message
    assert "2 dead ends" in message and explored.complete and not explored.used


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_decides(temperature: float) -> None:
    def once(seed: int) -> list[Candidate]:
        return beam_of(several()).search(16, np.random.default_rng(seed), temperature)

    assert once(1) == once(1)
    assert (once(1) == once(2)) == (temperature == 0)


def test_noise_keeps_the_beam_diverse() -> None:
    """A sharp scorer's beam has few beginnings; a sample from it has the model's variety."""
    space = ListSpace([f"k{i}" for i in range(6)], [tuple(range(5))] * 6)
    scorer = PrefixScorer(sharpness=3.0)
    beginnings = {
        temperature: len(
            {
                candidate.values[:3]
                for candidate in beam_of(space, scorer).search(
                    32, np.random.default_rng(0), temperature
                )
            }
        )
        for temperature in (0.0, 1.0, 4.0)
    }
    assert beginnings[0.0] < beginnings[1.0] and beginnings[1.0] >= 24
    assert beginnings[4.0] >= 24


@pytest.mark.parametrize("useless", [float("nan"), -float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_useless_scores_cost_no_candidate(useless: float, temperature: float) -> None:
    """A diverged scorer, or one that rules out what is legal, only loses its say."""

    class Useless(PrefixScorer):
        def log_p(self, prefix: Prefix, legal: Sequence[Value]) -> FloatArray:
            scores = super().log_p(prefix, legal)
            scores[1::2] = useless
            return scores if len(prefix) % 2 else np.full(len(legal), useless)

    space = several()
    legal = set(space.enumerate())
    found = beam_of(space, Useless()).search(len(legal), np.random.default_rng(0), temperature)
    assert set(values_of(found)) == legal
    assert all(np.isfinite(candidate.log_probability) for candidate in found)


def test_a_space_without_knobs_has_one_candidate() -> None:
    space = ListSpace([], [])
    explored = Explored(space)
    search = beam_of(space, UniformScorer(), explored)
    assert search.search(3, np.random.default_rng(0)) == [Candidate((), 0.0)]
    explored.add(())
    with pytest.raises(EmptySpaceError, match="used up"):
        search.search(3, np.random.default_rng(0))


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="width of at least 1, got 0"):
        beam_of(tile_space()).search(0, np.random.default_rng(0))
