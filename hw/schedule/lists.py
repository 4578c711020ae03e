"""List scheduling by slack, with the conflicts that delayed operators.

The parallel schedule-generation scheme (Kolisch, European Journal of Operational Research 90,
1996): whenever something ends, the ready operators start in the order of their slack, as far as
cores and bandwidth last.  All ready operators lose slack alike, so the order by slack is the order
by ALAP start.  Ready operators of equal demand share one heap; a whole network has few different
demands, which makes a decision cheap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from .critical import levels
from .problem import Demand, Problem, Resource


@dataclass(frozen=True)
class Conflict:
    """A task that was ready, waited for ``waited`` cycles, and what it waited for last."""

    task: int
    ready: int
    waited: int
    resource: Resource


@dataclass(frozen=True)
class Schedule:
    """Starts and ends in cycles by task number; ``conflicts`` in the order of their tasks."""

    problem: Problem
    start: tuple[int, ...]
    end: tuple[int, ...]
    conflicts: tuple[Conflict, ...]

    @cached_property
    def makespan(self) -> int:
        """Cycles until all is done."""
        return max(self.end, default=0)

    def utilisation(self, resource: Resource) -> float:
        """Share of the resource's cycles that tasks hold, 0 to 1."""
        total = self.makespan * self.problem.capacity.demand[resource]
        return self.problem.work(resource) / total if total else 0.0

    def waits(self) -> dict[Resource, int]:
        """Cycles that tasks waited for each resource, all together."""
        total = dict.fromkeys(Resource, 0)
        for conflict in self.conflicts:
            total[conflict.resource] += conflict.waited
        return total

    def critical_chain(self) -> list[int]:
        """Tasks in order, each of which started when the one before it ended.

        Unlike the critical path it holds for the cores that there are: its tasks' durations sum up
        to the makespan.  Where a task waited, the one before it held what it waited for.
        """
        ends: dict[int, list[int]] = {}
        for task, end in enumerate(self.end):
            if self.problem.durations[task]:
                ends.setdefault(end, []).append(task)
        chain: list[int] = []
        time = self.makespan
        while time > 0:
            chain.append(self._before(chain[-1] if chain else None, ends[time]))
            time = self.start[chain[-1]]
        return chain[::-1]

    def _before(self, task: int | None, candidates: Sequence[int]) -> int:
        """Of the tasks that end when ``task`` starts, the one that it had to wait for."""
        if task is not None:
            needed = self.problem.precedence.predecessors[task]
            demand = self.problem.demands[task]
            for other in candidates:
                if other in needed:
                    return other
            for other in candidates:
                if any(a and b for a, b in zip(demand, self.problem.demands[other], strict=True)):
                    return other
        return candidates[0]


def list_schedule(problem: Problem, priority: Sequence[int] | None = None) -> Schedule:
    """Schedule by ``priority``, least first; by default the ALAP starts.

    Ties go to the lower task number, so the result is the same in every process.
    """
    if priority is None:
        priority = levels(problem.precedence, problem.durations).alap
    run = _Run(problem, priority)
    run.finish()
    return Schedule(problem, tuple(run.start), tuple(run.end), tuple(run.conflicts()))


class _Run:
    """One pass over time; ``free`` is what no running task holds."""

    def __init__(self, problem: Problem, priority: Sequence[int]) -> None:
        self.problem = problem
        self.priority = priority
        self.free = list(problem.capacity.demand)
        self.open = [len(before) for before in problem.precedence.predecessors]
        self.ready_at = [0] * len(problem)
        self.start = [0] * len(problem)
        self.end = [0] * len(problem)
        #: what was free just before a task that had waited could start
        self.lacked: dict[int, Resource] = {}
        self.heaps: dict[Demand, list[tuple[int, int]]] = {}
        self.running: list[tuple[int, int]] = []
        self.before: Demand = problem.capacity.demand

    def finish(self) -> None:
        for task, count in enumerate(self.open):
            if count == 0:
                self._make_ready(task, 0)
        self._start_all(0)
        while self.running:
            now = self.running[0][0]
            self.before = (self.free[0], self.free[1], self.free[2])
            while self.running and self.running[0][0] == now:
                self._release(heapq.heappop(self.running)[1], now)
            self._start_all(now)

    def _make_ready(self, task: int, now: int) -> None:
        self.ready_at[task] = now
        heap = self.heaps.setdefault(self.problem.demands[task], [])
        heapq.heappush(heap, (self.priority[task], task))

    def _release(self, task: int, now: int) -> None:
        tensor, vector, memory = self.problem.demands[task]
        free = self.free
        free[0] += tensor
        free[1] += vector
        free[2] += memory
        for after in self.problem.precedence.successors[task]:
            self.open[after] -= 1
            if self.open[after] == 0:
                self._make_ready(after, now)

    def _start_all(self, now: int) -> None:
        free, heaps = self.free, self.heaps
        while True:
            best: tuple[int, int] | None = None
            for (tensor, vector, memory), heap in heaps.items():
                fits = tensor <= free[0] and vector <= free[1] and memory <= free[2]
                if fits and (best is None or heap[0] < best):
                    best = heap[0]
            if best is None:
                return
            self._begin(best[1], now)

    def _begin(self, task: int, now: int) -> None:
        demand = self.problem.demands[task]
        heap = self.heaps[demand]
        heapq.heappop(heap)
        if not heap:
            del self.heaps[demand]
        for resource, need in enumerate(demand):
            self.free[resource] -= need
        self.start[task] = now
        self.end[task] = now + self.problem.durations[task]
        heapq.heappush(self.running, (self.end[task], task))
        if now > self.ready_at[task]:
            self.lacked[task] = self._lacking(demand)

    def _lacking(self, demand: Demand) -> Resource:
        """The first resource of which there was too little until now.

        A task that lacked none was passed over for one that took the rest at the same time.
        """
        for resource in Resource:
            if demand[resource] > self.before[resource]:
                return resource
        return max(Resource, key=lambda r: demand[r] / max(1, self.problem.capacity.demand[r]))

    def conflicts(self) -> Iterator[Conflict]:
        for task, resource in sorted(self.lacked.items()):
            ready = self.ready_at[task]
            yield Conflict(task, ready, self.start[task] - ready, resource)
