"""A damaged store raises RecordError or gives what is left; it never crashes, and never lies."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tunerplugin.errors import RecordError
from tunerplugin.records import Record, SQLiteStore, TaskKey, Workload, check
from tunerplugin.records.sqlite_file import TABLES
from tunerplugin.testing.records import make_record

TASKS = 3
RECORDS = 90
#: SQLite's default
PAGE_BYTES = 4096


def original_records() -> list[Record]:
    keys = [TaskKey(f"w{i}", "llvm", "cpu", "tvm", "1") for i in range(TASKS)]
    return [make_record(trial, keys[trial % TASKS]) for trial in range(RECORDS)]


ORIGINAL = original_records()
WORKLOADS = [Workload(f"w{i}", f"dense{i}", '{"module":"' + "x" * 600 + '"}') for i in range(TASKS)]


@pytest.fixture(scope="module")
def sound_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        with SQLiteStore(path) as store:
            for workload in WORKLOADS:
                store.put_workload(workload)
            store.start_run({"seed": "7"})
            store.extend(ORIGINAL)
        yield path


@pytest.fixture(scope="module")
def unmerged() -> Iterator[tuple[bytes, bytes]]:
    """A store's file with half the records, and the log with the others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        with SQLiteStore(path) as store:
            store.extend(ORIGINAL[: RECORDS // 2])
        with SQLiteStore(path) as store:
            for record in ORIGINAL[RECORDS // 2 :]:
                store.append(record)
            yield path.read_bytes(), path.with_name("records.db-wal").read_bytes()


def exercise(path: Path) -> None:
    """Every way in: each gives true records or raises ``RecordError``."""
    for read_only in (True, False):
        try:
            with SQLiteStore(path, read_only=read_only) as store:
                assert set(store.records()) <= set(ORIGINAL)
                assert set(store.records(ORIGINAL[0].key)) <= set(ORIGINAL[::TASKS])
                assert set(store.workloads()) <= set(WORKLOADS)
                store.count(ORIGINAL[0].key, "ours"), store.tasks(), store.runs()
                if not read_only:
                    store.append(make_record(RECORDS, ORIGINAL[0].key))
                    assert make_record(RECORDS, ORIGINAL[0].key) in set(store.records())
        except RecordError as error:
            assert "\n" not in str(error)


def test_damaged_index_refuses_appends(sound_file: Path, tmp_path: Path) -> None:
    """A key altered in the tasks' index only: the table is whole, and the next record would be
    told of another task."""
    path = tmp_path / "records.db"
    data = sound_file.read_bytes()
    with closing(sqlite3.connect(sound_file)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_tasks_1'"
        ).fetchone()
    place = data.index(b"w0llvm", (root - 1) * PAGE_BYTES, root * PAGE_BYTES)
    path.write_bytes(data[:place] + b"w9" + data[place + 2 :])
    with SQLiteStore(path, read_only=True) as store:
        assert list(store.records()) == ORIGINAL
    with pytest.raises(RecordError, match="expected a sound record store"):
        SQLiteStore(path)
    assert not check(path).ok


@settings(max_examples=80, deadline=None)
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=4))
@example(flips=[(0.0, 0)])
def test_bit_flips(sound_file: Path, flips: list[tuple[float, int]]) -> None:
    data = bytearray(sound_file.read_bytes())
    for place, bit in flips:
        data[int(place * len(data))] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        path.write_bytes(data)
        try:
            sound = check(path).ok
        except RecordError:
            sound = False
        if sound:
            with SQLiteStore(path, read_only=True) as store:
                assert list(store.records()) == ORIGINAL
        assert path.read_bytes() == data, "check must not change the file"
        exercise(path)


@settings(max_examples=40, deadline=None)
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=3))
def test_bit_flips_in_the_log(
    unmerged: tuple[bytes, bytes], flips: list[tuple[float, int]]
) -> None:
    """The log a killed process leaves: what SQLite's checksums refuse ends it, nothing is wrong."""
    merged, log = unmerged
    data = bytearray(log)
    for place, bit in flips:
        data[int(place * len(data))] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        path.write_bytes(merged)
        path.with_name("records.db-wal").write_bytes(data)
        with SQLiteStore(path) as store:
            records = list(store.records())
        assert records == ORIGINAL[: len(records)]
        assert len(records) >= RECORDS // 2
        assert len(records) == RECORDS or data != log
        assert check(path).ok


@settings(max_examples=40, deadline=None)
@given(cut=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=40))
def test_truncation(sound_file: Path, cut: float, tail: bytes) -> None:
    data = sound_file.read_bytes()
    data = data[: int(cut * len(data))] + tail
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        path.write_bytes(data)
        try:
            assert not check(path).ok
        except RecordError:
            pass
        exercise(path)


def test_zeroed_leaf_costs_its_own_rows(tmp_path: Path, sound_file: Path) -> None:
    """Every other leaf is still read, whichever leaf of the records is gone."""
    with closing(sqlite3.connect(sound_file)) as connection:
        schema = connection.execute("SELECT rootpage FROM sqlite_master").fetchall()
    inner = {1, *(root for (root,) in schema)}
    data = sound_file.read_bytes()
    lost: set[int] = set()
    for page in set(range(1, len(data) // PAGE_BYTES + 1)) - inner:
        path = tmp_path / f"{page}.db"
        start = (page - 1) * PAGE_BYTES
        path.write_bytes(data[:start] + bytes(PAGE_BYTES) + data[start + PAGE_BYTES :])
        report = check(path)
        assert not report.ok
        rows = report.damaged_records
        if rows:
            assert rows == tuple(range(rows[0], rows[-1] + 1)) and lost.isdisjoint(rows)
        lost |= set(rows)
        assert report.records == RECORDS - len(rows)
        with SQLiteStore(path, read_only=True) as store:
            assert list(store.records()) == [r for r in ORIGINAL if r.trial + 1 not in rows]
        with pytest.raises(RecordError, match="expected a sound record store"):
            SQLiteStore(path)
    assert lost == set(range(1, RECORDS + 1)), "each record lies on one leaf"


def corrupt(path: Path, statement: str) -> None:
    """Change a row behind the store's back, tree and index staying sound."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.fixture
def stored(tmp_path: Path, sound_file: Path) -> Path:
    path = tmp_path / "records.db"
    shutil.copy(sound_file, path)
    return path


@pytest.mark.parametrize(
    "change",
    [
        "payload = replace(payload, '0.001', '0.0001')",
        "payload = replace(payload, '\"ok\"', '\"timeout\"')",
        "payload = CAST(x'ff' || payload AS TEXT)",
        "payload = 'null'",
        "payload = 3.5",
        "method = 'random'",
        "task = 2",
        "task = 77",
        "digest = x'00'",
    ],
)
def test_altered_row_is_left_out_and_named(
    stored: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    corrupt(stored, f"UPDATE records SET {change} WHERE id = 7")
    expected = ORIGINAL[:6] + ORIGINAL[7:]
    with SQLiteStore(stored) as store, caplog.at_level(logging.WARNING):
        assert list(store.records()) == expected
    assert caplog.messages == [f"{stored}: left out 1 damaged records (rows 7)"]
    report = check(stored)
    assert (report.ok, report.damaged_records, report.records) == (False, (7,), RECORDS - 1)


def test_lost_row_is_a_gap(stored: Path) -> None:
    corrupt(stored, "DELETE FROM records WHERE id IN (7, 8)")
    with SQLiteStore(stored) as store:
        assert list(store.records()) == ORIGINAL[:6] + ORIGINAL[8:]
    assert check(stored).damaged_records == (7, 8)


def test_row_with_an_absurd_number(stored: Path) -> None:
    """A flipped row number neither hangs the scan nor hides the rows behind it."""
    corrupt(stored, "UPDATE records SET id = 1152921504606846976 WHERE id = 7")
    with SQLiteStore(stored) as store:
        assert list(store.records()) == ORIGINAL[:6] + ORIGINAL[7:]


def test_altered_task_takes_its_records_along(stored: Path) -> None:
    """Better lost than told of another device."""
    corrupt(stored, "UPDATE tasks SET device = 'faster' WHERE id = 2")
    with SQLiteStore(stored) as store:
        assert list(store.records()) == [r for r in ORIGINAL if r.key.workload != "w1"]
    assert len(check(stored).damaged_records) == RECORDS // TASKS


def test_altered_workload(stored: Path, caplog: pytest.LogCaptureFixture) -> None:
    corrupt(stored, "UPDATE workloads SET module = '{}' WHERE id = 2")
    with SQLiteStore(stored) as store:
        assert list(store.workloads()) == [WORKLOADS[0], WORKLOADS[2]]
    assert caplog.messages == [f"{stored}: left out 1 damaged workloads (rows 2)"]
    report = check(stored)
    assert (report.damaged_workloads, report.workloads, report.records) == ((2,), 2, RECORDS)


def test_altered_run(stored: Path) -> None:
    corrupt(stored, "UPDATE runs SET info = '[1]'")
    report = check(stored)
    assert not report.ok
    assert report.problems[0].startswith("runs: expected run information as an object of strings")


def test_sound_file(stored: Path) -> None:
    before = stored.read_bytes()
    report = check(stored)
    assert report.ok
    assert (report.schema_version, report.records, report.workloads) == (1, RECORDS, TASKS)
    assert stored.read_bytes() == before


def test_check_sees_records_that_only_the_log_has(stored: Path, tmp_path: Path) -> None:
    """Also while another process has the file open."""
    with SQLiteStore(stored) as store:
        store.append(make_record(RECORDS))
        assert check(stored).records == RECORDS + 1
        copy = tmp_path / "copy.db"
        shutil.copy(stored, copy)
        shutil.copy(f"{stored}-wal", f"{copy}-wal")
    assert check(copy).records == RECORDS + 1


def test_schema_one_is_read_forever() -> None:
    """The tables are a file format: to change them is to raise SCHEMA_VERSION and to upgrade."""
    assert {name: " ".join(sql.split()) for name, sql in TABLES.items()} == {
        "workloads": "CREATE TABLE workloads ( id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,"
        " name TEXT NOT NULL, module TEXT NOT NULL, digest BLOB NOT NULL)",
        "tasks": "CREATE TABLE tasks ( id INTEGER PRIMARY KEY, workload TEXT NOT NULL,"
        " target TEXT NOT NULL, device TEXT NOT NULL, compiler TEXT NOT NULL, space TEXT NOT NULL,"
        " UNIQUE (workload, target, device, compiler, space))",
        "runs": "CREATE TABLE runs ( id INTEGER PRIMARY KEY, started TEXT NOT NULL,"
        " info TEXT NOT NULL)",
        "records": "CREATE TABLE records ( id INTEGER PRIMARY KEY,"
        " task INTEGER NOT NULL REFERENCES tasks (id), run INTEGER REFERENCES runs (id),"
        " method TEXT NOT NULL, payload TEXT NOT NULL, digest BLOB NOT NULL UNIQUE)",
    }
