"""Cycles, bytes and energy of operators on a design.

Start reading at ``Estimator.cost``.  Arrays, on-chip buffer, vector lanes and memory work at the
same time, so the slowest of them is the time of an operator.  Repeated layers are costed once: the
memo is keyed by ``Operator.signature``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..accelerator import Accelerator
from ..graph.operator import DTYPE_BYTES, Operator
from .cost import Cost, Costs
from .split import splits
from .systolic import ceil_div, check_mode, gemm_cycles
from .technology import Technology, technology
from .traffic import gemm_traffic
from .vector import lane_cycles, vector_cycles

_Array = npt.NDArray[Any]
#: elements of the (operators x splits) tables that are made at once: some ten MB each
_CHUNK = 1 << 20


class Estimator:
    """Costs operators on one design.

    ``tech`` is a preset's name, a TOML file or a ``Technology``; ``mode`` is one of
    ``systolic.MODES``.  An operator on ``cores`` takes up to that many tensor cores and, for the
    vector operators in it, up to that many vector cores; the design's counts are the most.

    Operands wider than the design's dtype take as many passes as they are wider, as TF32 takes two
    on a float16 tensor core; narrower ones are no faster.  The batch of a product runs through an
    array without a pause except in mode ``serial``.  What one operator leaves in the buffer is not
    there for the next: every operator reads its operands from memory.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        tech: str | Technology = "7nm-macro",
        mode: str = "pipelined",
    ) -> None:
        check_mode(mode)
        self.accelerator = accelerator
        self.technology = technology(tech)
        self.mode = mode
        self._memo: dict[tuple[object, int], Cost] = {}

    def cost(self, operator: Operator, cores: int = 1) -> Cost:
        """The cost of ``operator`` on at most ``cores`` cores of each type; memoised.

        Raises ``InputError`` when ``cores`` is below 1.
        """
        key = (operator.signature, cores)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._evaluate([operator], (cores,)).at(0)
        return found

    def costs(self, operators: Sequence[Operator], core_counts: Sequence[int] = (1,)) -> Costs:
        """The costs of all operators on all core counts; equal operators are evaluated once.

        Raises ``InputError`` when a count is below 1.
        """
        rows: dict[object, int] = {}
        distinct: list[Operator] = []
        taken = []
        for operator in operators:
            row = rows.setdefault(operator.signature, len(distinct))
            if row == len(distinct):
                distinct.append(operator)
            taken.append(row)
        return self._evaluate(distinct, tuple(core_counts)).take(np.array(taken, dtype=np.int64))

    def _evaluate(self, operators: Sequence[Operator], counts: tuple[int, ...]) -> Costs:
        if not counts or min(counts) < 1:
            raise InputError(f"expected core counts of at least 1, got {counts}")
        design = self.accelerator
        tensor = _Tensor(design, self.mode, operators, counts)
        shape = (len(operators), len(counts))
        parts = np.zeros((*shape, 4), dtype=np.int64)
        parts[:, :, 0], parts[:, :, 1] = tensor.cycles, tensor.on_chip_cycles
        for column, count in enumerate(counts):
            cores = min(count, design.vector_cores)
            parts[:, column, 2] = [
                vector_cycles(op.vector_work, design.vector_lanes, cores) for op in operators
            ]
        moved = tensor.memory_bytes
        parts[:, :, 3] = np.ceil(moved * design.frequency_hz / design.memory_bytes_s)[:, None]
        return Costs(
            counts,
            design.frequency_hz,
            cycles=parts.max(axis=2),
            bytes=np.repeat(moved[:, None], len(counts), axis=1).astype(np.int64),
            energy_j=self._energy_j(operators, moved, tensor.on_chip_bytes),
            parts=parts,
            splits=tensor.splits,
        )

    def _energy_j(self, operators: Sequence[Operator], moved: _Array, on_chip: _Array) -> _Array:
        """Dynamic energy, shape (operators, counts); padding of the arrays costs none."""
        tech = self.technology
        units = np.array([op.gemm.macs if op.gemm else 0 for op in operators], dtype=np.float64)
        units *= _passes(operators, self.accelerator)
        lanes = np.array([lane_cycles(op.vector_work) for op in operators], dtype=np.float64)
        fixed = units * tech.mac_pj + lanes * tech.vector_op_pj + moved * tech.memory_pj_per_byte
        # what comes from memory passes the buffer once, what goes to the cores once more
        through = (moved[:, None] + on_chip) * tech.sram_pj_per_byte
        return np.asarray((fixed[:, None] + through) * 1e-12)


class _Tensor:
    """The matrix products of some operators, each split in its best way for every core count.

    ``cycles``, ``on_chip_cycles`` and ``on_chip_bytes`` have shape (operators, counts) and are 0
    for operators without a product; ``memory_bytes`` has shape (operators,).
    """

    def __init__(
        self, design: Accelerator, mode: str, operators: Sequence[Operator], counts: tuple[int, ...]
    ) -> None:
        self._design, self._mode = design, mode
        shape = (len(operators), len(counts))
        self.cycles = np.zeros(shape, dtype=np.int64)
        self.on_chip_cycles = np.zeros(shape, dtype=np.int64)
        self.on_chip_bytes = np.zeros(shape, dtype=np.float64)
        self.splits = np.ones((*shape, 3), dtype=np.int64)
        self.memory_bytes = np.array([op.total_bytes for op in operators], dtype=np.float64)
        rows = np.array([i for i, op in enumerate(operators) if op.gemm], dtype=np.int64)
        if not len(rows):
            return
        usable = [min(count, design.tensor_cores) for count in counts]
        ways = splits(max(usable))
        # for each count, the splits of at most that many cores are the first so many
        ends = np.searchsorted(ways.prod(axis=1), usable, side="right")
        step = max(1, _CHUNK // len(ways))
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step]
            self._choose(chunk, [operators[i] for i in chunk], ways, ends)

    def _choose(self, rows: _Array, operators: list[Operator], ways: _Array, ends: _Array) -> None:
        products = _Products(operators)
        design = self._design
        traffic = products.traffic(design.shared_buffer_bytes)
        self.memory_bytes[rows] += traffic - products.compulsory
        cycles = products.cycles(ways, design, self._mode) * _passes(operators, design)[:, None]
        moved, active = products.on_chip(ways, design.core_buffer_bytes)
        # a core has its share of the on-chip bandwidth, and one core no more than that
        share = design.on_chip_bytes_s / design.tensor_cores * active
        feeding = np.ceil(moved * design.frequency_hz / share).astype(np.int64)
        slower = np.maximum(cycles, feeding)
        index = np.arange(len(operators))
        for column, end in enumerate(ends):
            best = slower[:, :end].argmin(axis=1)
            self.cycles[rows, column] = cycles[index, best]
            self.on_chip_cycles[rows, column] = feeding[index, best]
            self.on_chip_bytes[rows, column] = moved[index, best]
            self.splits[rows, column] = ways[best]


class _Products:
    """Sizes and operand bytes of matrix products as columns of shape (operators, 1)."""

    def __init__(self, operators: list[Operator]) -> None:
        gemms = [op.gemm for op in operators if op.gemm]
        sizes = np.array([(g.batch, g.m, g.n, g.k) for g in gemms], dtype=np.int64)
        self._batch, self._m, self._n, self._k = (sizes[:, i : i + 1] for i in range(4))
        operands = np.array([_operand_bytes(op) for op in operators], dtype=np.float64)
        self._a, self._b, self._c = (operands[:, i : i + 1] for i in range(3))
        self.compulsory: _Array = operands.sum(axis=1)

    def traffic(self, buffer_bytes: int) -> _Array:
        """Bytes between memory and the shared buffer, shape (operators,)."""
        moved = gemm_traffic(self._m, self._n, self._batch, self._a, self._b, self._c, buffer_bytes)
        return np.asarray(moved[:, 0])

    def cycles(self, ways: _Array, design: Accelerator, mode: str) -> _Array:
        """Cycles of the largest part, shape (operators, ways)."""
        batch, m, n = self._parts(ways)
        return gemm_cycles(
            m,
            n,
            self._k,
            rows=design.tensor_rows,
            columns=design.tensor_columns,
            dataflow=design.dataflow,
            mode=mode,
            batch=batch,
        )

    def on_chip(self, ways: _Array, core_buffer_bytes: int) -> tuple[_Array, _Array]:
        """Bytes between the shared buffer and all cores, and cores that work."""
        batch, m, n = self._parts(ways)
        a = self._a * (batch * m) / (self._batch * self._m)
        b = self._b * (batch * n) / (self._batch * self._n)
        c = self._c * (batch * m * n) / (self._batch * self._m * self._n)
        active = ceil_div(self._batch, batch) * ceil_div(self._m, m) * ceil_div(self._n, n)
        return gemm_traffic(m, n, batch, a, b, c, core_buffer_bytes) * active, active

    def _parts(self, ways: _Array) -> tuple[_Array, _Array, _Array]:
        whole = (self._batch, self._m, self._n)
        batch, m, n = (ceil_div(size, ways[:, i]) for i, size in enumerate(whole))
        return batch, m, n


def _operand_bytes(operator: Operator) -> tuple[float, float, float]:
    """True bytes of A, B and the result of a product.

    The matrix of a convolution is larger than the tensor that it is made from on the fly: where the
    operands as matrices are more than the operator reads, the larger matrix is that one.
    """
    assert operator.gemm is not None
    gemm, element = operator.gemm, DTYPE_BYTES[operator.dtype]
    a = gemm.batch * gemm.m * gemm.k * element
    b = gemm.batch * gemm.k * gemm.n * element
    read = operator.read_bytes + operator.weight_bytes
    if a + b > read:
        a, b = (max(read - b, 0), min(b, read)) if a >= b else (min(a, read), max(read - a, 0))
    return a, b, min(gemm.batch * gemm.m * gemm.n * element, operator.written_bytes)


def _passes(operators: Sequence[Operator], design: Accelerator) -> npt.NDArray[np.int64]:
    """How often the operands go through the arrays, shape (operators,)."""
    width = design.element_bytes
    return np.array(
        [max(1, int(ceil_div(DTYPE_BYTES[op.dtype], width))) for op in operators], dtype=np.int64
    )
