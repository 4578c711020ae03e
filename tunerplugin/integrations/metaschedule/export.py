"""From a record store to MetaSchedule's JSON database."""

from __future__ import annotations

from pathlib import Path

from ...errors import RecordError
from ...records import RecordStore
from ..compat import ms
from .corpus import MEASURED, recorded_task
from .session import tuning_record
from .task import IllegalCandidate, TuningTask


def export_records(store: RecordStore, directory: Path) -> int:
    """Append every measured candidate of the store to the JSON database in ``directory``.

    Failures are left out: TVM would store them as 1e10 seconds.  So are candidates that no longer
    apply.  Returns the number of records.  Raises ``RecordError`` when there are none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(directory))
    workloads = {workload.key: workload for workload in store.workloads()}
    count = 0
    for key in store.tasks():
        task = recorded_task(key, workloads[key.workload])
        if task is None:
            continue
        committed = database.commit_workload(task.mod)
        for record in store.records(key):
            if record.method in MEASURED and record.outcome.ok:
                count += _export(database, committed, task, record.values, record.outcome.samples_s)
    if not count:
        raise RecordError(
            "expected measured candidates to export, got none that this TVM can use: "
            "run tunerplugin tune first"
        )
    return count


def _export(
    database: ms.database.Database,
    workload: ms.database.Workload,
    task: TuningTask,
    values: tuple[int | float | str, ...],
    samples_s: tuple[float, ...],
) -> bool:
    try:
        schedule = task.schedule(values).schedule
    except IllegalCandidate:
        return False
    record = tuning_record(task, schedule, list(samples_s))
    database.commit_tuning_record(
        ms.database.TuningRecord(
            record.trace, workload, record.run_secs, record.target, record.args_info
        )
    )
    return True
