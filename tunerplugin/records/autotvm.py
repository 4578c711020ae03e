"""AutoTVM logs, as ``autotvm.callback.log_to_file`` writes them: read, kept whole, written again.

A line of format 0.2 is ``{"input": [target, task, args, kwargs], "config": {"index", "code_hash",
"entity": [[knob, kind, value], ...]}, "result": [costs in s, error, seconds in all, timestamp],
"version", "tvm_version"}``; format 0.1 (TVM 0.5 and before) has the same under shorter names.  An
AutoTVM schedule lives in a template of Relay's operators, so a record is of a space of its own.
The line's configuration is kept in ``Record.trace`` and its task in the workload: exported again,
the line is the same, for ``autotvm.apply_history_best`` or ``Seq2SeqTuner.load_history``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import RecordError
from ..outcome import Outcome, Status
from ..space import Value
from .codec import digest, dump, load
from .files import replaced
from .foreign import (
    DAMAGED,
    FAILED_S,
    IMPORTED,
    UNKNOWN_DEVICE,
    ForeignReport,
    batches,
    foreign_outcome,
    is_number,
    numbered_lines,
    parse,
)
from .record import Record, TaskKey, Workload
from .store import RecordStore

#: begins the space version of every record of an AutoTVM template
SPACE_PREFIX = "autotvm-"
#: ``autotvm.measure.MeasureErrorNo`` in our words; 0 is none
STATUS_OF_ERROR = {
    1: Status.ILLEGAL,
    2: Status.COMPILE_ERROR,
    3: Status.COMPILE_ERROR,
    4: Status.RUN_ERROR,
    5: Status.WRONG_RESULT,
    6: Status.TIMEOUT,
    7: Status.TIMEOUT,
    8: Status.RUN_ERROR,
}
_UNKNOWN_ERROR = 8
_KINDS = ("sp", "re", "an", "ot")
_VERSION = 0.2
_OLD_VERSION = 0.1


@dataclass(frozen=True)
class AutoTVMLine:
    """One measurement: the target's text, task and arguments, configuration, result.

    ``entity`` has (knob, kind, value) in order; ``costs_s`` and ``wall_s`` are seconds.
    """

    target: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    config: dict[str, Any]
    entity: tuple[tuple[str, str, Any], ...]
    result: list[Any]
    tvm_version: str

    @property
    def outcome(self) -> Outcome:
        """What became of the candidate.  Raises ``RecordError`` for a result that is none."""
        costs, error, wall = self.result[:3]
        if type(error) is not int or not is_number(wall):
            raise RecordError(DAMAGED)
        wall_s = float(wall) if 0 <= wall < FAILED_S else 0.0
        if error == 0:
            return foreign_outcome(costs, wall_s)
        status = STATUS_OF_ERROR.get(error, Status.RUN_ERROR)
        return Outcome(status, (), f"AutoTVM's error {error}", wall_s)


def read_line(line: bytes) -> AutoTVMLine:
    """One line of a log.  Raises ``RecordError`` with the reason why it is none."""
    if line.count(b"\t") in (3, 5) and not line.lstrip().startswith(b"{"):
        raise RecordError("the line is pickled, which runs code when read: log with protocol json")
    row = parse(line)
    try:
        if row.get("v") == _OLD_VERSION:
            *given, _, old = row["i"]
            config = {"index": old["i"], "code_hash": old["c"], "entity": old["e"]}
            result, tvm_version = row["r"], None
        else:
            given, config, result = row["input"], row["config"], row["result"]
            tvm_version = row.get("tvm_version")
        target, task, args, kwargs = given
        entity = tuple((name, kind, value) for name, kind, value in config["entity"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(DAMAGED) from error
    texts = (target, task, *(name for name, _, _ in entity))
    if not (
        all(isinstance(text, str) for text in texts)
        and all(kind in _KINDS for _, kind, _ in entity)
        and isinstance(args, list)
        and isinstance(kwargs, dict)
        and isinstance(result, list)
        and len(result) >= 3
    ):
        raise RecordError(DAMAGED)
    version = tvm_version if isinstance(tvm_version, str) else "unknown"
    return AutoTVMLine(target, task, args, kwargs, config, entity, result, version)


def import_autotvm(
    path: str | PathLike[str], store: RecordStore, device: str = UNKNOWN_DEVICE
) -> ForeignReport:
    """Add the measurements of a log (packed or not) to a store; nothing is added twice.

    ``device`` is the machine that measured, which the log does not say.  Raises ``InputError``
    when the file cannot be read.
    """
    report = ForeignReport()
    for batch in batches(_read(Path(path), store, device, report.left_out)):
        report.take(store, batch)
    return report


def export_autotvm(store: RecordStore, path: str | PathLike[str]) -> int:
    """Write every record that came from an AutoTVM log as such a log; returns how many.

    The file appears whole or not at all.  Raises ``RecordError`` when there are none.
    """
    modules = {workload.key: workload.module for workload in store.workloads()}
    lines = [
        dump(_line_of(record, load(modules[record.key.workload])))
        for record in store.records(method=IMPORTED)
        if is_autotvm(record.key)
    ]
    if not lines:
        raise RecordError(
            "expected records of an AutoTVM log to export, got none: import one first"
        )
    with replaced(Path(path)) as file:
        file.writelines(f"{line}\n" for line in lines)
    return len(lines)


def is_autotvm(key: TaskKey) -> bool:
    """Whether records of this key are of an AutoTVM template."""
    return key.space.startswith(SPACE_PREFIX)


def knob_names(record: Record) -> list[str]:
    """A name for each value of an imported record: the knob, numbered where it has several."""
    entity = load(record.trace)["config"]["entity"]
    named: list[str] = []
    for name, _, value in entity:
        count = len(_values(value))
        named += [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
    return named


def _read(path: Path, store: RecordStore, device: str, left_out: Counter[str]) -> Iterator[Record]:
    trials: Counter[TaskKey] = Counter()
    for _, text in numbered_lines(path, left_out):
        if not text.strip() or text.startswith(b"#"):
            continue
        try:
            line = read_line(text)
            key, outcome = _key(line, device), line.outcome
            record = _record(line, key, outcome, trials[key])
        except RecordError as error:
            left_out[str(error)] += 1
            continue
        trials[key] += 1
        store.put_workload(_workload(line, key))
        yield record


def _key(line: AutoTVMLine, device: str) -> TaskKey:
    try:
        workload = digest(line.task, dump(line.args), dump(line.kwargs)).hex()[:16]
        knobs = [(name, kind, len(_values(value))) for name, kind, value in line.entity]
        space = digest(line.task, dump([line.config.get("code_hash"), knobs])).hex()[:16]
    except ValueError as error:
        raise RecordError(DAMAGED) from error
    compiler = f"tvm-{line.tvm_version}"
    return TaskKey(workload, dump(line.target), device, compiler, SPACE_PREFIX + space)


def _record(line: AutoTVMLine, key: TaskKey, outcome: Outcome, trial: int) -> Record:
    values = tuple(v for _, _, value in line.entity for v in _values(value))
    result = line.result
    if outcome.status is Status.NON_FINITE:  # no JSON has such a number
        result = [[FAILED_S], _UNKNOWN_ERROR, 0.0, 0.0]
    try:
        trace = dump({"config": line.config, "result": result})
    except ValueError as error:
        raise RecordError(DAMAGED) from error
    return Record(key, values, outcome, IMPORTED, 0, trial, 0.0, trace)


def _workload(line: AutoTVMLine, key: TaskKey) -> Workload:
    module = dump({"task": line.task, "args": line.args, "kwargs": line.kwargs})
    return Workload(key.workload, line.task, module)


def _line_of(record: Record, module: dict[str, Any]) -> dict[str, Any]:
    version = record.key.compiler.removeprefix("tvm-")
    return {
        "input": [load(record.key.target), module["task"], module["args"], module["kwargs"]],
        **load(record.trace),
        "version": _VERSION,
        "tvm_version": version,
    }


def _values(value: Any) -> tuple[Value, ...]:
    """A knob's value as values of ours: lists item by item, the rest as number or text."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_plain(item) for item in value)
    return (_plain(value),)


def _plain(value: Any) -> Value:
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, (float, str)):
        return value
    return dump(value)
