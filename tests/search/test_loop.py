"""Explored, History, Tuner, run and replay."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.cases import (
    FAILED,
    PROBLEM,
    PrefixScorer,
    Recorder,
    latency_s,
    measured,
    tile_space,
    trap_space,
)
from tunerplugin.errors import EmptySpaceError, MeasureError, SpaceError
from tunerplugin.outcome import Outcome, Status
from tunerplugin.search import (
    Candidate,
    Explored,
    History,
    Tuner,
    TunerOptions,
    UniformScorer,
    replay,
    run,
)
from tunerplugin.search.scorer import FloatArray
from tunerplugin.space import ListSpace, Prefix, Problem, Space
from tunerplugin.space.constraints import AtMost

ILLEGAL = Outcome(Status.ILLEGAL, reason="refused by VerifyGPUCode")


def seconds(time_s: float) -> Outcome:
    return Outcome.from_samples([time_s])


def measure_all(candidates: Sequence[Candidate]) -> dict[Prefix, Outcome]:
    return {candidate.values: measured(candidate.values) for candidate in candidates}


@given(st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_explored_is_closed_upwards_in_any_order(order: random.Random) -> None:
    space = tile_space()
    legal = list(space.enumerate())
    order.shuffle(legal)
    cut = order.randrange(len(legal))
    explored = Explored(space)
    for values in legal[:cut]:
        explored.add(values)
    done = set(legal[:cut])
    for prefix in {values[:n] for values in legal for n in range(8)}:
        below = {values for values in legal if values[: len(prefix)] == prefix}
        assert (prefix in explored) == (below <= done)
    twin = explored.copy()
    for values in legal[cut:]:
        explored.add(values)
    assert [explored.complete, twin.complete, twin.used] == [True, False, bool(cut)]


def test_dead_ends_are_no_candidates() -> None:
    space = ListSpace(["a", "b"], [(1, 2), (3, 4)], [AtMost("b", 1, 2)])
    explored = Explored(space)
    explored.add((1,))
    assert (1,) in explored
    assert [explored.complete, explored.used] == [False, False]
    explored.add((2,))
    assert [explored.complete, explored.used] == [True, False]


def test_history_relates_qualities_to_the_fastest() -> None:
    space = tile_space()
    first, second, third, fourth = itertools.islice(space.enumerate(), 4)
    history = History(PROBLEM, space)
    assert history.best is None and history.examples() == []
    history.tell(first, FAILED)
    (only,) = history.examples()
    assert only.quality is None and history.best is None
    history.tell(second, seconds(0.004))
    assert [e.quality for e in history.examples()] == [None, 1.0]
    history.tell(third, seconds(0.008))
    (example,) = history.examples()
    assert example.quality == 0.5 and example.problem is PROBLEM
    assert example.steps == space.steps(third)
    assert history.examples() == []
    history.tell(fourth, seconds(0.002))
    assert [e.quality for e in history.examples()] == [None, 0.5, 0.25, 1.0]
    assert history.best == (fourth, seconds(0.002))


def test_a_later_measurement_replaces_an_earlier_one() -> None:
    space = tile_space()
    first, second = itertools.islice(space.enumerate(), 2)
    history = History(PROBLEM, space)
    for values, time_s in ((first, 0.001), (second, 0.002), (first, 0.004), (first, 0.008)):
        history.tell(values, seconds(time_s))
    assert history.best == (second, seconds(0.002))
    assert [e.quality for e in history.examples()] == [0.25, 1.0]


def test_foreign_values_are_refused_and_leave_no_trace() -> None:
    tuner = Tuner(PROBLEM, tile_space(), Recorder())
    with pytest.raises(SpaceError):
        tuner.tell((5,) * 7, seconds(0.001))
    tuner.discard((5,) * 7)
    assert tuner.history.outcomes == {} and tuner.history.examples() == []
    assert len(tuner.ask(3)) == 3


def test_every_outcome_is_taught() -> None:
    predictor = Recorder()
    tuner = Tuner(PROBLEM, tile_space(), predictor)
    asked = tuner.ask(len(Status))
    for candidate, status in zip(asked, Status, strict=True):
        ok = status is Status.OK
        tuner.tell(candidate.values, seconds(0.001) if ok else Outcome(status, reason="x"))
    tuner.learn()
    tuner.learn()
    (lesson,) = predictor.lessons
    assert {e.steps: e.quality for e in lesson} == {
        tuner.space.steps(c.values): 1.0 if status is Status.OK else None
        for c, status in zip(asked, Status, strict=True)
    }


@pytest.mark.parametrize("make", [tile_space, trap_space])
@pytest.mark.parametrize("batch", [1, 8])
def test_a_tuner_proposes_every_candidate_once(make: Callable[[], ListSpace], batch: int) -> None:
    space = make()
    legal = set(space.enumerate())
    tuner = Tuner(PROBLEM, space, UniformScorer(), options=TunerOptions(pool=3))
    asked: list[Prefix] = []
    while candidates := tuner.ask(batch):
        asked += [candidate.values for candidate in candidates]
    assert len(asked) == len(set(asked)) and set(asked) == legal
    assert tuner.ask(batch) == [] and tuner.exhausted
    for values in reversed(asked):
        tuner.tell(values, measured(values))
    best = tuner.history.best
    assert best is not None and best[1].latency_s == min(map(latency_s, legal))
    assert tuner.ask(1) == []


def test_told_and_discarded_candidates_are_not_proposed() -> None:
    space = tile_space()
    legal = list(space.enumerate())
    tuner = Tuner(PROBLEM, space, UniformScorer())
    for values in legal[:-3:2]:
        tuner.tell(values, measured(values))
    for values in legal[1:-3:2]:
        tuner.discard(values)
    assert {c.values for c in tuner.ask(50)} == set(legal[-3:])
    assert tuner.exhausted and len(tuner.history.outcomes) == len(legal[:-3:2])


def test_a_space_that_never_held_a_candidate_is_an_error() -> None:
    space = ListSpace(["a"], [(4, 8)], [AtMost("unroll", 0, 2)])
    with pytest.raises(EmptySpaceError, match="unroll refused 2 values"):
        Tuner(PROBLEM, space, UniformScorer()).ask(4)


def test_the_best_ranked_come_first_and_some_come_as_sampled() -> None:
    class Ranked(UniformScorer):
        def rank(self, problem, space, candidates):  # type: ignore[no-untyped-def]
            return np.array([-latency_s(values) for values in candidates])

    space = tile_space()
    tuner = Tuner(PROBLEM, space, Ranked(), options=TunerOptions(pool=1000, explore=0.25))
    asked = [candidate.values for candidate in tuner.ask(8)]
    ranked = sorted(space.enumerate(), key=latency_s)
    assert asked[:6] == [values for values in ranked if values not in asked[6:]][:6]
    greedy = Tuner(PROBLEM, space, Ranked(), options=TunerOptions(pool=1000, explore=0))
    assert [candidate.values for candidate in greedy.ask(8)] == ranked[:8]
    assert greedy.rank_beam(1000) == ranked[8:]
    assert greedy.rank_beam(1000) == ranked[8:], "ranking asks for nothing"


def test_a_restored_tuner_goes_on_as_the_first_would() -> None:
    """Whatever the order in which the records come back."""

    def fresh() -> Tuner:
        return Tuner(PROBLEM, tile_space(), PrefixScorer(), seed=4)

    first = fresh()
    run(first, measure_all, 24)
    for order in (1, -1):
        again = fresh()
        for values, outcome in list(first.history.outcomes.items())[::order]:
            again.tell(values, outcome)
        assert again.history.best == first.history.best
        assert again.history.outcomes == first.history.outcomes
        continued = fresh()
        run(continued, measure_all, 24)
        assert again.ask(8) == continued.ask(8)


def test_seed_and_problem_decide() -> None:
    def asked(seed: int, op: str = "matmul") -> list[Candidate]:
        problem = type(PROBLEM)((("op", op),))
        return Tuner(problem, tile_space(), PrefixScorer(), seed=seed).ask(8)

    assert asked(1) == asked(1)
    assert asked(1) != asked(2) and asked(1) != asked(1, "conv")


def test_run_counts_what_was_told_before() -> None:
    tuner = Tuner(PROBLEM, tile_space(), UniformScorer())
    batches: list[int] = []

    def measure(candidates: Sequence[Candidate]) -> dict[Prefix, Outcome]:
        batches.append(len(candidates))
        return measure_all(candidates)

    run(tuner, measure, 10, batch=4)
    run(tuner, measure, 10, batch=4)
    run(tuner, measure, 13, batch=4)
    assert batches == [4, 4, 2, 3]
    run(tuner, measure, 10_000, batch=64)
    assert set(tuner.history.outcomes) == set(tuner.space.enumerate())


def test_run_wants_an_outcome_for_each_candidate() -> None:
    tuner = Tuner(PROBLEM, tile_space(), UniformScorer())
    with pytest.raises(MeasureError, match="outcome for each of 8 candidates"):
        run(tuner, lambda candidates: measure_all(candidates[1:]), 8)


def test_replay_knows_only_what_was_recorded() -> None:
    space = tile_space()
    legal = list(space.enumerate())
    recorded = {values: measured(values) for values in legal[::2]}
    tuner = Tuner(PROBLEM, space, Recorder(), seed=1)
    curve = replay(tuner, recorded, 10_000)
    assert len(curve) == len(legal)
    best = [time for time in curve if time is not None]
    assert best == sorted(best, reverse=True) and best[-1] == min(map(latency_s, recorded))
    measured_at = [outcome.latency_s for outcome in tuner.history.outcomes.values()]
    for n, time in enumerate(curve, 1):
        assert time == min(filter(None, measured_at[:n]), default=None)
    missing = tuner.history.outcomes[legal[1]]
    assert missing.status is Status.ILLEGAL and "not among the recorded" in missing.reason


def test_replay_is_the_live_loop() -> None:
    space = tile_space()
    recorded = {values: measured(values) for values in space.enumerate()}
    live = Tuner(PROBLEM, space, PrefixScorer(), seed=2)
    run(live, measure_all, 30)
    replayed = Tuner(PROBLEM, space, PrefixScorer(), seed=2)
    curve = replay(replayed, recorded, 30)
    assert list(replayed.history.outcomes.items()) == list(live.history.outcomes.items())
    assert live.history.best is not None and curve[-1] == live.history.best[1].latency_s


def test_replay_continues_a_curve() -> None:
    space = tile_space()
    recorded = {values: measured(values) for values in space.enumerate()}
    fastest = min(recorded, key=latency_s)
    tuner = Tuner(PROBLEM, space, UniformScorer())
    tuner.tell(fastest, recorded[fastest])
    assert replay(tuner, recorded, 4) == [latency_s(fastest)] * 3


def test_illegal_outcomes_are_taught_too() -> None:
    predictor = Recorder()
    tuner = Tuner(PROBLEM, tile_space(), predictor)
    run(tuner, lambda candidates: {c.values: ILLEGAL for c in candidates}, 6, batch=3)
    assert [[e.quality for e in lesson] for lesson in predictor.lessons] == [[None] * 3] * 2
    assert tuner.history.best is None


def test_one_at_a_time_explores_as_often_as_the_share_says() -> None:
    class SmallFirst(PrefixScorer):
        def rank(self, problem: Problem, space: Space, candidates: Sequence[Prefix]) -> FloatArray:
            return -np.array([sum(int(value) for value in values) for values in candidates])

    def first(seed: int, explore: float) -> Prefix:
        options = TunerOptions(explore=explore)
        tuner = Tuner(PROBLEM, tile_space(), SmallFirst(), seed=seed, options=options)
        return tuner.ask(1)[0].values

    explored = sum(first(seed, 0.3) != first(seed, 0.0) for seed in range(100))
    assert 15 <= explored <= 40
