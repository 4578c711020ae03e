"""The database that ``tune`` and ``predict`` return: TVM's own, with a report of coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compat import derived_object, ms

#: run time that stands in a predicted record; TVM only compares it
PREDICTED_S = 1.0


@dataclass(frozen=True)
class TaskCoverage:
    """What became of one task of the module.

    ``status`` is ``tuned`` (a measured schedule beats the untuned one), ``predicted`` (a schedule
    without measurement), ``untuned`` (the untuned schedule stays: nothing better was found) or
    ``skipped`` (no schedule can be searched for); ``reason`` says why for the last two.  Times are
    seconds per call, ``None`` where nothing was measured.  ``weight`` is how often the module calls
    it.
    """

    name: str
    operator: str
    weight: int
    status: str
    reason: str = ""
    untuned_s: float | None = None
    best_s: float | None = None
    trials: int = 0


@derived_object
class TunedDatabase(ms.database.PyDatabase):
    """A MetaSchedule database in memory plus ``coverage``.

    It goes wherever TVM takes a database: ``compile_relax``, ``MetaScheduleApplyDatabase``,
    ``ms.database.UnionDatabase``; ``save`` writes it as TVM's JSON files.
    """

    def __init__(self, coverage: Sequence[TaskCoverage] = ()) -> None:
        super().__init__()
        self._memory = ms.database.MemoryDatabase()
        self.coverage = tuple(coverage)

    def has_workload(self, mod: Any) -> bool:
        """See MetaSchedule's ``Database``."""
        return bool(self._memory.has_workload(mod))

    def commit_workload(self, mod: Any) -> Any:
        """See MetaSchedule's ``Database``."""
        return self._memory.commit_workload(mod)

    def commit_tuning_record(self, record: Any) -> None:
        """See MetaSchedule's ``Database``."""
        self._memory.commit_tuning_record(record)

    def get_top_k(self, workload: Any, top_k: int) -> list[Any]:
        """See MetaSchedule's ``Database``."""
        return list(self._memory.get_top_k(workload, top_k))

    def get_all_tuning_records(self) -> list[Any]:
        """See MetaSchedule's ``Database``."""
        return list(self._memory.get_all_tuning_records())

    def query_tuning_record(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        """See MetaSchedule's ``Database``."""
        return self._memory.query_tuning_record(mod, target, workload_name)

    def query_schedule(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        """See MetaSchedule's ``Database``."""
        return self._memory.query_schedule(mod, target, workload_name)

    def query_ir_module(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        """See MetaSchedule's ``Database``."""
        return self._memory.query_ir_module(mod, target, workload_name)

    def __len__(self) -> int:
        """Number of records."""
        return len(self._memory)

    def save(self, directory: str | Path) -> int:
        """Write a MetaSchedule JSON database; returns the number of records."""
        return copy_records(self._memory, directory)


def copy_records(source: Any, directory: str | Path) -> int:
    """Append every record of a database to the JSON database in ``directory``."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    target = ms.database.JSONDatabase(work_dir=str(path))
    records = list(source.get_all_tuning_records())
    for record in records:
        commit(target, record)
    return len(records)


def commit(database: Any, record: Any) -> None:
    """Add a tuning record, with its workload, to a database that need not know either."""
    workload = database.commit_workload(record.workload.mod)
    database.commit_tuning_record(
        ms.database.TuningRecord(
            record.trace, workload, record.run_secs, record.target, record.args_info
        )
    )
