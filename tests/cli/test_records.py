"""``records`` and ``report`` on stores written by hand."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tunerplugin.cli import curve, main
from tunerplugin.errors import InputError
from tunerplugin.outcome import Outcome, Status
from tunerplugin.records import MemoryStore, Record, SQLiteStore, TaskKey, Workload

CPU = ('{"kind":"llvm"}', "cpu", "tvm-0.27.0")
CONV, DENSE = TaskKey("conv", *CPU, "space 1"), TaskKey("dense", *CPU, "space 2")


def record(
    key: TaskKey, method: str, trial: int, latency_s: float | None, elapsed_s: float
) -> Record:
    outcome = Outcome(Status.TIMEOUT, (), "slow", 1.0)
    if latency_s is not None:
        outcome = Outcome.from_samples([latency_s], 0.5)
    return Record(key, (trial,), outcome, method, 0, trial, elapsed_s)


RECORDS = (
    record(CONV, "untuned", 0, 8e-3, 1.0),
    record(DENSE, "untuned", 0, 1e-3, 2.0),
    record(CONV, "ours", 1, 4e-3, 3.0),
    record(DENSE, "ours", 1, None, 4.0),
    record(CONV, "ours", 2, 6e-3, 5.0),
    record(DENSE, "ours", 2, 5e-4, 6.0),
    record(CONV, "final", 4, 3e-3, 6.0),
    record(CONV, "random", 1, 7e-3, 0.5),
    record(DENSE, "random", 1, 2e-3, 0.25),
)


def fill(store: MemoryStore | SQLiteStore, records: Sequence[Record] = RECORDS) -> None:
    store.put_workload(Workload("conv", "fused_conv2d", "{}"))
    store.put_workload(Workload("dense", "fused_dense", "{}"))
    store.start_run({"weights": json.dumps({"conv": 2, "dense": 1})})
    store.extend(records)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    with SQLiteStore(folder / "records.sqlite") as store:
        fill(store)
    return folder


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, object]]:
    code = main([*argv, "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return code, document


def test_list(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(capsys, "records", "list", str(work_dir))
    assert code == 0
    conv, dense = document["tasks"]  # type: ignore[misc]
    assert conv["task"] == "fused_conv2d"
    assert conv["best_s"] == {
        "untuned": 8e-3,
        "ours": 4e-3,
        "final": 3e-3,
        "random": 7e-3,
    }
    assert dense["statuses"] == {"ok": 3, "timeout": 1}
    assert main(["records", "list", str(work_dir)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "fused_dense" in line)
    assert row.split()[-4:] == ["1", "ms", "500", "us"]


def test_jsonl_goes_round(
    work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, copy = str(tmp_path / "out.jsonl"), str(tmp_path / "copy")
    code, document = run_json(capsys, "records", "export", str(work_dir), "--to", "jsonl", out)
    assert (code, document["records"]) == (0, len(RECORDS))
    code, document = run_json(capsys, "records", "import", copy, out)
    assert (code, document["added"], document["present"]) == (0, len(RECORDS), 0)
    code, document = run_json(capsys, "records", "import", copy, out)
    assert (code, document["added"], document["present"]) == (0, 0, len(RECORDS))
    with SQLiteStore(tmp_path / "copy" / "records.sqlite", read_only=True) as store:
        assert tuple(store.records()) == RECORDS


def test_import_leaves_a_damaged_line_out_and_says_so(
    work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["records", "export", str(work_dir), "--to", "jsonl", str(out)]) == 0
    lines = out.read_text().splitlines()
    lines[4] = lines[4][:-9]
    out.write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    code, document = run_json(capsys, "records", "import", str(tmp_path / "copy"), str(out))
    assert (code, document["added"]) == (1, len(RECORDS) - 1)
    assert document["damaged_lines"] == [5]


def test_t4(work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t4.json"
    code, document = run_json(capsys, "records", "export", str(work_dir), "--to", "t4", str(out))
    assert (code, document["records"]) == (0, len(RECORDS))
    results = json.loads(out.read_text())["results"]
    assert [r["invalidity"] for r in results].count("timeout") == 1


def test_export_into_a_missing_folder_is_bad_input(
    work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "no" / "such" / "out.jsonl")
    assert main(["records", "export", str(work_dir), "--to", "jsonl", out]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_check(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(capsys, "records", "check", str(work_dir))
    assert (code, document["ok"], document["records"]) == (0, True, len(RECORDS))


def test_check_finds_a_changed_record(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(work_dir / "records.sqlite") as connection:
        tables = connection.execute(
            "select name from sqlite_master where type='table' and name like 'record%'"
        ).fetchall()
        (table,) = (name for (name,) in tables)
        texts = [
            row[1] for row in connection.execute(f"pragma table_info({table})") if "TEXT" in row[2]
        ]
        connection.execute(
            f"update {table} set {texts[-1]} = replace({texts[-1]}, '0.004', '0.003')"
            " where rowid = 3"
        )
    connection.close()
    code, document = run_json(capsys, "records", "check", str(work_dir))
    assert (code, document["ok"]) == (1, False)
    assert document["damaged_records"] == [3]


def test_check_of_garbage_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records.sqlite").write_bytes(b"no database" * 100)
    assert main(["records", "check", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_curve_is_the_weighted_best_so_far() -> None:
    store = MemoryStore()
    fill(store)
    result = curve.curves(store)
    assert result.untuned_s == pytest.approx(17e-3)
    ours = [(p.trial, p.seconds, p.best_s) for p in result.of("ours")]
    expected = [(1, 3.0, 9e-3), (2, 4.0, 9e-3), (3, 5.0, 9e-3), (4, 6.0, 8.5e-3)]
    assert ours == [pytest.approx(point) for point in expected]
    # The second random task ran on a clock of its own: 0.5 s, then 0.25 s more.
    random = [(p.trial, p.seconds, p.best_s) for p in result.of("random")]
    assert random == [pytest.approx((1, 0.5, 15e-3)), pytest.approx((2, 0.75, 15e-3))]
    assert result.methods() == ["ours", "random"]
    assert result.left_out == 0


@pytest.mark.parametrize(
    "other",
    [
        TaskKey("conv", '{"kind":"llvm"}', "another cpu", "tvm-0.27.0", "space 1"),
        TaskKey("conv", '{"kind":"llvm"}', "cpu", "tvm-0.27.0", "space 0"),
    ],
)
def test_curve_leaves_other_machines_and_spaces_out(other: TaskKey) -> None:
    store = MemoryStore()
    fill(store, (*RECORDS, record(other, "untuned", 0, 1e-9, 1.0)))
    result = curve.curves(store)
    assert result.untuned_s == pytest.approx(17e-3)
    assert result.left_out == 1


@pytest.mark.parametrize(
    ("records", "message"),
    [((), "got none; run tunerplugin tune first"), (RECORDS[2:], "untuned schedule of some task")],
)
def test_curve_needs_a_start(records: tuple[Record, ...], message: str) -> None:
    store = MemoryStore()
    fill(store, records)
    with pytest.raises(InputError, match=message):
        curve.curves(store)


def test_report_writes_csv_and_png(
    work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    code, document = run_json(capsys, "report", str(work_dir), "--out", str(out))
    assert code == 0
    assert document["files"] == {"csv": str(out / "curve.csv"), "png": str(out / "curve.png")}
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    with (out / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows if row["method"] == "ours"] == ["0", "1", "2", "3", "4"]
    assert float(rows[4]["best_s"]) == pytest.approx(8.5e-3)
    assert main(["report", str(work_dir), "--out", str(out)]) == 0
    assert "2.00x" in capsys.readouterr().out


def test_report_without_matplotlib(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["report", str(work_dir), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["files"] == {"csv": str(work_dir / "curve.csv")}
    assert "pip install 'tunerplugin[plot]'" in captured.err
    assert (work_dir / "curve.csv").is_file()


def test_reader_that_goes_away_is_no_traceback(work_dir: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tunerplugin", "records", "list", str(work_dir)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
