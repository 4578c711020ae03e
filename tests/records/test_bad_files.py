"""Paths and files that cannot be a record store are refused in one sentence, before any work."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tunerplugin.errors import RecordError
from tunerplugin.records import SQLiteStore, Workload, check, sqlite_file
from tunerplugin.testing.records import KEY, make_record


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "records.db"
    with SQLiteStore(path) as store:
        store.put_workload(Workload("9f86d081", "dense", "{}"))
        store.extend(make_record(trial) for trial in range(5))
    return path


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom file permissions bind (root is not bound)."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only_dir() -> Iterator[Path]:
    """An existing store in a directory where nobody may write (outside tmp_path, which is 0700)."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "readonly"
        directory.mkdir()
        with SQLiteStore(directory / "records.db") as store:
            store.append(make_record(0))
        os.chmod(folder, 0o755)
        os.chmod(directory / "records.db", 0o644)
        os.chmod(directory, 0o555)
        yield directory
        os.chmod(directory, 0o755)


OPENERS: list[Callable[[Path], object]] = [
    SQLiteStore,
    lambda path: SQLiteStore(path, read_only=True),
    check,
]


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(
    "content", [b"hello, no database", b"SQLite format 3\0" + bytes(5000), os.urandom(4096)]
)
def test_not_a_database(tmp_path: Path, opener: Callable[[Path], object], content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="expected a sound record store in .*notes.txt"):
        opener(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("opener", OPENERS)
def test_database_of_another_program(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (name)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(RecordError, match="damaged or foreign file .application id 0x0"):
        opener(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("opener", OPENERS)
def test_newer_schema(stored: Path, opener: Callable[[Path], object]) -> None:
    with closing(sqlite3.connect(stored)) as connection:
        connection.execute("PRAGMA user_version=2")
    with pytest.raises(RecordError, match="of schema 1 in .*, got schema 2; upgrade tunerplugin"):
        opener(stored)


@pytest.mark.parametrize("opener", OPENERS)
def test_strangers_trigger(stored: Path, opener: Callable[[Path], object]) -> None:
    with closing(sqlite3.connect(stored)) as connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM tasks; END")
    with pytest.raises(RecordError, match="other tables than schema 1 has"):
        opener(stored)


@pytest.mark.parametrize("opener", OPENERS)
def test_directory_as_path(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    with pytest.raises(RecordError, match="expected a (file|record store)"):
        opener(tmp_path)


@pytest.mark.parametrize("opener", OPENERS)
def test_missing_directory(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    with pytest.raises(RecordError, match="expected .*"):
        opener(tmp_path / "missing" / "records.db")
    assert not (tmp_path / "missing").exists()


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for opener in OPENERS[1:]:
        with pytest.raises(RecordError, match="expected a record store in .*, got no such file"):
            opener(tmp_path / "records.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["records.db", "new.db"])
def test_read_only_directory(read_only_dir: Path, name: str) -> None:
    with unprivileged(), pytest.raises(RecordError, match="expected a writable file in a writable"):
        SQLiteStore(read_only_dir / name)


def test_read_only_file(read_only_dir: Path) -> None:
    os.chmod(read_only_dir / "records.db", 0o444)
    os.chmod(read_only_dir, 0o777)
    with unprivileged(), pytest.raises(RecordError, match="expected a writable file in a writable"):
        SQLiteStore(read_only_dir / "records.db")


def test_read_only_directory_can_be_read(read_only_dir: Path) -> None:
    with unprivileged(), SQLiteStore(read_only_dir / "records.db", read_only=True) as store:
        assert list(store.records()) == [make_record(0)]
        with pytest.raises(RecordError, match="expected a writable file"):
            store.append(make_record(1))


def test_unmerged_log_in_a_read_only_directory(read_only_dir: Path) -> None:
    """The newest records are not silently left out."""
    path = read_only_dir / "records.db"
    writer = SQLiteStore(path)
    writer.append(make_record(1))
    log = (read_only_dir / "records.db-wal").read_bytes()
    writer.close()
    (read_only_dir / "records.db-wal").write_bytes(log)
    with unprivileged(), pytest.raises(RecordError, match="newest records are in records.db-wal"):
        SQLiteStore(path, read_only=True)


def test_odd_file_names(tmp_path: Path) -> None:
    for name in ("a b?mode=memory#x%41.db", "é漢.db", os.fsdecode(b"\xff.db")):
        with SQLiteStore(tmp_path / name) as store:
            store.append(make_record())
        assert (tmp_path / name).is_file()
        with SQLiteStore(tmp_path / name, read_only=True) as store:
            assert store.count() == 1


def test_settings_of_an_open_store(stored: Path) -> None:
    with SQLiteStore(stored) as store:
        pragma = {
            name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "user_version")
        }
    assert pragma == {
        "journal_mode": b"wal",
        "synchronous": 2,
        "busy_timeout": 30_000,
        "user_version": 1,
    }


def test_absurd_lengths_are_refused(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that keeps a flipped length from asking for gigabytes, made small."""
    monkeypatch.setattr(sqlite_file, "MAX_VALUE_BYTES", 10_000)
    with SQLiteStore(stored) as store:
        with pytest.raises(RecordError, match="too big"):
            store.put_workload(Workload("key", "large", "x" * 10_001))
        assert [workload.name for workload in store.workloads()] == ["dense"]


def test_schema_text_that_is_no_text(stored: Path) -> None:
    """SQLite quotes the damaged text in its message; that message is no Unicode then."""
    data = stored.read_bytes()
    stored.write_bytes(data.replace(b"CREATE TABLE runs (", b"CREATE TABLE runs \xff"))
    for opener in OPENERS:
        with pytest.raises(RecordError, match="expected a sound record store"):
            opener(stored)


def test_file_system_without_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """SQLite's dot-file locks know no shared memory, like some network file systems."""
    connect = sqlite3.connect

    def connect_with_dot_locks(name: str, **options: object) -> sqlite3.Connection:
        return connect(name + "&vfs=unix-dotfile", **options)  # type: ignore

    monkeypatch.setattr(sqlite3, "connect", connect_with_dot_locks)
    for trial in range(2):
        with SQLiteStore(tmp_path / "records.db") as store:
            mode = store._connection.execute("PRAGMA journal_mode").fetchone()[0]
            assert mode == b"delete"
            assert store.append(make_record(trial))
            assert store.count(KEY) == trial + 1
    assert not recwarn.list


def test_busy_file_names_the_cause(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SQLiteStore(stored) as store, closing(sqlite3.connect(stored)) as other:
        store._connection.execute("PRAGMA busy_timeout=10")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RecordError, match="another process held it for 30 s"):
            store.append(make_record(9))
        other.execute("ROLLBACK")
        assert store.append(make_record(9))


def test_another_thread_is_refused(stored: Path) -> None:
    errors: list[RecordError] = []
    with SQLiteStore(stored) as store:

        def use() -> None:
            try:
                store.append(make_record(9))
            except RecordError as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert "thread" in str(errors[0])
        assert store.count() == 5


def test_use_after_close(stored: Path) -> None:
    store = SQLiteStore(stored)
    store.close()
    for use in (lambda: list(store.records()), store.count, lambda: store.append(make_record(9))):
        with pytest.raises(RecordError, match="closed"):
            use()
