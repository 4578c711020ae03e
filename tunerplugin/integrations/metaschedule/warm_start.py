"""Starting a search from what another TVM measured of the same workload.

Imported times are another compiler's and another machine's, so they never count as measurements of
this one: the predictor learns from how they rank, and the fastest are measured here first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...errors import SpaceError
from ...records import IMPORTED, RecordStore, TaskKey
from ...search import History
from ...space import Prefix
from .task import TuningTask

#: the fastest imported candidates of a task that are measured before any other
SEEDS = 4


def imported_histories(store: RecordStore, task: TuningTask, key: TaskKey) -> Iterator[History]:
    """The imported measurements of a task, one history for each machine and compiler.

    ``key`` is the task's own.  Only records of the same workload, kind of target and design space
    count: anywhere else the same values mean another schedule.
    """
    for other in store.tasks():
        same = (other.workload, other.space) == (key.workload, key.space)
        if not same or _kind(other) != _kind(key):
            continue
        history = History(task.problem, task.space)
        for record in store.records(other, IMPORTED):
            try:
                history.tell(record.values, record.outcome)
            except SpaceError:
                continue  # this target allows less
        if history.best is not None:
            yield history


def fastest(history: History, count: int = SEEDS) -> list[Prefix]:
    """Candidates of a history, the fastest first."""
    timed = [(o.latency_s, v) for v, o in history.outcomes.items() if o.latency_s is not None]
    return [values for _, values in sorted(timed, key=lambda pair: pair[0])[:count]]


def _kind(key: TaskKey) -> object:
    target = json.loads(key.target)
    return target.get("kind") if isinstance(target, dict) else target
