"""Reading other tuners' logs: text lines, packed or not, of which any may be damaged.

A log is what a process left behind when it was killed, so a line that makes no sense costs that
line only, and so does a packed file that ends early.  What cannot be used is counted by reason.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

from ..errors import InputError, RecordError
from ..outcome import Outcome, Status
from .jsonl import FORMAT, MAX_LINE_BYTES
from .record import Record
from .store import RecordStore

#: method of records that another tuner made
IMPORTED = "imported"
#: device of records whose log does not name it
UNKNOWN_DEVICE = "unknown"
#: AutoTVM writes a failure as 1e9 seconds, MetaSchedule as 1e10
FAILED_S = 1e9
DAMAGED = "the line is damaged: no record of the format"
CUT_SHORT = "the packed file ends early: what came after is lost"

_XZ, _GZIP = b"\xfd7zXZ\x00", b"\x1f\x8b"
#: lines looked at to tell what a file is: the first may be damaged
_LINES_TO_TELL = 64
_BATCH = 1000


@dataclass
class ForeignReport:
    """What became of a log: records added, present already, and left out by reason.

    ``failed`` of those added are candidates that failed; they teach what not to propose.
    """

    added: int = 0
    present: int = 0
    failed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def take(self, store: RecordStore, records: Sequence[Record]) -> None:
        """Store records and count them."""
        for record in records:
            if store.append(record):
                self.added += 1
                self.failed += not record.outcome.ok
            else:
                self.present += 1


def numbered_lines(path: Path, left_out: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """(line number from 0, line) of a text file, unpacked if it is gzip or xz.

    Raises ``InputError`` when it cannot be opened.  Damage of the packing ends the file and is
    counted in ``left_out``, and so is a line too long to be one.
    """
    with _opened(path) as file:
        number = 0
        while True:
            try:
                line = file.readline(MAX_LINE_BYTES)
            except (OSError, EOFError, lzma.LZMAError, zlib.error):
                left_out[CUT_SHORT] += 1
                return
            if not line:
                return
            yield number, line
            number += 1


def kind_of(path: str | PathLike[str]) -> str:
    """What a file of records is: ``jsonl`` (ours), ``autotvm`` or ``metaschedule``.

    A folder is a MetaSchedule database.  Raises ``InputError`` for anything else.
    """
    place = Path(path)
    if place.is_dir():
        return "metaschedule"
    lines = numbered_lines(place, Counter())
    for number, line in lines:
        kind = _kind_of_line(line)
        if kind == "auto_scheduler":
            raise InputError(
                "expected records of TVM's AutoTVM or MetaSchedule, got a log of auto_scheduler "
                f"in {str(path)!r}: its schedules exist in no TVM of today"
            )
        if kind is not None:
            return kind
        if number >= _LINES_TO_TELL:
            break
    raise InputError(
        f"expected a JSONL export, an AutoTVM log or a MetaSchedule database, got {str(path)!r} "
        "without a line of any of them: check the path"
    )


def foreign_outcome(seconds: object, wall_s: float = 0.0) -> Outcome:
    """The outcome of a candidate from the times that a log has of it.

    Raises ``RecordError`` when that is no list of numbers, or an empty one.
    """
    if not isinstance(seconds, list) or not all(is_number(s) for s in seconds):
        raise RecordError(DAMAGED)
    if not seconds:
        raise RecordError("no run time was recorded")
    times_s = [_as_float(second) for second in seconds]
    if FAILED_S <= max(times_s) < math.inf:
        return Outcome(Status.RUN_ERROR, (), "recorded as a failure, without its reason", wall_s)
    return Outcome.from_samples(times_s, wall_s)


def is_number(value: object) -> bool:
    """Whether JSON has a number here (``True`` is none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in groups of bounded size."""
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def parse(line: bytes) -> Any:
    """The JSON value of a line.  Raises ``RecordError`` with ``DAMAGED``."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(DAMAGED) from error


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _opened(path: Path) -> IO[bytes]:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_XZ))
        if magic == _XZ:
            return lzma.open(path)
        return cast(IO[bytes], gzip.open(path)) if magic[:2] == _GZIP else path.open("rb")
    except OSError as error:
        raise InputError(
            f"expected a file of records, got {str(path)!r}: {error.strerror}; check the path"
        ) from error


def _kind_of_line(line: bytes) -> str | None:
    try:
        row = parse(line)
    except RecordError:
        return "autotvm" if line.count(b"\t") in (3, 5) else None
    if isinstance(row, dict):
        if row.get("format") == FORMAT:
            return "jsonl"
        if "input" in row or row.get("v") == 0.1:
            return "autotvm"
        return "auto_scheduler" if "i" in row and "r" in row else None
    if isinstance(row, list) and len(row) == 2 and isinstance(row[0], int):
        return "metaschedule"
    return None
