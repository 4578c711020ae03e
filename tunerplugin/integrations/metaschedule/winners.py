"""After the search: which schedule of each task wins.

The few fastest candidates and the untuned schedule are timed once more, in alternation in one
process; a candidate wins only if it beats the untuned schedule there by more than the noise, and if
its outputs equal the untuned ones on several seeds.  So a tuned module is never slower than the
untuned one because of a lucky measurement, and never wrong because of one unlucky input.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import tvm

from ...errors import MeasureError
from ...measure import Measurer
from ...outcome import Outcome
from ...records import Record, RecordStore
from ...space import Prefix
from .session import TaskState
from .task import IllegalCandidate

FINAL = "final"
FINALISTS = 3
ROUNDS = 5
VERIFY_SEEDS = (101, 102, 103)
#: a smaller gain than this is noise even if the samples happen to agree
LEAST_GAIN = 0.02


@dataclass(frozen=True)
class Winner:
    """The end of one task: ``values`` is ``None`` when the untuned schedule stays."""

    values: Prefix | None
    outcome: Outcome | None
    untuned_s: float | None
    reason: str = ""


def decide(state: TaskState, store: RecordStore, measurer: Measurer, seed: int) -> Winner:
    """The winner of a task; remembered in the store, so that resuming a finished run is quick."""
    if state.untuned is None:
        return Winner(None, None, None, state.closed or "nothing was measured")
    known = _recall(state, store)
    if known is not None:
        return known
    finalists = _finalists(state)
    if not finalists:
        return Winner(None, None, state.untuned.latency_s, _why_none(state))
    try:
        return _final(state, store, measurer, finalists, seed)
    except MeasureError as error:
        return Winner(None, None, state.untuned.latency_s, str(error))


def _recall(state: TaskState, store: RecordStore) -> Winner | None:
    for record in store.records(state.key, FINAL):
        if record.trial == state.trials:
            info = json.loads(record.trace)
            if not record.values:
                return Winner(None, None, info["untuned_s"], info["reason"])
            return Winner(record.values, record.outcome, info["untuned_s"])
    return None


def _finalists(state: TaskState) -> list[Prefix]:
    outcomes = state.proposer.tuner.history.outcomes
    timed = sorted((o.latency_s, v) for v, o in outcomes.items() if o.latency_s is not None)
    return [values for _, values in timed[:FINALISTS]]


def _why_none(state: TaskState) -> str:
    outcomes = list(state.proposer.tuner.history.outcomes.values())
    failed = [o for o in outcomes if o.measured and not o.ok]
    if state.closed:
        return state.closed
    if failed:
        return f"all {len(failed)} candidates failed, the first: {failed[0].reason}"
    return "no candidate was measured: give more trials"


def _final(
    state: TaskState,
    store: RecordStore,
    measurer: Measurer,
    finalists: list[Prefix],
    seed: int,
) -> Winner:
    modules = [state.untuned_module]
    entered: list[Prefix] = []
    for values in finalists:
        try:
            modules.append(tvm.ir.save_json(state.task.schedule(values).schedule.mod))
        except IllegalCandidate:
            continue
        entered.append(values)
    untuned, *timed = measurer.time_pair(state.measure_task, modules, ROUNDS)
    winner = Winner(None, None, untuned.latency_s, "no candidate beat the untuned schedule")
    ranking = sorted(
        (outcome.latency_s, i) for i, outcome in enumerate(timed) if outcome.latency_s is not None
    )
    for latency, i in ranking:
        if untuned.latency_s is not None and latency > untuned.latency_s * (1 - LEAST_GAIN):
            break
        verdict = measurer.verify(state.measure_task, modules[i + 1], VERIFY_SEEDS)
        if verdict.ok:
            winner = Winner(entered[i], timed[i], untuned.latency_s)
            break
        winner = Winner(None, None, untuned.latency_s, f"the fastest is wrong: {verdict.reason}")
    _remember(state, store, winner, untuned, seed)
    return winner


def _remember(
    state: TaskState, store: RecordStore, winner: Winner, untuned: Outcome, seed: int
) -> None:
    info = json.dumps({"untuned_s": winner.untuned_s, "reason": winner.reason})
    outcome = winner.outcome or untuned
    elapsed = max((r.elapsed_s for r in store.records(state.key)), default=0.0)
    store.append(
        Record(state.key, winner.values or (), outcome, FINAL, seed, state.trials, elapsed, info)
    )
