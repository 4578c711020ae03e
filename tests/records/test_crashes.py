"""Nothing acknowledged is lost: kills, full disks, several writers, resumed runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import RecordError
from tunerplugin.records import SQLiteStore, check
from tunerplugin.testing.records import KEY, make_record

ROOT = Path(__file__).resolve().parents[2]
APPENDER = Path(__file__).with_name("appender.py")


def start_appender(path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(APPENDER), str(path), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("acknowledged_before_kill", [1, 40])
def test_sigkill_loses_nothing_acknowledged(tmp_path: Path, acknowledged_before_kill: int) -> None:
    path = tmp_path / "records.db"
    child = start_appender(path, "ours", 100_000)
    assert child.stdout is not None
    seen = [int(child.stdout.readline()) for _ in range(acknowledged_before_kill)]
    child.send_signal(signal.SIGKILL)
    seen += [int(line) for line in child.stdout.read().splitlines()]
    assert child.wait() == -signal.SIGKILL

    with SQLiteStore(path) as store:
        records = list(store.records(KEY, "ours"))
        # at most the record in flight is there without its acknowledgement
        assert len(seen) <= len(records) <= len(seen) + 1
        assert records == [make_record(trial) for trial in range(len(records))]
        assert store.append(make_record(len(records)))
    assert check(path).ok


def test_four_processes_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    children = [start_appender(path, f"method{i}", 50) for i in range(4)]
    for child in children:
        output, _ = child.communicate(timeout=60)
        assert output.splitlines() == [str(trial) for trial in range(50)]
        assert child.returncode == 0
    with SQLiteStore(path) as store:
        assert store.count() == 200
        for i in range(4):
            expected = [make_record(trial, method=f"method{i}") for trial in range(50)]
            assert list(store.records(KEY, f"method{i}")) == expected
    report = check(path)
    assert (report.ok, report.records) == (True, 200)


def test_file_size_limit_refuses_and_keeps(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    child = start_appender(path, "ours", 10_000, 200_000)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    *acknowledged, refused, readable, appended = output.splitlines()
    assert len(acknowledged) > 5
    assert refused.startswith(f"refused cannot write to {path}: the disk is full")
    assert "free space and run the same command again" in refused
    assert readable == f"readable {len(acknowledged)}"
    assert appended == f"appended {len(acknowledged)}"
    with SQLiteStore(path) as store:
        expected = [make_record(trial) for trial in range(len(acknowledged) + 1)]
        assert list(store.records()) == expected
    assert check(path).ok


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("expected the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_refuses_and_keeps(small_disk: Path) -> None:
    path = small_disk / "records.db"
    store = SQLiteStore(path)
    acknowledged = 0
    with pytest.raises(RecordError, match="the disk is full"):
        for trial in range(10_000):
            store.append(make_record(trial))
            acknowledged += 1
    assert acknowledged > 5
    assert len(list(store.records())) == acknowledged
    store.close()
    with SQLiteStore(path, read_only=True) as store:
        assert [record.trial for record in store.records()] == list(range(acknowledged))
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    with SQLiteStore(path) as store:
        assert store.append(make_record(acknowledged))
        assert store.count() == acknowledged + 1


@pytest.mark.parametrize("held", [False, True], ids=["alone", "held by another store"])
def test_disk_full_before_the_first_measurement(small_disk: Path, held: bool) -> None:
    """For a new store as for one that goes on."""
    path = small_disk / "records.db"
    holder = SQLiteStore(path)
    holder.append(make_record(0))
    if not held:
        holder.close()
    with contextlib.suppress(OSError), open(small_disk / "ballast", "wb", buffering=0) as ballast:
        while ballast.write(bytes(1024)):
            pass
    for name in ("records.db", "new.db"):
        with pytest.raises(RecordError, match=f"cannot open .*{name}: the disk is full"):
            SQLiteStore(small_disk / name)
    with SQLiteStore(path, read_only=True) as store:
        assert list(store.records()) == [make_record(0)]
    holder.close()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_prefix_and_a_rerun_give_the_same_records(data: st.DataObject) -> None:
    """Reruns may replay from the start or go on from the count, in batches or one by one."""
    total = data.draw(st.integers(0, 12))
    run = [make_record(trial) for trial in range(total)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        for _ in range(data.draw(st.integers(1, 3))):
            with SQLiteStore(path) as store:
                stop = data.draw(st.integers(0, total))
                start = store.count(KEY, "ours") if data.draw(st.booleans()) else 0
                if data.draw(st.booleans()):
                    store.extend(run[start:stop])
                else:
                    for record in run[start:stop]:
                        store.append(record)
        with SQLiteStore(path) as store:
            for record in run[store.count(KEY, "ours") :]:
                store.append(record)
            assert list(store.records()) == run


def test_failed_batch_leaves_nothing(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "records.db") as store:
        store.append(make_record(0))
        store._connection.execute(
            "CREATE TEMP TRIGGER stop BEFORE INSERT ON main.records"
            " WHEN NEW.method = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(RecordError, match="cannot write to .*: no"):
            store.extend([make_record(1), make_record(2, method="bad")])
        assert list(store.records()) == [make_record(0)]
        assert store.append(make_record(1))
