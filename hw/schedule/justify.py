"""Double justification: a schedule made shorter, or left as long, in one pass back and one forth.

Every task is moved as late as it can, last ends first, and then as early as it can, first starts
first (Valls, Ballestin and Quintanilla, European Journal of Operational Research 165, 2005).  Each
task's old place is free when its turn comes, so no pass makes the schedule longer.  A list schedule
starts whatever is ready and fits, and so lets tasks that could wait keep cores from critical ones
that become ready a moment later; this mends that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from .lists import Conflict, Schedule
from .problem import Demand, Problem, Resource

_Tasks = Sequence[tuple[int, ...]]


def justified(schedule: Schedule) -> Schedule:
    """The schedule after double justification, with its own conflicts; never longer.

    Deterministic.  The schedule itself is returned where nothing is gained.
    """
    problem, precedence = schedule.problem, schedule.problem.precedence
    tasks = range(len(problem))
    latest = sorted(tasks, key=lambda task: (-schedule.end[task], -task))
    # in mirrored time, where successors come first
    mirrored, _ = _shifted(problem, latest, precedence.successors)
    ends = [start + duration for start, duration in zip(mirrored, problem.durations, strict=True)]
    earliest = sorted(tasks, key=lambda task: (-ends[task], task))
    starts, profile = _shifted(problem, earliest, precedence.predecessors)
    found = _schedule(problem, starts, profile)
    return found if found.makespan < schedule.makespan else schedule


def _shifted(problem: Problem, order: Sequence[int], before: _Tasks) -> tuple[list[int], _Profile]:
    """Every task of ``order`` as early as it can be after those ``before`` it: starts by task."""
    profile = _Profile(problem.capacity.demand)
    start, end = [0] * len(problem), [0] * len(problem)
    for task in order:
        ready = max([end[other] for other in before[task]], default=0)
        duration = problem.durations[task]
        if duration:
            ready = profile.place(problem.demands[task], duration, ready)
        start[task], end[task] = ready, ready + duration
    return start, profile


def _schedule(problem: Problem, starts: list[int], profile: _Profile) -> Schedule:
    ends = [start + duration for start, duration in zip(starts, problem.durations, strict=True)]
    conflicts = tuple(_conflicts(problem, starts, ends, profile))
    return Schedule(problem, tuple(starts), tuple(ends), conflicts)


def _conflicts(
    problem: Problem, starts: list[int], ends: list[int], profile: _Profile
) -> Iterator[Conflict]:
    for task, before in enumerate(problem.precedence.predecessors):
        ready = max([ends[other] for other in before], default=0)
        if starts[task] > ready:
            free, demand = profile.free_before(starts[task]), problem.demands[task]
            # it could not start a cycle earlier, so something was short then
            lacked = next(r for r in Resource if demand[r] > free[r])
            yield Conflict(task, ready, starts[task] - ready, lacked)


class _Profile:
    """What is free over time: ``free[i]`` from ``times[i]`` to the next, the last one for ever."""

    def __init__(self, capacity: Demand) -> None:
        self.times = [0]
        self.free = [capacity]

    def free_before(self, time: int) -> Demand:
        """What is free in the cycle before ``time``, which is above 0."""
        return self.free[bisect_left(self.times, time) - 1]

    def place(self, demand: Demand, duration: int, earliest: int) -> int:
        """Take ``demand`` for ``duration`` cycles as soon as it is free: the start."""
        times, free = self.times, self.free
        tensor, vector, memory = demand
        start = earliest
        index = bisect_right(times, start) - 1
        while index < len(times) and times[index] < start + duration:
            left = free[index]
            index += 1
            if tensor > left[0] or vector > left[1] or memory > left[2]:
                start = times[index]
        first, last = self._cut(start), self._cut(start + duration)
        for index in range(first, last):
            left = free[index]
            free[index] = left[0] - tensor, left[1] - vector, left[2] - memory
        return start

    def _cut(self, time: int) -> int:
        """Let a span begin at ``time``: its index."""
        index = bisect_left(self.times, time)
        if index == len(self.times) or self.times[index] != time:
            self.times.insert(index, time)
            self.free.insert(index, self.free[index - 1])
        return index
