"""The tuning loop over many tasks: propose, measure, record, learn.

Every outcome is in the record store before the loop looks at the next one; a resumed run first
tells the tuners what the store holds.  Start reading at ``Session.run``.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm

from ...errors import EmptySpaceError, MeasureError
from ...measure import Measurer, MeasureTask, Request
from ...outcome import Outcome
from ...records import IMPORTED, Record, RecordStore, TaskKey
from ...search import LearningScorer, TunerOptions
from ...space import Prefix
from ..compat import ms
from .module import untuned_module
from .proposer import Proposer
from .task import TuningTask
from .warm_start import fastest, imported_histories

#: candidates measured between two updates of the predictor
BATCH = 8
#: failures without one success after which a task is given up
HOPELESS = 16
UNTUNED = "untuned"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Where a run stands.  Times are sums over the weighted tasks, in seconds, once known."""

    done: int
    total: int
    task: str
    best_s: float | None
    untuned_s: float | None
    elapsed_s: float


@dataclass
class TaskState:
    """One task within a session."""

    task: TuningTask
    key: TaskKey
    proposer: Proposer
    measure_task: MeasureTask
    #: the module that TVM builds without tuning
    untuned_module: str
    untuned: Outcome | None = None
    trials: int = 0
    #: relative improvement of the best by each batch
    gains: list[float] = field(default_factory=list)
    #: why the task cannot be tuned further, once that is known
    closed: str = ""

    @property
    def best_s(self) -> float | None:
        """The best latency in seconds, the untuned schedule's included."""
        best = self.proposer.tuner.history.best
        times = [o.latency_s for o in (self.untuned, best[1] if best else None) if o is not None]
        return min((t for t in times if t is not None), default=None)


@dataclass(frozen=True)
class SessionOptions:
    """What a run was asked for.  ``trials`` is the total over all tasks, earlier runs included."""

    trials: int
    seed: int
    method: str
    device: str
    tuner: TunerOptions | None = None


class Session:
    """Tunes the tasks of one module with one predictor."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        store: RecordStore,
        measurer: Measurer,
        predictor: LearningScorer,
        options: SessionOptions,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._store, self._measurer, self._predictor = store, measurer, predictor
        self._options, self._progress = options, progress
        self.states = [self._open(task) for task in tasks]
        earlier = [record.elapsed_s for s in self.states for record in store.records(s.key)]
        self._started_s = time.monotonic() - max(earlier, default=0.0)
        self._tell_of_foreign_records()
        if options.method == "ours":
            self._warm_start()
        self._learn()

    def _tell_of_foreign_records(self) -> None:
        ignored: Counter[str] = Counter()
        for state in self.states:
            ignored.update(self._store.ignored(state.key, apart_from=IMPORTED))
        for field_name, count in ignored.items():
            _log.warning("left %d records of another %s alone", count, field_name)

    def _warm_start(self) -> None:
        """Learn from the imported records of these tasks, and try the fastest of them first."""
        for state in self.states:
            for history in imported_histories(self._store, state.task, state.key):
                state.proposer.suggest(fastest(history))
                self._predictor.update(history.examples())
                count = len(history.outcomes)
                _log.info("%s starts from %d imported records", state.task.name, count)

    def _open(self, task: TuningTask) -> TaskState:
        key = task.key(self._options.device)
        self._store.put_workload(task.workload)
        proposer = Proposer(task, self._predictor, self._options.seed, self._options.tuner)
        # the reference is the plain program, which runs on any CPU; candidate 0 is what TVM
        # builds of it for the target
        reference = tvm.ir.save_json(task.mod)
        measure_task = MeasureTask(task.name, reference, task.target_text)
        untuned = untuned_module(task)
        text = reference if untuned is task.mod else tvm.ir.save_json(untuned)
        state = TaskState(task, key, proposer, measure_task, text)
        for record in self._store.records(key, self._options.method):
            state.trials += 1
            proposer.restore(record.values, record.outcome)
        for record in self._store.records(key, UNTUNED):
            state.untuned = record.outcome
        return state

    @property
    def done(self) -> int:
        """Candidates measured so far, earlier runs included."""
        return sum(state.trials for state in self.states)

    def run(self) -> None:
        """Measure until the budget is spent or every task is used up.

        A first round gives every task a few trials, so that none is left without a schedule; from
        then on batches go where they should gain most.
        """
        for state in self.states:
            if state.untuned is None:
                self._measure_untuned(state)
        share = max(1, min(BATCH, self._options.trials // (2 * max(1, len(self.states)))))
        for state in self.states:
            if state.trials == 0 and not state.closed and self.done < self._options.trials:
                self._batch(state, min(share, self._options.trials - self.done))
        while self.done < self._options.trials:
            chosen = self._next()
            if chosen is None:
                return
            self._batch(chosen, min(BATCH, self._options.trials - self.done))

    def _next(self) -> TaskState | None:
        """The task where the next batch should gain most.

        Its share of the module's time, divided by the trials it had already, times how much its
        last batches still gained: a task is left once it stops improving.
        """
        open_ = [state for state in self.states if not state.closed]
        return max(open_, key=_promise, default=None)

    def _measure_untuned(self, state: TaskState) -> None:
        request = Request(0, state.untuned_module)
        try:
            for _, outcome in self._measurer.measure(state.measure_task, [request]):
                self._record(state, (), outcome, UNTUNED, 0)
                state.untuned = outcome
        except MeasureError as error:
            state.closed = str(error)
        self._report(state)

    def _batch(self, state: TaskState, size: int) -> None:
        try:
            proposals = state.proposer.propose(size)
        except EmptySpaceError as error:
            state.closed = str(error)
            return
        if not proposals:
            state.closed = "every candidate of its design space was measured"
            return
        before = state.best_s
        requests = [Request(i, tvm.ir.save_json(p.schedule.mod)) for i, p in enumerate(proposals)]
        try:
            for index, outcome in self._measurer.measure(state.measure_task, requests):
                proposal = proposals[index]
                method = self._options.method
                self._record(state, proposal.values, outcome, method, state.trials)
                state.trials += 1
                state.proposer.tuner.tell(proposal.values, outcome)
                self._report(state)
        except MeasureError as error:
            state.closed = str(error)
            return
        after = state.best_s
        state.gains.append(1 - after / before if before and after else 0.0)
        self._give_up_if_hopeless(state)
        self._learn()

    def _give_up_if_hopeless(self, state: TaskState) -> None:
        """Close a task of which nothing at all works: the fault is not the candidates'."""
        outcomes = [o for o in state.proposer.tuner.history.outcomes.values() if o.measured]
        if len(outcomes) >= HOPELESS and not any(outcome.ok for outcome in outcomes):
            last = outcomes[-1]
            state.closed = f"all {len(outcomes)} candidates failed: {last.status}: {last.reason}"

    def _record(
        self,
        state: TaskState,
        values: Prefix,
        outcome: Outcome,
        method: str,
        trial: int,
    ) -> None:
        elapsed = time.monotonic() - self._started_s
        seed = self._options.seed
        self._store.append(Record(state.key, values, outcome, method, seed, trial, elapsed))

    def _learn(self) -> None:
        examples = [e for state in self.states for e in state.proposer.tuner.history.examples()]
        if examples:
            self._predictor.update(examples)

    def _report(self, state: TaskState) -> None:
        if self._progress is None:
            return
        self._progress(
            Progress(
                self.done,
                self._options.trials,
                state.task.name,
                weighted_sum(self.states, lambda s: s.best_s),
                weighted_sum(self.states, lambda s: s.untuned.latency_s if s.untuned else None),
                time.monotonic() - self._started_s,
            )
        )


def weighted_sum(
    states: Sequence[TaskState], seconds: Callable[[TaskState], float | None]
) -> float | None:
    """Time of one call of the module in these tasks; ``None`` while a task's is unknown."""
    total = 0.0
    for state in states:
        value = seconds(state)
        if value is None and state.closed:
            continue
        if value is None:
            return None
        total += state.task.weight * value
    return total


def _promise(state: TaskState) -> float:
    recent = state.gains[-2:]
    improving = 0.1 + (sum(recent) / len(recent) if recent else 1.0)
    seconds = state.best_s or 1.0
    return state.task.weight * seconds * improving / (state.trials / BATCH + 1)


def tuning_record(task: TuningTask, schedule: Any, run_secs: list[float]) -> Any:
    """A MetaSchedule tuning record of a schedule of the task's workload."""
    workload = ms.database.Workload(task.mod)
    arguments = ms.arg_info.ArgInfo.from_entry_func(task.mod, remove_preproc=True)
    return ms.database.TuningRecord(schedule.trace, workload, run_secs, task.target, arguments)


def reproduce(state: TaskState, values: Prefix, outcome: Outcome) -> Any:
    """The tuning record of a candidate that was measured earlier."""
    scheduled = state.task.schedule(values)
    return tuning_record(state.task, scheduled.schedule, list(outcome.samples_s))
