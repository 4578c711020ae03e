"""What a design makes of the workloads: time, energy, area, power, and what holds it back.

An *evaluation* list-schedules every workload.  How many cores each operator is split over is
decided per operator: as many as make it fastest while it stays above an efficiency; the shortest
schedule over a few efficiencies counts.  *Refined*, that is made shorter by double justification,
which costs as much again and is left for the designs that matter.  An *estimate* asks for the same
numbers without a schedule: its time lies between a lower bound and one task after the other, as far
from the bound as the schedules made so far were; their critical paths stand for its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..accelerator import Accelerator
from ..estimate.cost import LIMITS
from ..estimate.design import area, power
from ..estimate.systolic import check_mode
from ..estimate.technology import Technology, technology
from ..schedule.bounds import lower_bounds
from ..schedule.critical import Levels, levels
from ..schedule.justify import justified
from ..schedule.lists import Schedule, list_schedule
from ..schedule.problem import Resource
from .evaluation import Evaluation, Run
from .plan import Plan, one_path, plans
from .workload import CostModel, Workload

#: an operator may use so many cores that this share of their time does work
EFFICIENCIES = (0.0, 0.5, 0.8, 0.95)
#: how far schedules are from their bounds towards one task after the other, before any was made
_FIRST_SHARE = 1 / 3
#: the last schedules that estimates build on
_RECENT = 3
#: vector cores from which on their number no longer changes how well schedules fill them
_SEVERAL = 3
#: workload (its identity, for names may repeat), efficiency and vector cores, up to ``_SEVERAL``
_Like = tuple[int, float, int]
#: critical paths that are remembered for estimates, of the designs scheduled last
_PATHS = 8


class _How(Enum):
    ESTIMATED = auto()
    LISTED = auto()
    REFINED = auto()


class Evaluator:
    """Evaluates designs on workloads; ``evaluations`` and ``estimates`` count what was asked.

    Raises ``InputError`` without workloads, and for an unknown technology or mode.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        tech: str | Technology = "7nm-macro",
        mode: str = "pipelined",
    ) -> None:
        if not workloads:
            raise InputError("expected at least one workload, got none")
        check_mode(mode)
        self.workloads = tuple(workloads)
        self.technology = technology(tech)
        self.mode = mode
        self._models = [CostModel(w, self.technology, mode) for w in workloads]
        #: by workload and efficiency: distances from the bound, and those that estimates use
        self._seen: dict[_Like, list[float]] = {}
        self._shares: dict[_Like, float] = {}
        self._asked = 0
        self._paths: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._known: dict[tuple[Accelerator, _How], Evaluation] = {}

    @property
    def evaluations(self) -> int:
        """Designs that were scheduled."""
        return sum(how == _How.LISTED for _, how in self._known)

    @property
    def estimates(self) -> int:
        """Designs that were estimated."""
        return self._asked

    def evaluate(self, design: Accelerator) -> Evaluation:
        """Schedule all workloads on a design; the same design is scheduled once."""
        return self._ask(design, _How.LISTED)

    def refine(self, design: Accelerator) -> Evaluation:
        """The same with schedules made shorter by double justification, where that can be."""
        return self._ask(design, _How.REFINED)

    def estimate(self, design: Accelerator) -> Evaluation:
        """The same without schedules; ``recalibrate`` lets later ones learn from schedules."""
        return self._ask(design, _How.ESTIMATED)

    def recalibrate(self) -> None:
        """Base estimates on all schedules made so far, and forget earlier estimates."""
        for key, seen in self._seen.items():
            self._shares[key] = sum(seen[-_RECENT:]) / len(seen[-_RECENT:])
        self._known = {key: found for key, found in self._known.items() if found.scheduled}

    def area_and_power(self, design: Accelerator) -> tuple[float, float]:
        """Square millimetres and watts."""
        tech = self.technology
        return area(design, tech).total_mm2, power(design, tech).total_w

    def schedules(self, design: Accelerator) -> list[Schedule]:
        """The schedule of each workload that ``refine`` counts."""
        return [justified(self._best(model, design)[1]) for model in self._models]

    def _ask(self, design: Accelerator, how: _How) -> Evaluation:
        key = design, how
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._answer(design, how)
            self._asked += how == _How.ESTIMATED
        return found

    def _answer(self, design: Accelerator, how: _How) -> Evaluation:
        area_mm2, power_w = self.area_and_power(design)
        static_w = power(design, self.technology).static_w
        if how == _How.ESTIMATED:
            runs = tuple(self._estimated_run(model, design, static_w) for model in self._models)
        else:
            refined = how == _How.REFINED
            runs = tuple(self._scheduled_run(m, design, static_w, refined) for m in self._models)
        weights = [workload.weight for workload in self.workloads]
        return Evaluation(
            design=design,
            technology=self.technology.name,
            area_mm2=area_mm2,
            power_w=power_w,
            throughput=_geometric([r.throughput for r in runs], weights),
            energy_delay_js=_geometric([r.energy_j * r.seconds for r in runs], weights),
            runs=runs,
            scheduled=how != _How.ESTIMATED,
        )

    def _scheduled_run(
        self, model: CostModel, design: Accelerator, static_w: float, refined: bool
    ) -> Run:
        plan, schedule, known = self._best(model, design)
        if refined:
            schedule = justified(schedule)
        workload = model.workload
        self._remember_path(workload, known.critical())
        chain = schedule.critical_chain()
        critical = np.bincount(workload.kinds[chain], minlength=len(workload.operators))
        durations = np.array(schedule.problem.durations, dtype=np.float64)[chain]
        forward = durations[workload.forward[chain]].sum() / max(durations.sum(), 1.0)
        return self._run(
            model,
            plan,
            design,
            static_w,
            cycles=schedule.makespan,
            bound=lower_bounds(schedule.problem, known).best,
            critical=critical,
            waits=tuple(schedule.waits().values()),
            forward=float(forward),
        )

    def _best(self, model: CostModel, design: Accelerator) -> tuple[Plan, Schedule, Levels]:
        best: tuple[Plan, Schedule, Levels] | None = None
        workload = model.workload
        for plan in plans(model.table(design), design, EFFICIENCIES):
            problem = plan.problem(workload)
            known = levels(problem.precedence, problem.durations)
            bound, _ = plan.bound(workload.counts, [self._path(workload, known.critical())])
            if best is not None and bound >= best[1].makespan:
                continue
            schedule = list_schedule(problem, known.alap)
            room = plan.in_turn(workload.counts) - bound
            if room > 0:
                share = (schedule.makespan - bound) / room
                key = _like(workload, plan)
                self._seen.setdefault(key, []).append(share)
            if best is None or schedule.makespan < best[1].makespan:
                best = plan, schedule, known
        assert best is not None
        return best

    def _path(self, workload: Workload, critical: Sequence[int]) -> npt.NDArray[np.int64]:
        """How many operators of each kind one critical path has."""
        path = one_path(workload.precedence, critical)
        return np.bincount(workload.kinds[path], minlength=len(workload.operators))

    def _remember_path(self, workload: Workload, critical: Sequence[int]) -> None:
        path = self._path(workload, critical)
        known = self._paths.setdefault(id(workload), [])
        if not any(np.array_equal(path, other) for other in known):
            known.append(path)
            del known[:-_PATHS]

    def _estimated_run(self, model: CostModel, design: Accelerator, static_w: float) -> Run:
        workload = model.workload
        found = list(plans(model.table(design), design, EFFICIENCIES))
        if id(workload) not in self._paths:
            durations = found[0].problem(workload).durations
            self._remember_path(workload, levels(workload.precedence, durations).critical())
        best: tuple[float, int, npt.NDArray[np.int64], Plan] | None = None
        for plan in found:
            bound, critical = plan.bound(workload.counts, self._paths[id(workload)])
            room = plan.in_turn(workload.counts) - bound
            share = self._shares.get(_like(workload, plan), _FIRST_SHARE)
            cycles = bound + share * room
            if best is None or cycles < best[0]:
                best = cycles, bound, critical, plan
        assert best is not None
        cycles, bound, critical, plan = best
        return self._run(
            model, plan, design, static_w, cycles=round(cycles), bound=bound, critical=critical
        )

    def _run(
        self,
        model: CostModel,
        plan: Plan,
        design: Accelerator,
        static_w: float,
        *,
        cycles: int,
        bound: int,
        critical: npt.NDArray[np.int64],
        waits: tuple[int, ...] = (0,) * len(Resource),
        forward: float = math.nan,
    ) -> Run:
        seconds = cycles / design.frequency_hz
        counts = model.workload.counts
        spent = (critical * plan.durations).astype(np.float64)
        shares = np.bincount(plan.limits, weights=spent, minlength=len(LIMITS))
        busy = (counts * plan.durations) @ plan.demands / np.array(plan.capacity.demand)
        return Run(
            workload=model.workload.name,
            seconds=seconds,
            bound_s=bound / design.frequency_hz,
            energy_j=float(counts @ plan.energy_j + static_w * seconds),
            throughput=model.workload.samples / max(seconds, 1e-30),
            limits=tuple((shares / max(shares.sum(), 1.0)).tolist()),
            waits=waits,
            forward=forward,
            utilisation=tuple((busy / max(cycles, 1)).tolist()),
        )


def _like(workload: Workload, plan: Plan) -> _Like:
    """Schedules of equal keys are about as far from their bounds."""
    return id(workload), plan.efficiency, min(plan.capacity.vector, _SEVERAL)


def _geometric(values: Sequence[float], weights: Sequence[float]) -> float:
    logs = sum(w * math.log(max(v, 1e-300)) for v, w in zip(values, weights, strict=True))
    return math.exp(logs / sum(weights))
