"""``mine``: from operator graphs and a budget to a design."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx

from ...errors import InputError
from ..accelerator import Accelerator
from ..datasheet import save
from ..estimate.technology import Technology
from ..schedule.exact import ExactSchedule, solve
from ..target import chip, register
from .evaluate import Evaluator
from .evaluation import Evaluation, Metric
from .pareto import pareto_front
from .search import Search
from .space import Budget, DesignSpace, Point
from .steps import Effort, Step
from .workload import Workload

_LOG = logging.getLogger(__name__)
#: estimated designs that are scheduled to fill the Pareto front
_FRONT = 24
#: best designs whose schedules are refined before the best of them is chosen
_REFINED = 16


@dataclass(frozen=True)
class Result:
    """What a search found.

    ``best`` is the design with its figures and ``reference`` the chip that gave memory, bandwidth
    and clock, on the same workloads; it may be over the budget.  ``evaluated`` are all designs that
    were scheduled, ``front`` those of them that are Pareto optimal in area, power and throughput.
    The schedules of ``best``, ``reference`` and ``front`` are refined (``Evaluator.refine``).
    ``estimates`` counts the designs that were estimated, ``seconds`` is wall-clock time.
    """

    best: Evaluation
    point: Point
    reference: Evaluation
    metric: Metric
    budget: Budget
    floor: float
    steps: tuple[Step, ...]
    evaluated: tuple[Evaluation, ...]
    front: tuple[Evaluation, ...]
    evaluations: int
    estimates: int
    seconds: float
    evaluator: Evaluator

    @property
    def design(self) -> Accelerator:
        """The best design."""
        return self.best.design

    @property
    def speedup(self) -> float:
        """Throughput over the reference's."""
        return self.best.throughput / self.reference.throughput

    def certify(self, time_limit_s: float = 60.0) -> list[ExactSchedule]:
        """For each workload, an exact schedule of the best design with its certified gap.

        Cores of each operator stay as they are.  Raises ``InputError`` without OR-tools.
        """
        schedules = self.evaluator.schedules(self.design)
        return [solve(made.problem, time_limit_s, hint=made) for made in schedules]

    def save(self, path: Path) -> Path:
        """Write the best design as TOML that ``Accelerator``s are read from."""
        names = ", ".join(workload.name for workload in self.evaluator.workloads)
        source = f"mined for {names} within {self.budget}, technology {self.best.technology}"
        stated = replace(self.design, area_mm2=self.best.area_mm2, tdp_w=self.best.power_w)
        return save(stated, path, source)

    def register(self, override: bool = False) -> Any:
        """Make ``Target("tunerplugin/<name>")`` mean the best design; the target is returned."""
        return register(self.design, override)


def mine(
    graphs: nx.DiGraph | Workload | Sequence[nx.DiGraph | Workload],
    *,
    area_mm2: float | None = None,
    power_w: float | None = None,
    metric: Metric | str = Metric.THROUGHPUT,
    technology: str | Technology = "7nm-macro",
    reference: Accelerator | str = "tpu-v2",
    floor: float | None = None,
    space: DesignSpace | None = None,
    name: str | None = None,
    mode: str = "pipelined",
    effort: Effort = Effort(),  # noqa: B008 - a frozen value
) -> Result:
    """The best design for one workload, or one for several, within area and power.

    ``graphs`` are operator graphs, or ``Workload``s where they have weights; over several, the
    metric is the weighted geometric mean.  ``reference`` gives clock, number format, memory and
    bandwidth; its own area and power under ``technology`` are the budget where neither is given.
    ``floor`` is the least throughput in samples/s; for throughput per watt it is the reference's
    unless given.

    Raises ``BudgetError`` when no design fits or none reaches the floor, ``InputError`` for values
    that cannot be, ``GraphError`` for a graph that is none, ``TargetError`` for an unknown chip.
    """
    began = time.perf_counter()
    chosen = _metric(metric)
    if floor is not None and not floor >= 0:
        raise InputError(f"floor: expected samples per second of at least 0, got {floor!r}")
    several = [graphs] if isinstance(graphs, nx.DiGraph | Workload) else list(graphs)
    evaluator = Evaluator([_workload(graph) for graph in several], technology, mode)
    base = chip(reference) if isinstance(reference, str) else reference
    space = space or DesignSpace(base)
    if area_mm2 is None and power_w is None:
        budget = Budget.of(base, evaluator.technology)
    else:
        budget = Budget(area_mm2, power_w)
    _warn_of_memory(evaluator, base)
    at_reference = evaluator.evaluate(base)
    if floor is None:
        per_watt = chosen == Metric.THROUGHPUT_PER_WATT
        floor = at_reference.throughput if per_watt else 0.0
    search = Search(space, evaluator, budget, chosen, floor, effort)
    found = search.run()
    evaluations = len(search.scheduled)
    _schedule_front(search)
    known = _Refined(search)
    point = known.best(found)
    front = known.front()
    best = known.evaluations[point]
    if name:
        best = replace(best, design=replace(best.design, name=name))
    return Result(
        best=best,
        point=point,
        reference=evaluator.refine(base),
        metric=chosen,
        budget=budget,
        floor=floor,
        steps=tuple(search.steps),
        evaluated=tuple(known.evaluations.values()),
        front=tuple(front),
        evaluations=evaluations,
        estimates=evaluator.estimates,
        seconds=time.perf_counter() - began,
        evaluator=evaluator,
    )


def _warn_of_memory(evaluator: Evaluator, base: Accelerator) -> None:
    """Say so where one chip's memory cannot hold a model: its times are as if it could."""
    for workload in evaluator.workloads:
        facts = workload.graph.graph
        held = int(facts.get("parameter_bytes", 0)) + int(facts.get("state_bytes", 0))
        if held > base.memory_bytes:
            _LOG.warning(
                "%s: parameters and optimiser state take %.3g GB, the memory of %s holds %.3g GB; "
                "the times are those of a chip that holds them",
                workload.name,
                held / 1e9,
                base.name,
                base.memory_bytes / 1e9,
            )


def _metric(metric: Metric | str) -> Metric:
    try:
        return Metric(metric)
    except ValueError as error:
        known = ", ".join(Metric)
        raise InputError(f"expected a metric of {known}, got {metric!r}") from error


def _workload(graph: nx.DiGraph | Workload) -> Workload:
    return graph if isinstance(graph, Workload) else Workload.of(graph)


def _schedule_front(search: Search) -> None:
    """Schedule the most promising estimates."""
    promising = pareto_front(search.estimated.values())
    points = {id(found): point for point, found in search.estimated.items()}
    step = max(1, len(promising) // _FRONT)
    for found in promising[::step][:_FRONT]:
        search.evaluate(points[id(found)])


class _Refined:
    """What a search scheduled, with refined schedules where they matter."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.evaluations = dict(search.scheduled)

    def best(self, found: Point) -> Point:
        """The best point by refined schedules of those that are best without; ``found`` is best
        of equals."""
        search = self._search
        ranked = sorted(filter(search.fits, self.evaluations), key=search.rank, reverse=True)
        top = [found, *(point for point in ranked if point != found)][:_REFINED]
        for point in top:
            self._refine(point)
        best = max(top, key=lambda point: search.rank_of(self.evaluations[point]))
        if best != found:
            search.note_refined(found, best, self.evaluations[best])
        return best

    def front(self) -> list[Evaluation]:
        """The front, all of it refined."""
        points = {id(made): point for point, made in self.evaluations.items()}
        for made in pareto_front(self.evaluations.values()):
            self._refine(points[id(made)])
        return pareto_front(self.evaluations.values())

    def _refine(self, point: Point) -> None:
        self.evaluations[point] = self._search.evaluator.refine(self._search.space.design(point))
