"""Traces that an older MetaSchedule recorded, as candidates of today's design spaces.

TVM's schedule instructions kept their meaning from 0.8 to today; some were renamed or got an
argument more.  What differs in the design spaces is what a choice may choose from: the GPU space
ends its unrolling at other steps.  A choice is therefore matched by the value it stood for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...errors import RecordError
from ...space import Prefix
from ..compat import ScheduleError, Trace, new_schedule, plain
from .task import TuningTask
from .trace_space import TraceSpace

#: where TVM's postprocessors began: they run anew
_POSTPROC = "EnterPostproc"
_RENAMED = {"GetBlock": "GetSBlock"}
#: arguments that came later, with the value that means what was done before
_LATER_ATTRIBUTES: dict[str, tuple[Any, ...]] = {"Split": (True, False), "Fuse": (True,)}
_CHANGING = re.compile(r"(, decision=.*\)$)|(candidates=\[[^]]*\], probs=\[[^]]*\])")

NOT_ITS_WORKLOAD = "its trace does not apply to its workload"
OTHER_SPACE = (
    "its schedule lies outside of today's design space (hand-written, mutated, or of other rules)"
)


def candidate_of(task: TuningTask, insts: Sequence[Any], decisions: Sequence[Any]) -> Prefix:
    """The candidate of a task that a recorded trace stands for.

    ``insts`` and ``decisions`` are the two lists of a trace in TVM's JSON.  Raises ``RecordError``
    with the reason when it is none.
    """
    schedule = new_schedule(task.mod)
    try:
        Trace.apply_json_to_schedule(_todays(insts, decisions), schedule)
        trace = schedule.trace.simplified(True)
    except (ScheduleError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise RecordError(NOT_ITS_WORKLOAD) from error
    values = task.values_of(trace) or _by_value(task, trace)
    if values is None:
        raise RecordError(OTHER_SPACE)
    if not task.space.contains(values):
        raise RecordError(_refusal(task, values))
    return values


def _refusal(task: TuningTask, values: Prefix) -> str:
    refused: Counter[str] = Counter()
    task.space.allows(values, refused)
    limit = next(iter(refused), "domain")
    return f"today's limits of its target refuse the candidate ({limit})"


def _todays(insts: Sequence[Any], decisions: Sequence[Any]) -> list[list[Any]]:
    """The trace up to its postprocessing, in today's names."""
    kinds = [str(inst[0]) for inst in insts]
    end = kinds.index(_POSTPROC) if _POSTPROC in kinds else len(kinds)
    made = []
    for kind, inputs, attributes, outputs in insts[:end]:
        later = _LATER_ATTRIBUTES.get(kind, ())
        if later:  # TVM 0.16 wrote these truth values as 0 and 1
            attributes = [*map(bool, attributes), *later[len(attributes) :]]
        inputs = [None if name == "None" else name for name in inputs]
        made.append([_RENAMED.get(kind, kind), inputs, attributes, outputs])
    return [made, [[i, decision] for i, decision in decisions if i < end]]


def _by_value(task: TuningTask, trace: Any) -> Prefix | None:
    """The candidate of a trace that equals a sketch but for what its choices choose from."""
    shape = _shape(trace)
    for index, sketch in enumerate(task.sketches):
        if _shape(sketch.trace) == shape:
            decided = _with_values(sketch, trace)
            values = None if decided is None else sketch.from_trace(decided)
            if values is not None:
                return (index, *values)
    return None


def _shape(trace: Any) -> list[str]:
    return [_CHANGING.sub("", str(line)) for line in trace.as_python()]


def _with_values(sketch: TraceSpace, trace: Any) -> Any:
    """The sketch with the trace's decisions; ``None`` where a chosen value exists no more."""
    decisions = {}
    for old, new in zip(trace.insts, sketch.trace.insts, strict=True):
        if new not in sketch.trace.decisions:
            continue
        decision = trace.decisions[old]
        if new.kind.name == "SampleCategorical":
            before, now = (list(plain(inst.attrs[0])) for inst in (old, new))
            chosen = before[int(plain(decision))]
            if chosen not in now:
                return None
            decision = now.index(chosen)
        decisions[new] = decision
    return Trace(sketch.trace.insts, decisions)
