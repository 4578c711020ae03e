"""How many recorded tuples the spaces hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import InputError
from .records import PerfRecord
from .solvers import space_of


@dataclass
class Coverage:
    """Counts of records: all, inside the space, and of problems that the solver cannot compute."""

    total: int = 0
    held: int = 0
    unsuitable: int = 0

    @property
    def share(self) -> float:
        """The share of the records that the space holds, 0 to 1."""
        return self.held / self.total if self.total else 0.0


def coverage(records: Iterable[PerfRecord], full: bool = True) -> dict[tuple[str, str], Coverage]:
    """By (solver, database), what share of the recorded tuples the spaces hold.

    ``full`` as in ``space_of``.  Tuples that were tuned under older rules of MIOpen fall outside.
    """
    counts: dict[tuple[str, str], Coverage] = {}
    for record in records:
        count = counts.setdefault((record.solver, record.source), Coverage())
        count.total += 1
        try:
            space = space_of(record.solver, record.problem, full, record.device)
        except InputError:
            count.unsuitable += 1
            continue
        count.held += space.contains(record.values)
    return counts
