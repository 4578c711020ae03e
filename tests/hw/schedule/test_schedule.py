"""Critical path, list schedule, bounds and exact solver, by hand and against brute force."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import GraphError, InputError
from tunerplugin.hw.schedule import (
    MEMORY_UNITS,
    Capacity,
    Precedence,
    Problem,
    Resource,
    Schedule,
    justified,
    levels,
    list_schedule,
    lower_bounds,
    solve,
)

TENSOR, VECTOR, BOTH = (1, 0, 0), (0, 1, 0), (1, 1, 0)
DIAMOND = Precedence.of_edges("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


def check_schedule(schedule: Schedule) -> None:
    """Precedences hold, and no resource is over-used at any start."""
    problem = schedule.problem
    for task, before in enumerate(problem.precedence.predecessors):
        assert schedule.end[task] - schedule.start[task] == problem.durations[task]
        assert all(schedule.end[other] <= schedule.start[task] for other in before)
    for now in schedule.start:
        running = [
            demand
            for demand, start, end in zip(
                problem.demands, schedule.start, schedule.end, strict=True
            )
            if start <= now < end
        ]
        for resource in Resource:
            used = sum(demand[resource] for demand in running)
            assert used <= problem.capacity.demand[resource]


def serial_optimum(problem: Problem) -> int:
    """The shortest makespan: the best of all orders put in one by one as early as possible.

    Serial schedule generation over all orders reaches an optimum (Kolisch 1996).
    """
    best = sum(problem.durations)
    for order in itertools.permutations(range(len(problem))):
        start: dict[int, int] = {}
        for task in order:
            before = problem.precedence.predecessors[task]
            if any(other not in start for other in before):
                break
            ready = max((start[o] + problem.durations[o] for o in before), default=0)
            start[task] = next(
                now for now in itertools.count(ready) if _fits(problem, start, task, now)
            )
        else:
            best = min(best, max(start[t] + problem.durations[t] for t in start))
    return best


def _fits(problem: Problem, start: dict[int, int], task: int, now: int) -> bool:
    for moment in range(now, now + problem.durations[task]):
        running = [t for t in start if start[t] <= moment < start[t] + problem.durations[t]]
        for resource in Resource:
            used = sum(problem.demands[t][resource] for t in [*running, task])
            if used > problem.capacity.demand[resource]:
                return False
    return True


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    count = draw(st.integers(1, most))
    edges = [(a, b) for b in range(count) for a in range(b) if draw(st.integers(0, 2)) == 0]
    durations = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    demand = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, MEMORY_UNITS))
    demands = draw(st.lists(demand, min_size=count, max_size=count))
    return Problem(
        Precedence.of_edges(range(count), edges),
        tuple(durations),
        tuple(demands),
        Capacity(2, 1),
    )


def test_levels_of_a_diamond() -> None:
    known = levels(DIAMOND, (2, 5, 3, 1))
    assert known.asap == [0, 2, 2, 7]
    assert known.alap == [0, 2, 4, 7]
    assert known.slack == [0, 0, 2, 0]
    assert known.tail == [8, 6, 4, 1]
    assert known.critical_path == 8
    assert known.critical() == [0, 1, 3]


def test_slack_decides_and_the_conflict_is_recorded() -> None:
    problem = Problem(DIAMOND, (2, 3, 5, 1), (TENSOR, TENSOR, TENSOR, BOTH), Capacity(1, 1))
    schedule = list_schedule(problem)
    # c is on the critical path and goes first; b waits for the one tensor core
    assert schedule.start == (0, 7, 2, 10)
    assert schedule.makespan == 11
    (conflict,) = schedule.conflicts
    assert (conflict.task, conflict.ready, conflict.waited) == (1, 2, 5)
    assert conflict.resource == Resource.TENSOR
    assert schedule.waits() == {Resource.TENSOR: 5, Resource.VECTOR: 0, Resource.MEMORY: 0}
    assert schedule.critical_chain() == [0, 2, 1, 3]
    assert schedule.utilisation(Resource.TENSOR) == 1.0
    assert schedule.utilisation(Resource.VECTOR) == pytest.approx(1 / 11)


def test_a_fused_task_takes_a_core_of_each_kind() -> None:
    flat = Precedence.of_edges("abc", [])
    problem = Problem(flat, (4, 4, 4), (BOTH, TENSOR, VECTOR), Capacity(2, 1))
    schedule = list_schedule(problem)
    assert schedule.start == (0, 0, 4)
    assert schedule.conflicts[0].resource == Resource.VECTOR


def test_two_tasks_cannot_both_have_all_the_memory() -> None:
    flat = Precedence.of_edges("abc", [])
    demands = ((1, 0, MEMORY_UNITS), (0, 1, MEMORY_UNITS // 2), (0, 1, MEMORY_UNITS // 2))
    schedule = list_schedule(Problem(flat, (3, 3, 3), demands, Capacity(1, 2)))
    assert schedule.start == (0, 3, 3)
    assert {conflict.resource for conflict in schedule.conflicts} == {Resource.MEMORY}


def test_order_of_edges_does_not_matter() -> None:
    turned = Precedence.of_edges("dcba", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    assert turned.names == ("a", "c", "b", "d")
    assert turned.predecessors == ((), (0,), (0,), (1, 2))


@settings(deadline=None)
@given(problems(8))
def test_list_schedules_are_feasible_and_bounded(problem: Problem) -> None:
    schedule = list_schedule(problem)
    check_schedule(schedule)
    assert schedule == list_schedule(problem)
    assert lower_bounds(problem).best <= schedule.makespan <= sum(problem.durations)
    chain = schedule.critical_chain()
    assert sum(problem.durations[task] for task in chain) == schedule.makespan
    for conflict in schedule.conflicts:
        assert conflict.waited > 0
        assert problem.demands[conflict.task][conflict.resource] > 0


@settings(max_examples=60, deadline=None)
@given(problems(8))
def test_justified_schedules_are_feasible_and_never_longer(problem: Problem) -> None:
    orders = (None, range(len(problem)), range(len(problem), 0, -1))
    for schedule in (list_schedule(problem, order) for order in orders):
        found = justified(schedule)
        check_schedule(found)
        assert found == justified(schedule)
        assert lower_bounds(problem).best <= found.makespan <= schedule.makespan
        chain = found.critical_chain()
        assert sum(problem.durations[task] for task in chain) == found.makespan
        for conflict in found.conflicts:
            assert conflict.waited == found.start[conflict.task] - conflict.ready > 0
            assert problem.demands[conflict.task][conflict.resource] > 0


def test_justification_lets_what_can_wait_wait() -> None:
    # "d" may take the vector core at once, and then the critical "b" waits for it
    path = Precedence.of_edges("abcd", [("a", "b"), ("b", "c")])
    demands = (TENSOR, VECTOR, TENSOR, VECTOR)
    listed = list_schedule(Problem(path, (1, 4, 3, 2), demands, Capacity(1, 1)))
    found = justified(listed)
    assert (listed.makespan, found.makespan) == (9, 8)
    assert found.start == (0, 1, 5, 5)
    (conflict,) = found.conflicts
    assert (conflict.task, conflict.ready, conflict.waited) == (3, 0, 5)
    assert conflict.resource == Resource.VECTOR


@settings(max_examples=40, deadline=None)
@given(problems(5))
def test_no_schedule_beats_the_bounds(problem: Problem) -> None:
    assert lower_bounds(problem).best <= serial_optimum(problem)


def test_bounds_by_hand() -> None:
    flat = Precedence.of_edges("abcd", [])
    # whole memory against half the cores and any memory: no two fit side by side
    demands = ((0, 1, MEMORY_UNITS), (2, 0, 8), (2, 0, 8), (0, 0, 0))
    bounds = lower_bounds(Problem(flat, (5, 4, 3, 7), demands, Capacity(2, 1)))
    assert bounds.critical_path == 7
    assert bounds.work[Resource.TENSOR] == 7
    assert bounds.disjunctive == bounds.best == 12


@settings(max_examples=8, deadline=None)
@given(problems(5))
def test_the_solver_finds_the_optimum(problem: Problem) -> None:
    pytest.importorskip("ortools")
    found = solve(problem, 20.0, workers=8)
    check_schedule(found.schedule)
    best = serial_optimum(problem)
    assert found.bound <= best
    assert found.schedule.makespan == best
    assert found.optimal and found.gap == 0


def test_the_solver_certifies_scaled_durations() -> None:
    pytest.importorskip("ortools")
    durations = tuple(1_000_003 * d for d in (3, 3, 2, 2, 2))
    flat = Precedence.of_edges("abcde", [])
    problem = Problem(flat, durations, (TENSOR,) * 5, Capacity(2, 1))
    found = solve(problem, 20.0)
    # two machines: 3 + 3 against 2 + 2 + 2; the list schedule may do worse, the bound is rounded
    assert found.schedule.makespan == 6 * 1_000_003
    assert 0 <= found.gap < 1e-4


def test_ctrl_c_ends_the_solver_and_still_works_afterwards() -> None:
    pytest.importorskip("ortools")
    rng = np.random.default_rng(0)
    durations = tuple(int(d) for d in rng.integers(50_000, 100_000, 80))
    problem = Problem(Precedence.of_edges(range(80), []), durations, (TENSOR,) * 80, Capacity(7, 1))
    for _ in range(2):
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            solve(problem, 100.0)
            time.sleep(100)
        timer.join()


def test_without_the_extra_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    problem = Problem(DIAMOND, (1, 1, 1, 1), (TENSOR,) * 4, Capacity(1, 1))
    with pytest.raises(InputError, match=r"pip install 'tunerplugin\[exact\]'"):
        solve(problem)


def test_a_task_of_no_duration_waits_for_no_resource() -> None:
    # found by hypothesis: 599 + 426 > 1024 units of memory, yet the 426 are held for no time
    chain = Precedence.of_edges(range(4), [(0, 2), (2, 3)])
    demands = ((0, 0, 0), (0, 0, 599), (0, 0, 426), (0, 0, 0))
    schedule = list_schedule(Problem(chain, (0, 1, 0, 1), demands, Capacity(2, 1)))
    assert schedule.makespan == 1
    assert schedule.conflicts == ()


def test_bad_problems_are_refused() -> None:
    with pytest.raises(InputError, match="without a cycle"):
        Precedence.of_edges("ab", [("a", "b"), ("b", "a")])
    with pytest.raises(InputError, match="0 to 1 tensor cores, got 2"):
        Problem(DIAMOND, (1, 1, 1, 1), ((2, 0, 0),) * 4, Capacity(1, 1))
    with pytest.raises(InputError, match="for each of 4 tasks"):
        Problem(DIAMOND, (1, 1, 1), (TENSOR,) * 4, Capacity(1, 1))
    with pytest.raises(InputError, match="durations of at least 0"):
        Problem(DIAMOND, (1, 1, 1, -1), (TENSOR,) * 4, Capacity(1, 1))
    with pytest.raises(GraphError, match="without operators"):
        Precedence.of(nx.DiGraph())
    with pytest.raises(InputError, match="time limit above 0"):
        solve(Problem(DIAMOND, (1, 1, 1, 1), (TENSOR,) * 4, Capacity(1, 1)), 0)
