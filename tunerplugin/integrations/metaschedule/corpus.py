"""From recorded measurements to what the predictor is trained on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import tvm

from ...errors import SpaceError
from ...records import IMPORTED, RecordStore, TaskKey, Workload
from ...records.autotvm import is_autotvm
from ...search import History
from ..compat import compiler_version
from .task import TuningTask, UntunableError

#: methods whose records are candidates of a design space, measured by this TVM
MEASURED = frozenset({"ours", "random"})
#: the same, and those that another TVM measured
TAUGHT_BY = MEASURED | {IMPORTED}


@dataclass
class TrainingCorpus:
    """What was measured of each task, and how many records could not be used, by reason.

    ``History.examples`` turns a task's measurements into training examples.
    """

    histories: dict[TaskKey, History] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


def training_corpus(store: RecordStore) -> TrainingCorpus:
    """Every task of a store with a measured candidate whose design space TVM still generates.

    Tasks and candidates come in the order of the store, so that training is deterministic.
    """
    workloads = {workload.key: workload for workload in store.workloads()}
    corpus = TrainingCorpus()
    for key in store.tasks():
        task = recorded_task(key, workloads[key.workload], store.count(key, IMPORTED) > 0)
        if task is None:
            reason = "of another TVM version, target or design space"
            if is_autotvm(key):
                reason = "of an AutoTVM template, which Seq2SeqTuner.load_history takes"
            corpus.left_out[reason] += store.count(key)
            continue
        history = History(task.problem, task.space)
        for record in store.records(key):
            if record.method not in TAUGHT_BY:
                continue
            try:
                history.tell(record.values, record.outcome)
            except SpaceError:
                corpus.left_out["outside the design space"] += 1
        if history.best is not None:
            corpus.histories[key] = history
    return corpus


def recorded_task(
    key: TaskKey, workload: Workload, any_compiler: bool = False
) -> TuningTask | None:
    """The task that records were made of; ``None`` if this TVM would not make it any more.

    ``any_compiler`` admits records of another TVM with the same design space: its times rank
    candidates, and are not to be compared with this one's.
    """
    if is_autotvm(key) or (key.compiler != compiler_version() and not any_compiler):
        return None
    try:
        target = tvm.target.Target(json.loads(key.target))
        task = TuningTask(workload.name, tvm.ir.load_json(workload.module), target)
    except (UntunableError, ValueError, RuntimeError):
        return None
    return task if task.space.version == key.space else None
