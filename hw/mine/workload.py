"""A workload made ready for thousands of designs, and its operators' costs on each.

What the estimator answers falls into three tables that change with different dimensions: the
arrays' cycles with the arrays and their count, the lanes' cycles with the lanes and their count,
and the memory's cycles with the shared buffer.  Each is asked for once and kept; a design's costs
are then the maxima of three rows.  Operators that cost the same are asked for once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..accelerator import Accelerator
from ..estimate.cost import LIMITS
from ..estimate.estimator import Estimator
from ..estimate.split import parts
from ..estimate.technology import Technology
from ..estimate.vector import cycles_per_element
from ..graph.checks import check, representatives, signatures
from ..graph.fusion import fuse
from ..graph.operator import Core, Operator, Phase
from ..schedule.problem import MEMORY_UNITS, Precedence

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
#: what the arrays' cycles, and what the memory's, depend on
_COMMON_FIELDS = ("frequency_hz", "dtype", "dataflow", "memory_bytes_s")
_TENSOR_FIELDS = (
    *("tensor_cores", "tensor_rows", "tensor_columns", "core_buffer_bytes", "on_chip_bytes_s"),
    *_COMMON_FIELDS,
)
_MEMORY_FIELDS = ("shared_buffer_bytes", "on_chip_bytes_s", *_COMMON_FIELDS)
FORWARD_PHASES = frozenset({Phase.FORWARD, Phase.LOSS})


@dataclass(frozen=True)
class Workload:
    """A fused operator graph; ``samples`` are those of one step, the unit of throughput."""

    name: str
    graph: nx.DiGraph
    samples: int
    weight: float
    precedence: Precedence
    #: the operators that differ in cost, and which of them each task is
    operators: tuple[Operator, ...]
    kinds: _Ints
    #: how many tasks there are of each operator
    counts: _Ints
    #: which tasks belong to the forward pass
    forward: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        graph: nx.DiGraph,
        *,
        name: str | None = None,
        samples: int | None = None,
        weight: float = 1.0,
        fused: bool = False,
    ) -> Workload:
        """Fuse a graph, unless it is ``fused`` already, and find what repeats in it.

        ``samples`` defaults to the graph's "batch", or 1.  Raises ``GraphError`` for a graph that
        is empty, cyclic or without shapes, and ``InputError`` for a weight of 0 or less.
        """
        check(graph)
        stated = graph.graph
        samples = int(stated.get("batch", 1)) if samples is None else samples
        if not weight > 0 or samples < 1:
            raise InputError(
                f"expected a weight above 0 and at least 1 sample, got {weight} and {samples}"
            )
        if not fused:
            graph = fuse(graph)
        precedence = Precedence.of(graph)
        ids = signatures(graph)
        operators = [graph.nodes[node]["op"] for node in precedence.names]
        distinct = representatives(graph)
        kinds = np.array([ids[node] for node in precedence.names], dtype=np.int64)
        return cls(
            name=name or str(stated.get("name", "graph")),
            graph=graph,
            samples=samples,
            weight=weight,
            precedence=precedence,
            operators=tuple(distinct),
            kinds=kinds,
            counts=np.bincount(kinds, minlength=len(distinct)),
            forward=np.array([op.phase in FORWARD_PHASES for op in operators]),
        )


@dataclass(frozen=True)
class CostTable:
    """Costs of a workload's operators (axis 0) on 1 and more cores (axis 1) of one design.

    ``tensor`` and ``vector`` are the cores that are held; ``cores`` is the most of each kind that
    a column stands for.  ``parts`` are the cycles by ``estimate.cost.LIMITS`` (axis 2).
    """

    cores: tuple[int, ...]
    cycles: _Ints
    tensor: _Ints
    vector: _Ints
    parts: _Ints
    energy_j: _Floats

    @property
    def memory(self) -> _Ints:
        """Share of the memory's bandwidth that is held, in ``MEMORY_UNITS``, rounded up."""
        needed = self.parts[:, :, LIMITS.index("memory")] * MEMORY_UNITS
        return np.asarray(-(-needed // np.maximum(self.cycles, 1)))


class CostModel:
    """Cost tables of one workload; keeps what designs have in common."""

    def __init__(self, workload: Workload, technology: Technology, mode: str) -> None:
        self.workload, self.technology, self.mode = workload, technology, mode
        operators = workload.operators
        self._matrix = [i for i, op in enumerate(operators) if op.gemm is not None]
        self._products = [replace(operators[i], fused=()) for i in self._matrix]
        work = [(i, n, cycles_per_element(f)) for i, op in enumerate(operators)
                for f, n in op.vector_work]  # fmt: skip
        self._work = np.array(work, dtype=np.int64).reshape(-1, 3)
        self._uses_lanes = np.array([Core.VECTOR in op.cores for op in operators])
        self._tensor_tables: dict[tuple[object, ...], tuple[_Ints, _Ints, _Floats]] = {}
        self._vector_tables: dict[tuple[int, int], _Ints] = {}
        self._memory_tables: dict[tuple[object, ...], tuple[_Ints, _Floats]] = {}

    def table(self, design: Accelerator) -> CostTable:
        """The costs on a design; equal to the estimator's, but for rounding of the energy."""
        tensor_counts, vector_counts = _counts(design.tensor_cores), _counts(design.vector_cores)
        cores = tuple(sorted({*tensor_counts, *vector_counts}))
        to_tensor = np.searchsorted(tensor_counts, cores, side="right") - 1
        to_vector = np.searchsorted(vector_counts, cores, side="right") - 1
        on_arrays, held, array_energy = self._tensor(design, tensor_counts)
        memory, energy = self._memory(design)
        count = len(self.workload.operators)
        parts = np.zeros((count, len(cores), len(LIMITS)), dtype=np.int64)
        tensor = np.zeros((count, len(cores)), dtype=np.int64)
        energy_j = np.repeat(energy[:, None], len(cores), axis=1)
        if self._matrix:
            parts[self._matrix, :, :2] = on_arrays[:, to_tensor]
            tensor[self._matrix] = held[:, to_tensor]
            energy_j[self._matrix] += array_energy[:, to_tensor]
        parts[:, :, 2] = self._vector(design.vector_lanes, design.vector_cores)[:, to_vector]
        parts[:, :, 3] = memory[:, None]
        used = np.array(vector_counts, dtype=np.int64)[to_vector]
        vector = np.where(self._uses_lanes[:, None], used[None, :], 0)
        return CostTable(cores, parts.max(axis=2), tensor, vector, parts, energy_j)

    def _tensor(self, design: Accelerator, counts: tuple[int, ...]) -> tuple[_Ints, _Ints, _Floats]:
        """Array and on-chip cycles, cores held, and energy beyond that on one core of ``_memory``.

        Shapes (products, counts, 2), (products, counts) and (products, counts).
        """
        key = tuple(getattr(design, name) for name in _TENSOR_FIELDS)
        found = self._tensor_tables.get(key)
        if found is None and self._products:
            small = replace(design, vector_cores=1, vector_lanes=1, shared_buffer_bytes=1)
            costs = Estimator(small, self.technology, self.mode).costs(self._products, counts)
            base = self._one_core(small).costs(self._products, (1,))
            found = (
                costs.parts[:, :, :2],
                costs.splits.prod(axis=2),
                costs.energy_j - base.energy_j,
            )
        elif found is None:
            found = (np.zeros((0, len(counts), 2), np.int64),) * 2 + (np.zeros((0, len(counts))),)
        return self._tensor_tables.setdefault(key, found)

    def _memory(self, design: Accelerator) -> tuple[_Ints, _Floats]:
        """Memory cycles and energy of all operators on one small core, shape (operators,)."""
        key = tuple(getattr(design, name) for name in _MEMORY_FIELDS)
        found = self._memory_tables.get(key)
        if found is None:
            costs = self._one_core(design).costs(self.workload.operators, (1,))
            found = costs.parts[:, 0, 3], costs.energy_j[:, 0]
            self._memory_tables[key] = found
        return found

    def _one_core(self, design: Accelerator) -> Estimator:
        """An estimator of what neither arrays nor lanes change."""
        small = replace(
            design,
            tensor_cores=1,
            tensor_rows=1,
            tensor_columns=1,
            core_buffer_bytes=1024,
            vector_cores=1,
            vector_lanes=1,
        )
        return Estimator(small, self.technology, self.mode)

    def _vector(self, lanes: int, cores: int) -> _Ints:
        """Lane cycles on each count of vector cores, shape (operators, counts)."""
        found = self._vector_tables.get((lanes, cores))
        if found is None:
            counts = np.array(_counts(cores), dtype=np.int64)
            index, elements, each = self._work.T
            cycles = -(-elements[:, None] // (lanes * counts)[None, :]) * each[:, None]
            found = np.zeros((len(self.workload.operators), len(counts)), dtype=np.int64)
            np.add.at(found, index, cycles)
            self._vector_tables[lanes, cores] = found
        return found


def _counts(most: int) -> tuple[int, ...]:
    """The core counts that an operator is tried on."""
    return tuple(sorted({*parts(most), most}))
