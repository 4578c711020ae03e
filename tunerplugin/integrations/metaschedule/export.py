"""From a record store to MetaSchedule's JSON database."""

from __future__ import annotations

import json
from pathlib import Path

import tvm

from ...errors import RecordError
from ...records import RecordStore
from ..compat import ms


def export_records(store: RecordStore, directory: Path) -> int:
    """Append every measured candidate of the store to the JSON database in ``directory``.

    Failures are left out: TVM would store them as 1e10 seconds.  Returns the number of records.
    Raises ``RecordError`` when the store holds no record that can be exported.
    """
    directory.mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(directory))
    workloads = {workload.key: workload for workload in store.workloads()}
    committed = {}
    count = 0
    for record in store.records():
        if not record.outcome.ok or not record.values or not record.trace.startswith("["):
            continue
        key = record.key.workload
        if key not in committed:
            committed[key] = database.commit_workload(tvm.ir.load_json(workloads[key].module))
        parsed = ms.database.TuningRecord.from_json(json.loads(record.trace), committed[key])
        database.commit_tuning_record(parsed)
        count += 1
    if not count:
        raise RecordError(
            "expected measured candidates to export, got none: run tunerplugin tune first"
        )
    return count
