"""Tables and documents on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tunerplugin.cli import render


@dataclass(frozen=True)
class Task:
    name: str = "conv"
    operator: str = "conv2d"
    weight: float = 1
    status: str = "tuned"
    reason: str = ""
    untuned_s: float | None = 4e-3
    best_s: float | None = 1e-3
    trials: int = 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (2.5, "2.5 s"),
        (0.00123, "1.23 ms"),
        (12.34e-6, "12.3 us"),
        (5e-9, "5 ns"),
        (0.0, "0 ns"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert render.duration(seconds) == text


def test_table_aligns_text_left_and_numbers_right() -> None:
    assert render.table(("name", "n"), [("a", 10), ("long", 3)]) == ("name   n\na     10\nlong   3")
    assert render.table(("name", "n"), []) == "name  n"


def test_totals_are_weighted_and_leave_unknown_tasks_out() -> None:
    tasks = [Task(weight=2), Task(weight=1, untuned_s=1e-3), Task(best_s=None)]
    untuned_s, best_s = render.totals(tasks)
    assert untuned_s == pytest.approx(9e-3)
    assert best_s == pytest.approx(3e-3)
    assert render.totals([Task(untuned_s=None)]) == (None, None)


def test_coverage_table_gives_reasons() -> None:
    skipped = Task("dyn", "matmul", 1, "skipped", "dynamic shape n", None, None, 0)
    text = render.coverage_table([Task(), skipped])
    assert "4.00x" in text
    assert text.splitlines()[-1] == "skipped: dyn: dynamic shape n"
    document = render.result_document([Task(), skipped])
    assert document["speedup_over_untuned"] == pytest.approx(4.0)
    assert document["tasks"][1]["reason"] == "dynamic shape n"
    assert json.loads(json.dumps(document)) == document


def test_emit_refuses_what_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render.emit("json", {"latency": float("nan")}, "")
    render.emit("json", {"a": 1}, "text")
    render.emit("table", {"a": 1}, "text")
    assert capsys.readouterr().out == '{\n  "a": 1\n}\ntext\n'


def test_noise_goes_to_stderr_even_from_other_processes() -> None:
    code = (
        "import os, subprocess, sys; from tunerplugin.cli import render\n"
        "with render.stdout_to_stderr():\n"
        "    print('python'); os.write(1, b'native\\n'); subprocess.run(['echo', 'child'])\n"
        "print('result')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "result\n"
    assert sorted(done.stderr.split()) == ["child", "native", "python"]
