"""``tune`` and ``predict``: a module in, a TVM database out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...errors import EmptySpaceError, InputError
from ...measure import Measurer, available_cores, device_name, host_target
from ...records import STORE_NAME, SQLiteStore
from ...search import LearningScorer, TunerOptions, UniformScorer
from ..compat import compiler_version
from .database import PREDICTED_S, TaskCoverage, TunedDatabase, commit
from .limits import complete_target, is_gpu
from .module import module_tasks
from .pretrained import load_predictor
from .proposer import Proposer
from .session import Progress, Session, SessionOptions, TaskState, reproduce, tuning_record
from .task import TuningTask
from .winners import Winner, decide

METHODS = ("ours", "random")


def tune(
    mod: Any,
    target: Any = None,
    *,
    work_dir: str | os.PathLike[str],
    trials: int = 64,
    seed: int = 0,
    jobs: int | None = None,
    params: Mapping[str, Any] | None = None,
    method: str = "ours",
    weights: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any:
    """Measure schedules for every task of ``mod`` and return the best as a TVM database.

    Args:
        mod: a PrimFunc, a TIR module or a Relax module.
        target: a ``tvm.target.Target`` or what it takes (default: this machine's CPU).
        work_dir: holds ``records.sqlite``; the same call on the same folder resumes.
        trials: measured candidates in all, over all tasks and earlier runs.  The untuned schedule
            of each task is measured first and not counted.
        seed: of the search and of the inputs.
        jobs: CPU threads of builds and of timed runs (default: the cores of this process).
        params: a Relax module's parameters by name, bound before tuning.
        method: ``ours``, or ``random`` for the baseline of comparisons.
        weights: a predictor's safetensors file (default: what ships with the package, if any).
        progress: called after every outcome.

    Returns a ``TunedDatabase``; its ``coverage`` says what became of each task.  Raises
    ``TunerError`` subclasses for what the user can mend.
    """
    _check(trials, jobs, method)
    target = _target(target, jobs)
    scorer: LearningScorer
    if method == "random":
        scorer, options = UniformScorer(), TunerOptions(pool=1)
    else:
        scorer, options = load_predictor(weights, seed), TunerOptions()
    device = str(target.kind.name) if is_gpu(target) else "cpu"
    folder = _folder(work_dir)
    with (
        SQLiteStore(folder / STORE_NAME) as store,
        Measurer(jobs=jobs, device=device, seed=seed) as measurer,
    ):
        if store.count(method=method) < trials:
            measurer.start()  # its workers import TVM while the design spaces are made
        found = module_tasks(mod, target, params)
        store.start_run(_run_info(target, seed, trials, method, jobs, found.tasks))
        name = device_name(jobs) if device == "cpu" else f"{device} on {device_name(jobs)}"
        session = Session(
            found.tasks,
            store,
            measurer,
            scorer,
            SessionOptions(trials, seed, method, name, options),
            progress,
        )
        session.run()
        ends = [(state, decide(state, store, measurer, seed)) for state in session.states]
    return _database(ends, found.skipped)


def predict(
    mod: Any,
    target: Any = None,
    *,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Any:
    """A schedule for every task of ``mod`` without any measurement, as a TVM database.

    Arguments as for ``tune``.  The records' run time is a placeholder.
    """
    target = _target(target, None)
    found = module_tasks(mod, target, params)
    predictor = load_predictor(weights, seed)
    coverage: list[TaskCoverage] = []
    records = []
    for task in found.tasks:
        proposer = Proposer(task, predictor, seed)
        try:
            proposals = proposer.predict()
        except EmptySpaceError as error:
            coverage.append(
                TaskCoverage(task.name, task.operator, task.weight, "untuned", str(error))
            )
            continue
        if not proposals:
            reason = f"TVM refused all {proposer.verdicts['illegal']} candidates"
            coverage.append(TaskCoverage(task.name, task.operator, task.weight, "untuned", reason))
            continue
        records.append(tuning_record(task, proposals[0].schedule, [PREDICTED_S]))
        coverage.append(TaskCoverage(task.name, task.operator, task.weight, "predicted"))
    database = TunedDatabase([*coverage, *found.skipped])
    for record in records:
        commit(database, record)
    return database


def _check(trials: int, jobs: int | None, method: str) -> None:
    if trials < 0:
        raise InputError(f"expected trials of at least 0, got {trials}")
    if jobs is not None and jobs < 1:
        raise InputError(f"expected jobs of at least 1, got {jobs}")
    if method not in METHODS:
        raise InputError(f"expected a method of {', '.join(METHODS)}, got {method!r}")


def _target(target: Any, jobs: int | None) -> Any:
    return complete_target(host_target(jobs) if target is None else target)


def _folder(work_dir: str | os.PathLike[str]) -> Path:
    folder = Path(work_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"expected a folder to keep records in, got {str(work_dir)!r}: {error.strerror}"
        ) from error
    return folder


def _run_info(
    target: Any, seed: int, trials: int, method: str, jobs: int | None, tasks: Sequence[TuningTask]
) -> dict[str, str]:
    """What the store keeps of a run, for reports."""
    return {
        "target": str(target),
        "seed": str(seed),
        "trials": str(trials),
        "method": method,
        "jobs": str(jobs or available_cores()),
        "weights": json.dumps({task.workload_key: task.weight for task in tasks}),
        "compiler": compiler_version(),
        "torch": version("torch"),
    }


def _database(ends: list[tuple[TaskState, Winner]], skipped: tuple[TaskCoverage, ...]) -> Any:
    coverage = [_coverage(state, winner) for state, winner in ends]
    database = TunedDatabase([*coverage, *skipped])
    for state, winner in ends:
        if winner.values is not None and winner.outcome is not None:
            commit(database, reproduce(state, winner.values, winner.outcome))
    return database


def _coverage(state: TaskState, winner: Winner) -> TaskCoverage:
    best = winner.outcome.latency_s if winner.outcome else winner.untuned_s
    return TaskCoverage(
        state.task.name,
        state.task.operator,
        state.task.weight,
        "untuned" if winner.values is None else "tuned",
        winner.reason,
        winner.untuned_s,
        best,
        state.trials,
    )
