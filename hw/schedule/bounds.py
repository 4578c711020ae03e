"""Makespans that no schedule can beat.

Each set of tasks gives one: no task of it starts before its least head (ASAP start), and after its
last task the least tail behind it still has to run.  In between is

* the set's work on a resource over the resource's capacity, or
* the set's summed durations, when no two of its tasks fit side by side (a *disjunctive* set).

(Carlier and Latapie, RAIRO 25, 1991; Brucker and Knust, Complex Scheduling, 2006, section 3.6.)
The sets tried are all tasks with a demand, those with late heads and those with long tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .critical import Levels, levels
from .problem import Problem, Resource

_Array = npt.NDArray[np.int64]
#: shares of the bandwidth that disjunctive sets are made for, of those above a half
_LEVELS = 4


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of the makespan in cycles; ``work`` is by resource."""

    critical_path: int
    work: dict[Resource, int]
    disjunctive: int
    #: heads and tails taken into account
    combined: int

    @property
    def best(self) -> int:
        """The greatest of them."""
        return max(self.critical_path, *self.work.values(), self.disjunctive, self.combined)


def lower_bounds(problem: Problem, known: Levels | None = None) -> Bounds:
    """Lower bounds of a problem; ``known`` are its levels where they were made already."""
    known = known or levels(problem.precedence, problem.durations)
    durations = np.array(problem.durations, dtype=np.int64)
    demands = np.array(problem.demands, dtype=np.int64).reshape(-1, 3)
    heads = np.array(known.asap, dtype=np.int64)
    tails = np.array(known.tail, dtype=np.int64) - durations
    capacity = problem.capacity.demand
    work = {}
    combined = 0
    for resource in Resource:
        load = durations * demands[:, resource]
        work[resource] = _over(int(load.sum()), capacity[resource])
        combined = max(combined, _best_set(load, heads, tails, capacity[resource]))
    disjunctive = 0
    for chosen in disjunctive_sets(demands, capacity):
        load = np.where(chosen, durations, 0)
        disjunctive = max(disjunctive, int(load.sum()))
        combined = max(combined, _best_set(load, heads, tails, 1))
    return Bounds(known.critical_path, work, disjunctive, combined)


def _over(work: int, capacity: int) -> int:
    return -(-work // capacity) if work else 0


def _best_set(load: _Array, heads: _Array, tails: _Array, capacity: int) -> int:
    """The best of least head + work over capacity + least tail, over sets with late heads and over
    sets with long tails."""
    chosen = load > 0
    if not chosen.any():
        return 0
    load, heads, tails = load[chosen], heads[chosen], tails[chosen]
    return max(_sweep(load, heads, tails, capacity), _sweep(load, tails, heads, capacity))


def _sweep(load: _Array, ends: _Array, others: _Array, capacity: int) -> int:
    order = np.argsort(-ends, kind="stable")
    work = np.cumsum(load[order])
    least = np.minimum.accumulate(others[order])
    return int((ends[order] + -(-work // capacity) + least).max())


def disjunctive_sets(demands: _Array, capacity: Sequence[int]) -> list[npt.NDArray[np.bool_]]:
    """Sets of tasks of which no two fit side by side.

    ``demands`` has shape (tasks, resources).  Tasks that each take more than half of a resource,
    and with those of more than a half of the memory's bandwidth, tasks that take more than half of
    a kind of core and any bandwidth that the others leave too little of.
    """
    sets = [demands[:, r] * 2 > capacity[r] for r in Resource]
    memory, whole = demands[:, Resource.MEMORY], capacity[Resource.MEMORY]
    heavy = np.unique(memory[memory * 2 > whole])
    if len(heavy) > _LEVELS:
        heavy = heavy[np.linspace(0, len(heavy) - 1, _LEVELS, dtype=np.int64)]
    for least in heavy:
        for cores in (Resource.TENSOR, Resource.VECTOR):
            half = demands[:, cores] * 2 > capacity[cores]
            sets.append((memory >= least) | (half & (memory + least > whole)))
    return sets
