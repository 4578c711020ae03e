"""An exact solver for the same problem: OR-tools' CP-SAT, with a certified bound.

Cycles are scaled down, because CP-SAT is slow where durations are long.  Rounding durations *down*
keeps every schedule possible (two tasks that did not overlap still do not), so the solver's bound
times the scale bounds the true makespan.  Its solution gives the order in which a list schedule
with the true durations is made.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .bounds import lower_bounds
from .lists import Schedule, list_schedule
from .problem import Problem, Resource

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver

#: fewer portfolio workers find far weaker bounds, even where there are fewer cores
WORKERS = 8
#: the solver's horizon: finer than the gaps that it can close, short enough to be fast
_HORIZON = 100_000


@dataclass(frozen=True)
class ExactSchedule:
    """The best schedule found and the makespan in cycles that none can beat."""

    schedule: Schedule
    bound: int
    seconds: float

    @property
    def gap(self) -> float:
        """How much longer than the bound the schedule is at most, as a share of the bound."""
        return self.schedule.makespan / self.bound - 1 if self.bound else 0.0

    @property
    def optimal(self) -> bool:
        """Whether the schedule is proven to be the shortest."""
        return self.schedule.makespan == self.bound


def solve(
    problem: Problem,
    time_limit_s: float = 60.0,
    *,
    hint: Schedule | None = None,
    workers: int = WORKERS,
    seed: int = 0,
) -> ExactSchedule:
    """Solve a problem within about ``time_limit_s`` seconds of wall-clock time.

    ``hint`` is a schedule to start from, by default the list schedule; the result is never longer.
    Raises ``InputError`` when OR-tools is not installed, or for a limit or workers of 0 or less.
    Ctrl-C ends the search and raises ``KeyboardInterrupt``.
    """
    if not time_limit_s > 0 or workers < 1:
        raise InputError(
            f"expected a time limit above 0 s and at least 1 worker, got {time_limit_s} and "
            f"{workers}"
        )
    cp_model = _load()
    begin = time.perf_counter()
    hint = hint or list_schedule(problem)
    bound = lower_bounds(problem).best
    if hint.makespan <= bound:
        return ExactSchedule(hint, bound, time.perf_counter() - begin)
    scale = max(1, hint.makespan // _HORIZON)
    model = _Model(cp_model.CpModel(), problem, hint, scale)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = _interruptible(solver, model.model)
    best = hint
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = [int(solver.value(start)) for start in model.starts]
        best = min(hint, list_schedule(problem, order), key=lambda found: found.makespan)
    proven = int(solver.best_objective_bound + 1e-6) * scale
    bound = min(max(bound, proven), best.makespan)
    return ExactSchedule(best, bound, time.perf_counter() - begin)


def _interruptible(solver: CpSolver, model: CpModel) -> Any:
    """Solve in a thread, so that Ctrl-C reaches Python: the solver's status.

    The solver's own handler would leave the process with the system's default for SIGINT, which
    ends it without a word at every later Ctrl-C.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solver.solve, model)
        try:
            return solving.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise


def _load() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError(
            "expected OR-tools for exact schedules, which is not installed; run "
            "pip install 'tunerplugin[exact]', or do without the exact solver"
        ) from error
    return cp_model


class _Model:
    """The constraint model: fixed intervals, one cumulative a resource, makespan to minimise."""

    def __init__(self, model: CpModel, problem: Problem, hint: Schedule, scale: int) -> None:
        self.model = model
        horizon = hint.makespan // scale
        durations = [duration // scale for duration in problem.durations]
        self.starts = [
            model.new_int_var(0, horizon - duration, f"start{task}")
            for task, duration in enumerate(durations)
        ]
        makespan = model.new_int_var(0, horizon, "makespan")
        intervals = [
            model.new_fixed_size_interval_var(start, duration, f"task{task}")
            for task, (start, duration) in enumerate(zip(self.starts, durations, strict=True))
        ]
        for task, after in enumerate(problem.precedence.successors):
            end = self.starts[task] + durations[task]
            for other in after:
                model.add(self.starts[other] >= end)
            if not after:
                model.add(makespan >= end)
        for resource in Resource:
            self._limit(problem, intervals, resource)
        for start, value in zip(self.starts, hint.start, strict=True):
            model.add_hint(start, value // scale)
        model.minimize(makespan)

    def _limit(self, problem: Problem, intervals: list[Any], resource: Resource) -> None:
        users = [
            (interval, demand[resource])
            for interval, demand in zip(intervals, problem.demands, strict=True)
            if demand[resource]
        ]
        if users:
            chosen, needs = zip(*users, strict=True)
            self.model.add_cumulative(chosen, needs, problem.capacity.demand[resource])
