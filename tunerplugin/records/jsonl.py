"""Moving records between machines: one JSON object a line, lossless, checked line by line.

The first line names the format.  Each later line is ``{"workload": [key, name, module]}`` or
``{"record": {...}, "key": [workload, target, device, compiler, space]}``, with the ``digest`` that
the record has in every store.  Reading executes nothing, and a damaged line costs that line only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import RecordError
from .codec import (
    decode_key,
    decode_record,
    digest,
    dump,
    key_text,
    load,
    record_digest,
    record_text,
    workload_digest,
)
from .files import replaced
from .record import Record, TaskKey, Workload
from .store import RecordStore

logger = logging.getLogger(__name__)

FORMAT = "tunerplugin-records"
VERSION = 1
#: a longer line is damage (a lost newline, or no record file at all)
MAX_LINE_BYTES = 256 * 2**20
_BATCH = 1000


@dataclass(frozen=True)
class ImportReport:
    """What an import did: new records, records that were there already, damaged line numbers."""

    added: int
    present: int
    damaged_lines: tuple[int, ...]


def export_jsonl(
    store: RecordStore,
    path: str | PathLike[str],
    key: TaskKey | None = None,
    method: str | None = None,
) -> int:
    """Write the records of that key and method (``None``: all) and their workloads.

    Returns the number of records.  The file appears whole or not at all; raises ``RecordError``.
    """
    count = 0
    with replaced(Path(path)) as file:
        file.write(dump({"format": FORMAT, "version": VERSION}) + "\n")
        for workload in store.workloads():
            if key is None or workload.key == key.workload:
                file.write(_workload_line(workload))
        for record in store.records(key, method):
            file.write(_record_line(record))
            count += 1
    return count


def import_jsonl(path: str | PathLike[str], store: RecordStore) -> ImportReport:
    """Add a file's workloads and records to a store; importing twice adds nothing twice.

    Damaged lines are left out, counted, and named in one warning in the log; so is a torn last
    line (the writer was killed).  Raises ``RecordError`` when the file cannot be read or is of
    another format.
    """
    added, records, damaged, batch = 0, 0, [], []
    try:
        with open(path, "rb") as file:
            for number, item in _read(file, Path(path)):
                if item is None:
                    damaged.append(number)
                elif isinstance(item, Workload):
                    store.put_workload(item)
                else:
                    batch.append(item)
                    records += 1
                if len(batch) == _BATCH:
                    added += store.extend(batch)
                    batch = []
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    added += store.extend(batch)
    return ImportReport(added, records - added, tuple(damaged))


def _workload_line(workload: Workload) -> str:
    fields = [workload.key, workload.name, workload.module]
    return dump({"workload": fields, "digest": workload_digest(workload).hex()}) + "\n"


def _record_line(record: Record) -> str:
    fields = {
        "record": load(record_text(record)),
        "key": load(key_text(record.key)),
        "digest": record_digest(record).hex(),
    }
    return dump(fields) + "\n"


def _read(file: BinaryIO, path: Path) -> Iterator[tuple[int, Workload | Record | None]]:
    """(line number, what it holds); ``None`` for a damaged line."""
    _check_header(file.readline(MAX_LINE_BYTES), path)
    damaged: list[int] = []
    torn = False
    number = 1
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        try:
            item = _decode_line(line)
        except RecordError:
            torn = not line.endswith(b"\n")
            damaged.append(number)
            item = None
        yield number, item
    if damaged:
        logger.warning(
            "%s: left out %d damaged lines (%s%s)%s",
            path,
            len(damaged),
            ", ".join(map(str, damaged[:5])),
            ", ..." if len(damaged) > 5 else "",
            "; the last line is torn, its writer was interrupted" if torn else "",
        )


def _check_header(line: bytes, path: Path) -> None:
    try:
        header = load(line)
    except RecordError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RecordError(
            f"expected {path} to begin with a {FORMAT} line, got {line[:60]!r}; "
            "write it with export_jsonl"
        )
    if header.get("version") != VERSION:
        raise RecordError(
            f"expected {FORMAT} version {VERSION} in {path}, got {header.get('version')!r}; "
            "upgrade tunerplugin to read it"
        )


def _decode_line(line: bytes) -> Workload | Record:
    fields = load(line)
    try:
        expected = bytes.fromhex(fields["digest"])
        if "workload" in fields:
            return _decode_workload(fields["workload"], expected)
        key = decode_key(dump(fields["key"]))
        return decode_record(key, dump(fields["record"]), expected)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"expected a record or workload line, got {line[:60]!r}") from error


def _decode_workload(fields: Any, expected: bytes) -> Workload:
    workload = Workload(*fields)
    if digest(workload.key, workload.name, workload.module) != expected:
        raise RecordError("expected a workload that fits its digest, got an altered one")
    return workload
