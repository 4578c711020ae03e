"""Records travel between machines without loss, and a damaged line costs that line only."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import RecordError
from tunerplugin.outcome import Outcome, Status
from tunerplugin.records import (
    ImportReport,
    MemoryStore,
    Record,
    RecordStore,
    SQLiteStore,
    TaskKey,
    Workload,
    export_jsonl,
    import_jsonl,
)
from tunerplugin.testing.records import KEY, make_record

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
seconds = st.floats(1e-12, 1e6)
outcomes = st.one_of(
    st.lists(seconds, min_size=1, max_size=3).map(lambda s: Outcome.from_samples(s, 0.1)),
    st.builds(
        Outcome,
        st.sampled_from([status for status in Status if status is not Status.OK]),
        reason=st.text(max_size=8),
        wall_s=st.floats(0, 1e6),
    ),
)
values = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
records = st.builds(
    Record,
    st.builds(TaskKey, text, text, text, text, text),
    st.lists(values, max_size=4).map(tuple),
    outcomes,
    text,
    st.integers(0),
    st.integers(0),
    st.floats(0, 1e9),
    text,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(records, max_size=6), st.lists(st.builds(Workload, text, text, text), max_size=3))
def test_round_trip_of_anything(items: list[Record], workloads: list[Workload]) -> None:
    """Memory -> file -> SQLite -> file: the same records in the same order, byte for byte."""
    first = MemoryStore()
    first.extend(items)
    for workload in workloads:
        first.put_workload(workload)
    with tempfile.TemporaryDirectory() as folder:
        path, again = Path(folder) / "a.jsonl", Path(folder) / "b.jsonl"
        assert export_jsonl(first, path) == first.count()
        with SQLiteStore(Path(folder) / "records.db") as second:
            assert import_jsonl(path, second) == ImportReport(first.count(), 0, ())
            assert list(second.records()) == list(first.records())
            assert list(second.workloads()) == list(first.workloads())
            assert second.tasks() == first.tasks()
            assert import_jsonl(path, second) == ImportReport(0, first.count(), ())
            export_jsonl(second, again)
        assert again.read_bytes() == path.read_bytes()


@pytest.fixture
def store() -> RecordStore:
    store = MemoryStore()
    store.put_workload(Workload(KEY.workload, "dense", "{}"))
    store.put_workload(Workload("other", "conv", "{}"))
    store.extend(make_record(trial) for trial in range(4))
    store.append(make_record(9, replace(KEY, workload="other"), "random"))
    return store


def test_export_of_one_key_and_method(store: RecordStore, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert export_jsonl(store, path, KEY, "ours") == 4
    assert export_jsonl(store, path, KEY, "random") == 0
    assert export_jsonl(store, path, KEY) == 4
    copy = MemoryStore()
    import_jsonl(path, copy)
    assert list(copy.records()) == list(store.records(KEY))
    assert [workload.name for workload in copy.workloads()] == ["dense"]


def test_lines_are_plain_json(store: RecordStore, tmp_path: Path) -> None:
    """What another program finds in a line."""
    path = tmp_path / "records.jsonl"
    export_jsonl(store, path)
    header, workload, _, record, *_ = map(json.loads, path.read_text().splitlines())
    assert header == {"format": "tunerplugin-records", "version": 1}
    assert workload["workload"] == ["9f86d081", "dense", "{}"]
    assert record["key"] == ["9f86d081", '{"kind":"llvm"}', "example-cpu", "tvm-0.27.0", "1"]
    assert record["record"] == {
        "elapsed_s": 0.0,
        "method": "ours",
        "reason": "",
        "samples_s": [0.001, 0.0011],
        "seed": 7,
        "status": "ok",
        "trace": '["trace"]',
        "trial": 0,
        "values": [0, 2.5, "unroll"],
        "wall_s": 0.25,
    }


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"digest": "00"}',
        b'{"digest": 1, "record": {}}',
        b'{"digest": "00", "workload": ["a"]}',
        b'{"digest": "00", "workload": ["a", "b", "c"]}',
        b'{"digest": "00", "key": ["a"], "record": {}}',
        b'{"digest": "00", "key": ["a", "b", "c", "d", 5], "record": {}}',
        b'{"digest": "00", "key": ["a", "b", "c", "d", "e"], "record": NaN}',
        b'__import__("os").abort()',
        b"\xff\xfe\x00",
        b"9" * 5000,
    ],
)
def test_damaged_line_in_the_middle(
    store: RecordStore, tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    export_jsonl(store, path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:4], line, *lines[4:], b""]))
    copy = MemoryStore()
    assert import_jsonl(path, copy) == ImportReport(5, 0, (5,))
    assert list(copy.records()) == list(store.records())
    assert caplog.messages == [f"{path}: left out 1 damaged lines (5)"]


def test_altered_fields_are_noticed(store: RecordStore, tmp_path: Path) -> None:
    """A better time, another device, another module."""
    path = tmp_path / "records.jsonl"
    export_jsonl(store, path)
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace("dense", "Dense")
    lines[3] = lines[3].replace("0.0011", "0.0001")
    lines[4] = lines[4].replace("example-cpu", "example-CPU")
    path.write_text("\n".join(lines) + "\n")
    copy = MemoryStore()
    assert import_jsonl(path, copy) == ImportReport(3, 0, (2, 4, 5))
    assert [record.trial for record in copy.records()] == [2, 3, 9]


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 2500))
def test_torn_tail(cut: int) -> None:
    """Whole lines load; a torn one gives one warning; nothing raises."""
    store = MemoryStore()
    store.extend(make_record(trial) for trial in range(6))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        export_jsonl(store, path)
        data = path.read_bytes()
        header = data.index(b"\n") + 1
        data = data[: max(header, len(data) - cut)]
        path.write_bytes(data)
        copy = MemoryStore()
        report = import_jsonl(path, copy)
    whole = data.count(b"\n") - 1
    tail = data[data.rindex(b"\n") + 1 :]
    # a line that lacks nothing but its newline is whole
    complete = tail.endswith(b"}}") and tail.count(b"{") == tail.count(b"}")
    assert report.added == whole + complete
    assert report.damaged_lines == ((whole + 2,) if tail and not complete else ())
    assert list(copy.records()) == list(store.records())[: report.added]


def test_torn_tail_warns_once(
    store: RecordStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    export_jsonl(store, path)
    path.write_bytes(path.read_bytes()[:-20])
    assert import_jsonl(path, MemoryStore()) == ImportReport(4, 0, (8,))
    (message,) = caplog.messages
    assert message == (
        f"{path}: left out 1 damaged lines (8); the last line is torn, its writer was interrupted"
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=3))
def test_bit_flips(flips: list[tuple[int, int]]) -> None:
    """Untouched lines survive; what loads is true."""
    store = MemoryStore()
    store.extend(make_record(trial) for trial in range(6))
    original = list(store.records())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        export_jsonl(store, path)
        data = bytearray(path.read_bytes())
        header = data.index(b"\n") + 1
        touched = set()
        for place, bit in flips:
            at = header + place % (len(data) - header)
            touched.add(data[:at].count(b"\n") - 1)
            touched.add(touched_next := data[: at + 1].count(b"\n") - 1)
            assert touched_next <= 6
            data[at] ^= 1 << bit
        path.write_bytes(data)
        copy = MemoryStore()
        import_jsonl(path, copy)
    loaded = list(copy.records())
    assert set(loaded) <= set(original)
    assert {r for i, r in enumerate(original) if i not in touched} <= set(loaded)


def test_large_import_is_batched(tmp_path: Path) -> None:
    """More than one batch, with a duplicate in the store."""
    store = MemoryStore()
    store.extend(make_record(trial) for trial in range(2500))
    export_jsonl(store, tmp_path / "records.jsonl")
    with SQLiteStore(tmp_path / "records.db") as target:
        target.append(make_record(17))
        report = import_jsonl(tmp_path / "records.jsonl", target)
        assert report == ImportReport(2499, 1, ())
        assert target.count() == 2500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected .* to begin with a tunerplugin-records line, got b''"),
        (b"{}\n", "expected .* to begin with a tunerplugin-records line"),
        (b"[1]\n", "expected .* to begin with a tunerplugin-records line"),
        (b"\x80\x04.", "expected .* to begin with a tunerplugin-records line"),
        (
            b'{"format": "tunerplugin-records", "version": 2}\n',
            "expected tunerplugin-records version 1 in .*, got 2; upgrade tunerplugin",
        ),
    ],
)
def test_other_formats_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        import_jsonl(path, MemoryStore())


def test_paths_that_cannot_be_used(store: RecordStore, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read .*missing"):
        import_jsonl(tmp_path / "missing", store)
    with pytest.raises(RecordError, match="cannot read .*: Is a directory"):
        import_jsonl(tmp_path, store)
    for bad in (tmp_path / "missing" / "out.jsonl", tmp_path):
        with pytest.raises(RecordError, match="cannot write"):
            export_jsonl(store, bad)
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot write .*: Not a directory"):
        export_jsonl(store, tmp_path / "file" / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_export_keeps_the_old_file(
    tmp_path: Path, store: RecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    export_jsonl(store, path)
    before = path.read_bytes()

    class Broken(MemoryStore):
        def workloads(self):  # type: ignore[no-untyped-def]
            yield Workload("key", "name", "{}")
            raise RecordError("the disk died")

    with caplog.at_level(logging.WARNING), pytest.raises(RecordError, match="the disk died"):
        export_jsonl(Broken(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
