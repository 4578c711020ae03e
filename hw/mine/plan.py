"""How many cores each operator of a workload is split over on one design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..accelerator import Accelerator
from ..schedule.bounds import disjunctive_sets
from ..schedule.problem import Capacity, Precedence, Problem
from .workload import CostTable, Workload

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """A choice of cores for every distinct operator (axis 0 of all arrays).

    ``durations`` in cycles, ``demands`` in the order of ``schedule.Resource`` (axis 1), ``limits``
    as positions in ``estimate.cost.LIMITS``.
    """

    efficiency: float
    capacity: Capacity
    durations: _Ints
    demands: _Ints
    limits: _Ints
    energy_j: npt.NDArray[np.float64]

    def problem(self, workload: Workload) -> Problem:
        """The tasks to schedule."""
        kinds = workload.kinds.tolist()
        durations = self.durations.tolist()
        demands = [(t, v, m) for t, v, m in self.demands.tolist()]
        return Problem(
            workload.precedence,
            tuple([durations[kind] for kind in kinds]),
            tuple([demands[kind] for kind in kinds]),
            self.capacity,
        )

    def in_turn(self, counts: _Ints) -> int:
        """Cycles when one task follows the other: no list schedule takes longer."""
        return int(counts @ self.durations)

    def bound(self, counts: _Ints, paths: Sequence[_Ints]) -> tuple[int, _Ints]:
        """A makespan in cycles that no schedule beats, and how many tasks of each operator make it.

        ``counts`` are the tasks of each operator, ``paths`` those on some paths of the graph.
        """
        sets = [*paths, *(counts * s for s in disjunctive_sets(self.demands, self.capacity.demand))]
        cycles, deciding = max(
            ((int(tasks @ self.durations), tasks) for tasks in sets), key=lambda found: found[0]
        )
        work = (counts * self.durations) @ self.demands
        filled = max(
            -(-int(need) // capacity)
            for need, capacity in zip(work, self.capacity.demand, strict=True)
        )
        return (filled, counts) if filled > cycles else (cycles, deciding)


def plans(table: CostTable, design: Accelerator, efficiencies: Sequence[float]) -> Iterator[Plan]:
    """One plan for each efficiency, without repetitions.

    An operator takes the number of cores that makes it fastest (the least of equals) among those
    on which its core time, as a share of the chip, times the efficiency is no more than on one
    core.  Efficiency 0 is as fast as it gets, 1 wastes no core.
    """
    share = np.maximum(table.tensor / design.tensor_cores, table.vector / design.vector_cores)
    work = table.cycles * share
    memory = table.memory
    rows = np.arange(len(work))
    seen = set()
    for efficiency in efficiencies:
        worth = work * efficiency <= work[:, :1]
        columns = np.where(worth, table.cycles, np.iinfo(np.int64).max).argmin(axis=1)
        if columns.tobytes() in seen:
            continue
        seen.add(columns.tobytes())
        yield Plan(
            efficiency,
            Capacity(design.tensor_cores, design.vector_cores),
            table.cycles[rows, columns],
            np.stack([a[rows, columns] for a in (table.tensor, table.vector, memory)], axis=1),
            table.parts[rows, columns].argmax(axis=1),
            table.energy_j[rows, columns],
        )


def one_path(precedence: Precedence, critical: Sequence[int]) -> list[int]:
    """One critical path through the tasks without slack, which may hold several."""
    members = set(critical)
    path: list[int] = []
    following = [task for task in critical if not members & set(precedence.predecessors[task])]
    while following:
        path.append(following[0])
        following = [after for after in precedence.successors[following[0]] if after in members]
    return path
