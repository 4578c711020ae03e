"""MetaSchedule databases of an older TVM, read without one: what still holds becomes records.

A database is two files of JSON lines, ``database_workload.json`` (hash, base64 of a module) and
``database_tuning_record.json`` (line number of the workload; trace, run times, target, arguments).
TVM itself refuses the whole of it for one torn line and dies of a blank one; here a bad line costs
that line.

A record is kept when today's TVM makes the same design space of its workload and target, so that
its values mean the same schedule.  The times stay those of the TVM and machine that measured them,
under a key of their own, and are compared with each other only.  Where TVM measured with weights
packed beforehand (``RewriteLayout``; the arguments then have another shape), the record is left
out: nobody packs them today, and without that the same schedule ranks quite differently.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import tvm

from ...errors import InputError, RecordError, TargetError
from ...records import IMPORTED, UNKNOWN_DEVICE, ForeignReport, Record, RecordStore, TaskKey
from ...records.foreign import (
    DAMAGED,
    batches,
    foreign_outcome,
    is_number,
    numbered_lines,
    parse,
)
from ..compat import RELAY, compiler_version, tirx
from .limits import complete_target
from .old_trace import candidate_of
from .old_workload import rebuild_workload, written_by
from .task import TuningTask, UntunableError

RECORD_FILE = "database_tuning_record.json"
WORKLOAD_FILE = "database_workload.json"
_PACKED = ("", ".xz", ".gz")


#: (dtype, shape) of each
Arguments = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class OldRecord:
    """One line of a database of tuning records.

    ``arguments`` has (dtype, shape) of each tensor that the measured program took.
    """

    workload: int
    insts: Sequence[Any]
    decisions: Sequence[Any]
    seconds: object
    target: dict[str, Any]
    arguments: Arguments


@dataclass
class _Workloads:
    """Modules by line of the workload file, rebuilt when a record first needs them."""

    lines: dict[int, bytes]
    missing: str
    made: dict[int, tuple[Any, str]] = field(default_factory=dict)

    def get(self, index: int) -> tuple[Any, str]:
        """(module, TVM that wrote it).  Raises ``RecordError`` with the reason why not."""
        if index not in self.made:
            if index not in self.lines:
                raise RecordError(self.missing)
            row = parse(self.lines[index])
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
                raise RecordError("its workload's line is damaged")
            self.made[index] = (rebuild_workload(row[1]), f"tvm-{written_by(row[1])}")
        return self.made[index]


def import_database(
    path: str | PathLike[str], store: RecordStore, device: str = UNKNOWN_DEVICE
) -> ForeignReport:
    """Add what still holds of an older MetaSchedule's database to a store.

    Args:
        path: the folder of a database, or its file of tuning records; the workloads are looked for
            beside it.  Both may be packed (.xz, .gz).
        store: receives the workloads and records.
        device: the machine that the database was measured on, which it does not say.

    Nothing is added twice.  Raises ``InputError`` when the files cannot be read.
    """
    if RELAY:
        raise InputError(
            "expected today's TVM to carry a MetaSchedule database over to, got one with Relay "
            f"({compiler_version()}): import it where apache-tvm 0.25 or later is installed"
        )
    records, workloads = _find(Path(path))
    report = ForeignReport()
    for batch in batches(_Reader(store, device, _read_workloads(workloads), report).read(records)):
        report.take(store, batch)
    return report


class _Reader:
    """Turns lines into records, one task for each workload and target."""

    def __init__(
        self, store: RecordStore, device: str, workloads: _Workloads, report: ForeignReport
    ) -> None:
        self._store, self._device, self._workloads = store, device, workloads
        self._left_out = report.left_out
        self._tasks: dict[tuple[int, str], TuningTask | str] = {}
        self._trials: Counter[TaskKey] = Counter()

    def read(self, path: Path) -> Iterator[Record]:
        """The records of a file; what is none is counted by reason."""
        for _, line in numbered_lines(path, self._left_out):
            try:
                yield self._record(read_line(line))
            except RecordError as error:
                self._left_out[str(error)] += 1

    def _record(self, old: OldRecord) -> Record:
        outcome = foreign_outcome(old.seconds)
        module, compiler = self._workloads.get(old.workload)
        _check_arguments(old.arguments, _arguments(module))
        task = self._task(old)
        values = candidate_of(task, old.insts, old.decisions)
        key = replace(task.key(self._device), compiler=compiler)
        self._store.put_workload(task.workload)
        trial = self._trials[key]
        self._trials[key] += 1
        return Record(key, values, outcome, IMPORTED, 0, trial, 0.0)

    def _task(self, old: OldRecord) -> TuningTask:
        place = (old.workload, json.dumps(old.target, sort_keys=True))
        if place not in self._tasks:
            self._tasks[place] = self._make_task(old)
        task = self._tasks[place]
        if isinstance(task, str):
            raise RecordError(task)
        return task

    def _make_task(self, old: OldRecord) -> TuningTask | str:
        module, _ = self._workloads.get(old.workload)
        try:
            target = complete_target(tvm.target.Target(old.target))
        except (TargetError, ValueError, TypeError, RuntimeError, AttributeError):
            return f"today's TVM does not take its target ({str(old.target.get('kind'))[:40]})"
        try:
            task = TuningTask(f"workload {old.workload}", module, target)
        except UntunableError:
            return "its workload cannot be tuned under today's TVM"
        task.name = task.operator
        return task


def read_line(line: bytes) -> OldRecord:
    """One line of ``database_tuning_record.json``.  Raises ``RecordError`` with the reason."""
    row = parse(line)
    try:
        index, (trace, seconds, target, arguments) = row
        insts, decisions = trace
        shapes = tuple((str(dtype), tuple(shape)) for _, dtype, shape in arguments)
        sound = (
            type(index) is int
            and isinstance(target, dict)
            and all(_is_instruction(inst) for inst in insts)
            and all(type(i) is int and 0 <= i < len(insts) for i, _ in decisions)
            and all(is_number(extent) for _, shape in shapes for extent in shape)
        )
    except (TypeError, ValueError) as error:
        raise RecordError(DAMAGED) from error
    if not sound:
        raise RecordError(DAMAGED)
    return OldRecord(index, insts, decisions, seconds, target, shapes)


def _is_instruction(inst: Any) -> bool:
    kind, *lists = inst
    return isinstance(kind, str) and len(lists) == 3 and all(isinstance(x, list) for x in lists)


def _arguments(module: Any) -> Arguments:
    """What a module's function takes; a dynamic extent is 0."""
    found = []
    for parameter in module["main"].params:
        shape = getattr(parameter.ty, "shape", ())
        sizes = tuple(int(s) if isinstance(s, tirx.IntImm) else 0 for s in shape)
        found.append((str(parameter.ty.dtype), sizes))
    return tuple(found)


def _check_arguments(measured: Arguments, workload: Arguments) -> None:
    """Raises ``RecordError`` when another program was measured than the workload."""
    if measured == workload:
        return
    sizes = ([(d, math.prod(shape)) for d, shape in each] for each in (measured, workload))
    if operator.eq(*sizes):
        raise RecordError(
            "it was measured with weights packed beforehand (RewriteLayout), which no compiled "
            "module has today"
        )
    raise RecordError(
        "its arguments are not those of its workload (two runs wrote to one database)"
    )


def _find(path: Path) -> tuple[Path, Path | None]:
    """The two files of a database; the second is ``None`` where there is none."""
    records = path
    if path.is_dir():
        found = [path / (RECORD_FILE + packed) for packed in _PACKED]
        records = next((file for file in found if file.is_file()), found[0])
    if not records.is_file():
        raise InputError(
            f"expected a MetaSchedule database in {str(path)!r}, got no {RECORD_FILE}: "
            "give its folder or its file of tuning records"
        )
    stem = records.name
    for packed in _PACKED[1:]:
        stem = stem.removesuffix(packed)
    if RECORD_FILE not in stem:
        return records, None
    name = stem.replace(RECORD_FILE, WORKLOAD_FILE)
    beside = [records.with_name(name + packed) for packed in _PACKED]
    return records, next((file for file in beside if file.is_file()), None)


def _read_workloads(path: Path | None) -> _Workloads:
    if path is None:
        return _Workloads(
            {}, f"no {WORKLOAD_FILE} lies beside the records: their workloads are lost"
        )
    lost: Counter[str] = Counter()
    lines = dict(numbered_lines(path, lost))
    return _Workloads(lines, "its workload is not in the file of workloads")
