"""From a record store to MetaSchedule's JSON database."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import RecordError
from ...records import IMPORTED, Record, RecordStore, TaskKey
from ...records import autotvm as autotvm_log
from ..compat import ms
from .corpus import MEASURED, recorded_task
from .database import commit
from .session import tuning_record
from .task import IllegalCandidate, TuningTask


def export_database(store: RecordStore, directory: str | os.PathLike[str]) -> int:
    """Append every measured candidate of the store to the JSON database in ``directory``.

    Failures are left out: TVM would store them as 1e10 seconds.  So are candidates that no longer
    apply.  Imported records, with their own times, stand in for workloads that were not measured
    here: TVM's database does not tell one machine's times from another's.  Returns the number of
    records.  Raises ``RecordError`` when there are none.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(directory))
    workloads = {workload.key: workload for workload in store.workloads()}
    measured = {r.key.workload for r in store.records() if r.method in MEASURED and r.outcome.ok}
    count = 0
    for key in store.tasks():
        imported = key.workload not in measured
        task = recorded_task(key, workloads[key.workload], any_compiler=imported)
        if task is None:
            continue
        methods = {IMPORTED} if imported else MEASURED
        for record in store.records(key):
            if record.method in methods and record.outcome.ok:
                count += _export(database, task, record)
    if not count:
        raise RecordError(
            "expected measured candidates to export, got none that this TVM can use: "
            "run tunerplugin tune first"
        )
    return count


def _export(database: Any, task: TuningTask, record: Record) -> bool:
    try:
        schedule = task.schedule(record.values).schedule
    except IllegalCandidate:
        return False
    commit(database, tuning_record(task, schedule, list(record.outcome.samples_s)))
    return True


def knob_names(store: RecordStore) -> Callable[[Record], Sequence[str]]:
    """A function that names a record's knobs as its design space does.

    Where this TVM would not make that space any more, they are numbered.
    """
    workloads = {workload.key: workload for workload in store.workloads()}
    tasks: dict[TaskKey, TuningTask | None] = {}

    def names(record: Record) -> list[str]:
        key, values = record.key, record.values
        if autotvm_log.is_autotvm(key):
            return autotvm_log.knob_names(record)
        if key not in tasks:
            imported = record.method == IMPORTED
            tasks[key] = recorded_task(key, workloads[key.workload], any_compiler=imported)
        task = tasks[key]
        knobs = [task.space.knob(values[:i]) for i in range(len(values))] if task else []
        return [
            knob.name if knob is not None else f"knob{i}"
            for i, knob in enumerate(knobs or [None] * len(values))
        ]

    return names
