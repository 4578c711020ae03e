"""``SQLiteStore``: the truth about everything that was measured."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import RecordError
from .codec import (
    decode_info,
    decode_record,
    digest,
    dump,
    record_digest,
    record_text,
    workload_digest,
)
from .record import Record, Run, TaskKey, Workload
from .sqlite_file import (
    damage_message,
    explained,
    is_damage,
    open_to_read,
    open_to_write,
    transaction,
)
from .store import RecordStore, check_info, utc_now

logger = logging.getLogger(__name__)

_PAGE_ROWS = 500
#: no row is smaller; a row number past file size / this is a flipped bit
_MIN_ROW_BYTES = 8

_Row = tuple[Any, ...]


class SQLiteStore(RecordStore):
    """Records in one SQLite file.

    One transaction per record (``append``) or per batch (``extend``), on disk before the call
    returns.  Several processes may append to one file at once, each with its own store, on a
    local disk; on a network file system give each process its own file and merge them with
    ``export_jsonl`` and ``import_jsonl``.  A store belongs to the thread that opened it, and does
    not survive ``fork``.

    ``read_only`` opens an existing file without changing it, even a damaged one or one in a
    read-only directory.  Damaged rows are left out with a warning in the log; ``check`` lists
    them.

    Raises ``RecordError`` on opening when records could not be kept: missing or read-only
    directory, full disk, a foreign, damaged or newer file.
    """

    def __init__(self, path: str | PathLike[str], read_only: bool = False) -> None:
        self.path = Path(path)
        self._connection = open_to_read(self.path) if read_only else open_to_write(self.path)
        self._run: int | None = None

    def put_workload(self, workload: Workload) -> None:
        """See ``RecordStore.put_workload``."""
        row = (workload.key, workload.name, workload.module, workload_digest(workload))
        with explained(self.path, "write to"), transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO workloads (key, name, module, digest) VALUES (?, ?, ?, ?)",
                row,
            )

    def workloads(self) -> Iterator[Workload]:
        """See ``RecordStore.workloads``."""
        damaged = []
        for number, workload in self.scan_workloads():
            if workload is None:
                damaged.append(number)
            else:
                yield workload
        self._warn("workloads", damaged)

    def append(self, record: Record) -> bool:
        """See ``RecordStore.append``."""
        return self.extend((record,)) == 1

    def extend(self, records: Iterable[Record]) -> int:
        """Append several records in one transaction: all or, after an error, none."""
        batch = tuple(records)  # a slow producer must not hold the write lock
        with explained(self.path, "write to"), transaction(self._connection):
            return sum(self._insert(record) for record in batch)

    def records(self, key: TaskKey | None = None, method: str | None = None) -> Iterator[Record]:
        """See ``RecordStore.records``."""
        damaged = []
        for number, record in self.scan_records(key, method):
            if record is None:
                damaged.append(number)
            else:
                yield record
        self._warn("records", damaged)

    def start_run(self, info: Mapping[str, str]) -> int:
        """See ``RecordStore.start_run``."""
        check_info(info)
        with explained(self.path, "write to"), transaction(self._connection):
            self._run = self._connection.execute(
                "INSERT INTO runs (started, info) VALUES (?, ?)", (utc_now(), dump(dict(info)))
            ).lastrowid
        assert self._run is not None
        return self._run

    def runs(self) -> tuple[Run, ...]:
        """See ``RecordStore.runs``."""
        rows = self._query(
            "SELECT id, started, info, (SELECT count(*) FROM records WHERE run = runs.id)"
            " FROM runs ORDER BY id"
        )
        return tuple(
            Run(number, _text(started), decode_info(_text(info)), count)
            for number, started, info, count in rows
        )

    def count(self, key: TaskKey | None = None, method: str | None = None) -> int:
        """See ``RecordStore.count``; rows that were damaged later count too."""
        tasks = [number for number, other in self._task_keys().items() if key in (None, other)]
        rows = self._query("SELECT task, method, count(*) FROM records GROUP BY task, method")
        wanted = None if method is None else method.encode()
        return sum(n for task, name, n in rows if task in tasks and wanted in (None, name))

    def tasks(self) -> dict[TaskKey, int]:
        """See ``RecordStore.tasks``."""
        keys = self._task_keys()
        rows = self._query("SELECT task, count(*) FROM records GROUP BY task ORDER BY min(id)")
        return {keys[task]: count for task, count in rows if task in keys}

    def close(self) -> None:
        """See ``RecordStore.close``."""
        with explained(self.path, "close"):
            self._connection.close()

    def scan_records(
        self, key: TaskKey | None = None, method: str | None = None
    ) -> Iterator[tuple[int, Record | None]]:
        """Every wanted record with its row number; ``None`` for a row that is damaged."""
        keys = self._task_keys()
        wanted = None if method is None else method.encode()
        columns = "task, method, payload, digest"
        for number, row in self._scan("records", columns):
            if row is None or row[0] not in keys:
                yield number, None
            elif key in (None, keys[row[0]]) and wanted in (None, row[1]):
                yield number, _decode_record(keys[row[0]], row)

    def scan_workloads(self) -> Iterator[tuple[int, Workload | None]]:
        """Every workload with its row number; ``None`` for a row that is damaged."""
        for number, row in self._scan("workloads", "key, name, module, digest"):
            yield number, None if row is None else _decode_workload(row)

    def _insert(self, record: Record) -> int:
        key = record.key
        fields = (key.workload, key.target, key.device, key.compiler, key.space)
        execute = self._connection.execute
        execute(
            "INSERT OR IGNORE INTO tasks (workload, target, device, compiler, space)"
            " VALUES (?, ?, ?, ?, ?)",
            fields,
        )
        row = (self._run, record.method, record_text(record), record_digest(record), *fields)
        return execute(
            "INSERT OR IGNORE INTO records (task, run, method, payload, digest)"
            " SELECT id, ?, ?, ?, ? FROM tasks WHERE workload = ? AND target = ? AND device = ?"
            " AND compiler = ? AND space = ?",
            row,
        ).rowcount

    def _query(self, sql: str, *parameters: object) -> list[_Row]:
        with explained(self.path, "read"):
            return self._connection.execute(sql, parameters).fetchall()

    def _task_keys(self) -> dict[int, TaskKey]:
        """Keys by row number; a damaged one makes its records damaged, never another task's."""
        keys = {}
        for number, row in self._scan("tasks", "workload, target, device, compiler, space"):
            try:
                keys[number] = TaskKey(*map(_text, row or ()))
            except (RecordError, TypeError):
                continue
        return keys

    def _scan(self, table: str, columns: str) -> Iterator[tuple[int, _Row | None]]:
        """Rows up to the one that is last now, page by page; ``None`` for an unreadable one.

        Row numbers run from 1 without gaps (rows are never deleted), so a gap is damage: what
        lies behind it is then looked up row by row.  No read transaction outlives a page.
        """
        last, top = 0, self._top(table)
        while last < top:
            end = min(last + _PAGE_ROWS, top)
            sql = f"SELECT id, {columns} FROM {table} WHERE id > ? AND id <= ? ORDER BY id"
            for row in self._readable(sql, last, end):
                if row[0] != last + 1:
                    break
                last += 1
                yield last, row[1:]
            for number in range(last + 1, end + 1):
                rows = self._readable(f"SELECT {columns} FROM {table} WHERE id = ?", number)
                yield number, rows[0] if rows else None
            last = end

    def _readable(self, sql: str, *parameters: int) -> list[_Row]:
        """The rows, or none where the file is damaged."""
        with explained(self.path, "read"):
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                return []

    def _top(self, table: str) -> int:
        """The last row number: the larger of two answers, the index's and the tree's."""
        rows = self._readable(f"SELECT count(*) FROM {table}")
        rows += self._readable(f"SELECT max(id) FROM {table}")
        if not rows:
            raise RecordError(damage_message(self.path, f"table {table} cannot be read"))
        pages = self._query("PRAGMA page_count")[0][0] * self._query("PRAGMA page_size")[0][0]
        possible = int(pages) // _MIN_ROW_BYTES
        return max(min(int(row[0] or 0), possible) for row in rows)

    def _warn(self, what: str, damaged: list[int]) -> None:
        if damaged:
            logger.warning(
                "%s: left out %d damaged %s (rows %s%s)",
                self.path,
                len(damaged),
                what,
                ", ".join(map(str, damaged[:5])),
                ", ..." if len(damaged) > 5 else "",
            )


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        raise RecordError(f"expected stored text, got {value!r}")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"expected stored text, got {value[:40]!r}") from error


def _decode_record(key: TaskKey, row: _Row) -> Record | None:
    _, method, payload, expected = row
    try:
        record = decode_record(key, _text(payload), expected)
    except RecordError:
        return None
    return record if record.method.encode() == method else None


def _decode_workload(row: _Row) -> Workload | None:
    try:
        workload = Workload(*map(_text, row[:3]))
    except RecordError:
        return None
    return workload if digest(workload.key, workload.name, workload.module) == row[3] else None
