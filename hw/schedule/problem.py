"""What is scheduled: operators with durations, precedences, and shares of three resources.

This is the resource-constrained project scheduling problem (Brucker et al., European Journal of
Operational Research 112, 1999) with tensor cores, vector cores and the memory's bandwidth as
renewable resources.  An operator keeps its cores, and the bandwidth that it needs to run at its
speed, from start to end.  Without the third resource two operators that wait for memory could both
have all of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import networkx as nx

from ...errors import InputError
from ..graph.checks import check

#: the memory's whole bandwidth, in the unit of ``Problem.memory``
MEMORY_UNITS = 1024


class Resource(IntEnum):
    """What operators compete for; the value is the position in a demand."""

    TENSOR = 0
    VECTOR = 1
    MEMORY = 2

    @property
    def label(self) -> str:
        """For people."""
        return ("tensor cores", "vector cores", "memory bandwidth")[self]


Demand = tuple[int, int, int]


@dataclass(frozen=True)
class Capacity:
    """Tensor cores, vector cores and units of memory bandwidth that there are."""

    tensor: int
    vector: int
    memory: int = MEMORY_UNITS

    @property
    def demand(self) -> Demand:
        """In the order of ``Resource``."""
        return self.tensor, self.vector, self.memory


@dataclass(frozen=True)
class Precedence:
    """A directed acyclic graph whose tasks are numbered in a topological order."""

    names: tuple[Hashable, ...]
    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, graph: nx.DiGraph) -> Precedence:
        """Of an operator graph, in its node order where that is topological.

        Raises ``GraphError`` when it is empty, has a cycle, or is no operator graph.
        """
        check(graph)
        return cls.of_edges(tuple(graph), list(graph.edges))

    @classmethod
    def of_edges(
        cls, names: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]
    ) -> Precedence:
        """Of names and (before, after) pairs; raises ``InputError`` when they have a cycle."""
        plain = nx.DiGraph()
        plain.add_nodes_from(names)
        plain.add_edges_from(edges)
        position = {name: index for index, name in enumerate(plain)}
        if any(position[before] >= position[after] for before, after in edges):
            try:
                order = list(nx.lexicographical_topological_sort(plain, key=position.__getitem__))
            except nx.NetworkXUnfeasible as error:
                raise InputError("expected precedences without a cycle, got one") from error
            position = {name: index for index, name in enumerate(order)}
        ordered = tuple(position)
        return cls(
            ordered,
            tuple(tuple(sorted(position[p] for p in plain.predecessors(n))) for n in ordered),
            tuple(tuple(sorted(position[s] for s in plain.successors(n))) for n in ordered),
        )


@dataclass(frozen=True)
class Problem:
    """Tasks to schedule.  ``durations`` in cycles, ``demands`` in the order of ``Resource``.

    A task of no duration (a view of a tensor) holds nothing: its demand becomes zero.
    Raises ``InputError`` when the lengths differ, a duration or demand is negative, or a demand is
    more than there is.
    """

    precedence: Precedence
    durations: tuple[int, ...]
    demands: tuple[Demand, ...]
    capacity: Capacity

    def __post_init__(self) -> None:
        if not len(self.precedence) == len(self.durations) == len(self.demands):
            raise InputError(
                f"expected one duration and demand for each of {len(self.precedence)} tasks, "
                f"got {len(self.durations)} and {len(self.demands)}"
            )
        if self.durations and min(self.durations) < 0:
            raise InputError(f"expected durations of at least 0, got {min(self.durations)}")
        for demand in set(self.demands):
            for resource, need, most in zip(Resource, demand, self.capacity.demand, strict=True):
                if not 0 <= need <= most:
                    raise InputError(
                        f"expected a task to need 0 to {most} {resource.label}, got {need}"
                    )
        pairs = zip(self.durations, self.demands, strict=True)
        held: Demand = (0, 0, 0)
        demands = tuple(demand if duration else held for duration, demand in pairs)
        object.__setattr__(self, "demands", demands)

    def __len__(self) -> int:
        return len(self.durations)

    def work(self, resource: Resource) -> int:
        """Sum of duration times demand, in unit-cycles."""
        pairs = zip(self.durations, self.demands, strict=True)
        return sum(duration * demand[resource] for duration, demand in pairs)
