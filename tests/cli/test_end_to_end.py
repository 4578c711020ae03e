"""The verbs on a real model: tuned, stopped, killed, resumed, reported, exported."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tunerplugin.cli import main
from tunerplugin.errors import RecordError
from tunerplugin.records import Record, SQLiteStore

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]

TARGET = '{"kind": "llvm", "num-cores": 1}'
NET = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Net:
    @R.function
    def main(
        x: R.Tensor((64, 48), "float32"), w: R.Tensor((48, 32), "float32")
    ) -> R.Tensor((64, 32), "float32"):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a)
            R.output(b)
        return b
"""
DYNAMIC = NET.replace("64", '"n"')
MIXED = (
    NET.replace("class Net", "class Mixed")
    + """
    @R.function
    def other(x: R.Tensor(("n", 48), "float32")) -> R.Tensor(("n", 48), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a
"""
)


RUNNING: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def leave_nothing_running() -> Iterator[None]:
    """A test that fails half-way must not leave its tuner to slow the others."""
    yield
    while RUNNING:
        process = RUNNING.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def start(folder: Path, *argv: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tunerplugin", *argv, "--format", "json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    RUNNING.append(process)
    return process


def run(folder: Path, *argv: str, expect: int = 0) -> dict[str, Any]:
    """Run a verb to its end; its JSON document."""
    process = start(folder, *argv)
    out, err = process.communicate()
    assert process.returncode == expect, err
    document: dict[str, Any] = json.loads(out)
    return document


def tune(folder: Path, trials: int, *more: str) -> list[str]:
    arguments = ["tune", "net.py", "--trials", str(trials), "--work-dir", "work"]
    return [*arguments, "--target", TARGET, "--jobs", "1", *more]


def records(folder: Path) -> list[Record]:
    path = folder / "work" / "records.sqlite"
    with closing(SQLiteStore(path, read_only=True)) as store:
        return list(store.records())


def wait_for_records(folder: Path, process: subprocess.Popen[str], count: int) -> list[Record]:
    """The records of a running tuner as soon as there are ``count``."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        found: list[Record] = []
        with contextlib.suppress(RecordError):  # its tables are not there yet
            found = records(folder)
        if len(found) >= count:
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    raise AssertionError(f"expected {count} records in 200 s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work directory after four trials and, resumed, eight."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "net.py").write_text(NET)
    first = run(folder, *tune(folder, 4))
    assert first["status"] == "done"
    before = records(folder)
    second = run(folder, *tune(folder, 8))
    assert second["status"] == "done"
    after = records(folder)
    assert after[: len(before)] == before
    assert sum(r.method == "ours" for r in before) == 4
    assert sum(r.method == "ours" for r in after) == 8
    (folder / "second.json").write_text(json.dumps(second))
    return folder


def test_document_tells_the_coverage(tuned: Path) -> None:
    document = json.loads((tuned / "second.json").read_text())
    # "untuned": measured, and nothing was faster than the untuned schedule.
    assert {task["status"] for task in document["tasks"]} <= {"tuned", "untuned"}
    assert len(document["tasks"]) == 2
    assert sum(task["trials"] for task in document["tasks"]) == 8
    assert 0 < document["best_s"] <= document["untuned_s"]
    assert document["speedup_over_untuned"] >= 1
    assert len(document["use"]) == 3


def test_printed_lines_compile_the_model(tuned: Path) -> None:
    """What ``tune`` prints under "Use it" works, and measures nothing again."""
    before = records(tuned)
    use = json.loads((tuned / "second.json").read_text())["use"]
    script = tuned / "use.py"
    body = "\n    ".join([*use, "assert executable is not None"])
    script.write_text(f"import tunerplugin, tvm\nif __name__ == '__main__':\n    {body}\n")
    subprocess.run([sys.executable, str(script)], cwd=tuned, check=True)
    assert records(tuned) == before


def test_report_with_a_baseline(tuned: Path) -> None:
    document = run(tuned, "report", "work", "--out", "report", "--baseline-trials", "4")
    by_method = {point["method"] for point in document["points"]}
    assert by_method == {"ours", "random"}
    assert sum(point["method"] == "random" for point in document["points"]) == 4
    assert (tuned / "report" / "curve.png").is_file()


def test_export_to_metaschedule_can_be_read_by_tvm(tuned: Path) -> None:
    exported = run(tuned, "records", "export", "work", "--to", "metaschedule", "database")
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    database = JSONDatabase(work_dir=str(tuned / "database"))
    assert len(database.get_all_tuning_records()) == exported["records"] > 0


def test_check(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "check", str(tuned / "work")]) == 0


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stop_keeps_everything(folder: Path, signum: signal.Signals, code: int) -> None:
    process = start(folder, *tune(folder, 2000))
    before = wait_for_records(folder, process, 4)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    document = json.loads(out)
    assert document["status"] == "stopped"
    assert document["best_s"] > 0
    assert records(folder)[: len(before)] == before
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_killed_run_goes_on_and_its_trials_count(folder: Path) -> None:
    process = start(folder, *tune(folder, 2000))
    acknowledged = wait_for_records(folder, process, 5)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    kept = records(folder)
    assert kept[: len(acknowledged)] == acknowledged
    ours = sum(record.method == "ours" for record in kept)
    document = run(folder, *tune(folder, ours + 2))
    after = records(folder)
    assert after[: len(kept)] == kept
    assert sum(record.method == "ours" for record in after) == ours + 2
    assert document["status"] == "done"
    assert main(["records", "check", str(folder / "work")]) == 0


def test_predict_measures_nothing(folder: Path) -> None:
    document = run(folder, "predict", "net.py", "--target", TARGET, "--out", "database")
    assert [task["status"] for task in document["tasks"]] == ["predicted", "predicted"]
    assert not (folder / "work").exists()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    assert len(JSONDatabase(work_dir=str(folder / "database")).get_all_tuning_records()) == 2


def test_dynamic_task_is_skipped_with_a_sentence(folder: Path) -> None:
    (folder / "net.py").write_text(MIXED)
    document = run(folder, *tune(folder, 4))
    skipped = [task for task in document["tasks"] if task["status"] == "skipped"]
    assert len(skipped) == 1
    assert "dynamic" in skipped[0]["reason"] or "shape" in skipped[0]["reason"]
    assert sum(task["best_s"] is not None for task in document["tasks"]) == 2


def test_nothing_measured_is_a_failure(folder: Path) -> None:
    (folder / "net.py").write_text(DYNAMIC)
    process = start(folder, *tune(folder, 4))
    out, err = process.communicate()
    assert process.returncode == 1, err
    assert json.loads(out)["status"] == "nothing_measured"
    assert "expected a measured schedule, got none" in err


def test_demo_compares_three_builds(tmp_path: Path) -> None:
    document = run(tmp_path, "demo", "--trials", "9", "--work-dir", "work")
    names = [timing["name"] for timing in document["latencies"]]
    assert names == ["torch eager", "TVM untuned", "TVM tuned"]
    assert all(timing["equal"] for timing in document["latencies"])
    assert all(timing["latency_s"] > 0 for timing in document["latencies"])
    assert sum(task["best_s"] is not None for task in document["tasks"]) == 9
