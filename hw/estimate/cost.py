"""What the estimator answers: the cost of one operator on some cores of one design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .split import Split

#: what can bound an operator, in the order of the columns of ``Costs.parts``
LIMITS = ("tensor", "on_chip", "vector", "memory")


@dataclass(frozen=True)
class Cost:
    """The cost of one operator.

    ``cycles`` is the longest of the four that overlap: the arrays, the on-chip buffer that feeds
    them, the vector lanes and the memory.  ``bytes`` are those to and from memory.  ``energy_j`` is
    dynamic: static power goes with the time of the whole chip (``design.power``).
    """

    cycles: int
    seconds: float
    bytes: int
    energy_j: float
    limited_by: str
    tensor_cycles: int
    on_chip_cycles: int
    vector_cycles: int
    memory_cycles: int
    #: how a matrix operator is divided; one part otherwise
    split: Split


@dataclass(frozen=True)
class Costs:
    """The costs of operators (axis 0) on core counts (axis 1), as arrays.

    ``parts`` has a third axis in the order of ``LIMITS``; ``splits`` one of (batch, m, n).
    """

    core_counts: tuple[int, ...]
    frequency_hz: float
    cycles: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    energy_j: npt.NDArray[np.float64]
    parts: npt.NDArray[np.int64]
    splits: npt.NDArray[np.int64]

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Time of each operator on each core count."""
        return np.asarray(self.cycles / self.frequency_hz)

    @property
    def limited_by(self) -> npt.NDArray[np.int64]:
        """Index into ``LIMITS`` of what bounds each."""
        return np.asarray(self.parts.argmax(axis=2))

    def __len__(self) -> int:
        return len(self.cycles)

    def at(self, operator: int, count: int = 0) -> Cost:
        """The cost of one operator (index) on one of the core counts (index)."""
        parts = self.parts[operator, count]
        tensor, on_chip, vector, memory = (int(part) for part in parts)
        cycles = int(self.cycles[operator, count])
        return Cost(
            cycles=cycles,
            seconds=cycles / self.frequency_hz,
            bytes=int(self.bytes[operator, count]),
            energy_j=float(self.energy_j[operator, count]),
            limited_by=LIMITS[int(parts.argmax())],
            tensor_cycles=tensor,
            on_chip_cycles=on_chip,
            vector_cycles=vector,
            memory_cycles=memory,
            split=Split(*(int(part) for part in self.splits[operator, count])),
        )

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> Costs:
        """The costs with these operators as rows; an operator may be taken several times."""
        return Costs(
            self.core_counts,
            self.frequency_hz,
            self.cycles[rows],
            self.bytes[rows],
            self.energy_j[rows],
            self.parts[rows],
            self.splits[rows],
        )

    def __iter__(self) -> Iterator[list[Cost]]:
        for row in range(len(self)):
            yield [self.at(row, column) for column in range(len(self.core_counts))]
