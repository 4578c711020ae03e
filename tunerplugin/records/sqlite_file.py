"""The SQLite file under a record store: schema, opening, transactions, errors in one sentence.

Settings and why: WAL, so that readers and several writing processes do not block each other
(DELETE journal where the file system has no shared memory); ``synchronous=FULL``, so that a
committed record survives power loss; ``trusted_schema=OFF``, ``cell_size_check`` and a length
limit, because a record file may come from a stranger or a dying disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..errors import RecordError

SCHEMA_VERSION = 1
#: "tune" in ASCII; ``file`` and other tools show it
APPLICATION_ID = 0x74756E65
BUSY_TIMEOUT_S = 30.0
#: longest text or blob; a flipped length must not ask for gigabytes
MAX_VALUE_BYTES = 256 * 2**20

TABLES = {
    "workloads": """CREATE TABLE workloads (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  module TEXT NOT NULL,
  digest BLOB NOT NULL)""",
    "tasks": """CREATE TABLE tasks (
  id INTEGER PRIMARY KEY,
  workload TEXT NOT NULL,
  target TEXT NOT NULL,
  device TEXT NOT NULL,
  compiler TEXT NOT NULL,
  space TEXT NOT NULL,
  UNIQUE (workload, target, device, compiler, space))""",
    "runs": """CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  started TEXT NOT NULL,
  info TEXT NOT NULL)""",
    "records": """CREATE TABLE records (
  id INTEGER PRIMARY KEY,
  task INTEGER NOT NULL REFERENCES tasks (id),
  run INTEGER REFERENCES runs (id),
  method TEXT NOT NULL,
  payload TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE)""",
}

#: result codes that mean "these bytes are wrong"; the first four come with many extended codes
_DAMAGE_CODES = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
    sqlite3.SQLITE_IOERR_DATA,
}
_FULL_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_NO_SHARED_MEMORY_CODES = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP}
_CANNOT_WRITE_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the error says that stored bytes are wrong (and not: busy, full, misused)."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in _DAMAGE_CODES or code & 0xFF in _DAMAGE_CODES


def _explain(path: Path, action: str, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _FULL_CODES or code & 0xFF == sqlite3.SQLITE_FULL:
        return (
            f"cannot {action} {path}: the disk is full or the file at its size limit ({error}); "
            "what was acknowledged is safe, free space and run the same command again"
        )
    if code & 0xFF in _CANNOT_WRITE_CODES:
        wanted = "readable file" if action == "read" else "writable file in a writable directory"
        return f"cannot {action} {path}: expected a {wanted} ({error})"
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"cannot {action} {path}: another process held it for {BUSY_TIMEOUT_S:.0f} s; "
            "end that process or use another work directory"
        )
    if is_damage(error):
        return damage_message(path, str(error))
    return f"cannot {action} {path}: {error}"


def damage_message(path: Path, detail: str) -> str:
    """The sentence for a file that is not, or no longer, a sound record store."""
    reason = " ".join(detail.split())
    return (
        f"expected a sound record store in {path}, got a damaged or foreign file ({reason}); "
        "check it, export what can be read, and go on in a new file"
    )


@contextmanager
def explained(path: Path, action: str) -> Iterator[None]:
    """Turn SQLite's errors into ``RecordError``."""
    try:
        yield
    except sqlite3.Error as error:
        raise RecordError(_explain(path, action, error)) from error
    except UnicodeDecodeError as error:
        # sqlite3 quotes damaged schema text in its own error messages
        raise RecordError(damage_message(path, str(error))) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One immediate transaction: whole or not at all, whatever ends the block."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open or create a store; proves by one real write that records can be kept.

    Raises ``RecordError`` for a missing or read-only directory, a directory in place of a file, a
    full disk, a foreign, damaged or newer file.
    """
    if path.is_dir():
        raise RecordError(f"expected a file for the record store, got the directory {path}")
    if not path.parent.is_dir():
        raise RecordError(f"expected {path.parent} to be a directory; create it first")
    with explained(path, "open"):
        connection = _connect(path, "rwc")
        try:
            _check_header(connection, path, may_be_new=True)
            _choose_journal(connection)
            connection.execute("PRAGMA synchronous=FULL")
            _check_sound(connection, path)
            with transaction(connection):
                if _pragma(connection, "user_version") == 0:
                    _create(connection)
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            _check_schema(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing store without changing it, damaged pages or not.

    Raises ``RecordError`` when the file is missing, foreign or newer.
    """
    if not path.is_file():
        raise RecordError(f"expected a record store in {path}, got no such file")
    with explained(path, "read"):
        try:
            return _open_existing(path, "ro")
        except sqlite3.OperationalError as error:
            log = path.with_name(path.name + "-wal")
            code = error.sqlite_errorcode
            if code not in _FULL_CODES and code & 0xFF not in _CANNOT_WRITE_CODES:
                raise
            if log.exists() and log.stat().st_size:
                raise RecordError(
                    f"cannot read {path}: its newest records are in {log.name} and the directory "
                    "is read-only or full; copy both files to a directory with space"
                ) from error
        # WAL mode in a directory that cannot hold the shared memory: nobody else writes there
        return _open_existing(path, "ro&immutable=1")


def _open_existing(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        _check_header(connection, path, may_be_new=False)
        _check_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        uri=True,
    )
    # text is decoded record by record: one bad byte must not end a scan
    connection.text_factory = bytes
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _check_header(connection: sqlite3.Connection, path: Path, may_be_new: bool) -> None:
    # one read transaction: another process may be creating the tables right now
    connection.execute("BEGIN")
    version = _pragma(connection, "user_version")
    application = _pragma(connection, "application_id")
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    connection.execute("COMMIT")
    if may_be_new and (version, application, tables) == (0, 0, 0):
        return
    if application != APPLICATION_ID:
        raise RecordError(damage_message(path, f"application id {application:#x}"))
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"expected a record store of schema {SCHEMA_VERSION} in {path}, got schema {version}; "
            "upgrade tunerplugin to read it"
        )
    if version < 1:
        raise RecordError(damage_message(path, f"schema {version}"))


def _choose_journal(connection: sqlite3.Connection) -> None:
    """WAL where the file system allows it, else the rollback journal."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            # SQLite answers with the mode in force, not always the one asked for
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == b"wal":
                return
            break
        except sqlite3.OperationalError as error:
            # the change of mode does not wait for other processes by itself
            if error.sqlite_errorcode in _NO_SHARED_MEMORY_CODES:
                break
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA journal_mode=DELETE")


def _create(connection: sqlite3.Connection) -> None:
    for statement in TABLES.values():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """The tables must be exactly ours: no lost one, and no trigger or view of a stranger."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    if dict(rows.fetchall()) != {name.encode(): sql.encode() for name, sql in TABLES.items()}:
        raise RecordError(damage_message(path, f"other tables than schema {SCHEMA_VERSION} has"))


def _check_sound(connection: sqlite3.Connection, path: Path) -> None:
    """Never append to a damaged file: what is acknowledged could be unreachable.

    quick_check would not do: it skips the indices, and a flipped bit in the tasks' index makes
    the next record slide to another task.
    """
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != b"ok":
        raise RecordError(damage_message(path, found.decode(errors="replace")))


def integrity_problems(connection: sqlite3.Connection) -> tuple[str, ...]:
    """What SQLite's full integrity check finds, one line each (at most 100)."""
    try:
        with closing(connection.execute("PRAGMA integrity_check(100)")) as cursor:
            lines = [bytes(row[0]).decode(errors="replace") for row in cursor]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return (str(error),)
    return () if lines == ["ok"] else tuple(lines)
