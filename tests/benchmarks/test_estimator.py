"""The estimator benchmark: its cases, and its comparison against a stand-in interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import estimator
import pytest
from estimator import TOOLS, Case


def test_random_cases_are_seeded_and_as_described() -> None:
    for tool in TOOLS:
        groups = estimator.random_cases(tool, 20, seed=3)
        cases = [case for group in groups.values() for case in group]
        assert groups == estimator.random_cases(tool, 20, seed=3)
        assert groups != estimator.random_cases(tool, 20, seed=4)
        assert len(cases) == 20
        assert {case.dataflow for case in cases} == set(tool.dataflows)
        for case in cases:
            assert 1 <= min(case.m, case.n, case.k) <= max(case.m, case.n, case.k) <= 1024
            assert {case.rows, case.columns} <= {8, 16, 32, 64, 128}


def test_tables_hold_every_product() -> None:
    groups = estimator.table_cases(TOOLS[0], estimator.GEMMS)
    assert sum(len(cases) for cases in groups.values()) == 84
    assert groups["table os 32x32"][3] == Case(100, 70, 50, 32, 32, "os")


def stand_in(tmp_path: Path, answer: str) -> str:
    """An executable in place of the interpreter with the tools, which gives known answers."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nprint({answer!r})\n", encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def test_errors_are_relative_to_the_tool(tmp_path: Path) -> None:
    cases = [Case(2, 2, 2, 2, 2, "ws"), Case(2, 2, 4, 2, 2, "ws")]  # 6 and 12 cycles of ours
    rows = estimator.compare(TOOLS[0], "pair", cases, stand_in(tmp_path, "6\n16"))
    assert rows is not None
    by_metric = {(row.metric, row.method): row for row in rows}
    error = by_metric["relative_error", "serial"]
    assert (error.value, error.low, error.high) == (0.125, 0.0, 0.25)
    assert by_metric["equal", "serial"].value == 0.5
    assert ("seconds", "scalesim") in by_metric


def test_what_a_tool_gives_up_on_is_counted(tmp_path: Path) -> None:
    cases = [Case(2, 2, 2, 2, 2, "ws"), Case(1, 1, 1, 2, 2, "ws")]
    rows = estimator.compare(TOOLS[1], "pair", cases, stand_in(tmp_path, "5\nfailed"))
    assert rows is not None
    found = {row.metric: row.value for row in rows if row.metric != "seconds"}
    assert found == {"compared": 1, "failed": 1, "relative_error": 0.2, "equal": 0.0}
    (nothing,) = [estimator.compare(TOOLS[1], "one", cases[1:], stand_in(tmp_path, "failed"))]
    assert nothing is not None
    assert not {"relative_error", "equal"} & {row.metric for row in nothing}


def test_a_missing_tool_is_said(tmp_path: Path) -> None:
    cases = [Case(2, 2, 2, 2, 2, "ws")]
    assert estimator.compare(TOOLS[1], "one", cases, stand_in(tmp_path, "missing")) is None
    request = json.dumps({"tool": "no_such_tool", "cases": cases})
    done = subprocess.run(
        [sys.executable, str(estimator.RIVALS)],
        input=request,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "missing\n"


@pytest.mark.heavy
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.module)
def test_modes_equal_the_tools_live(tool: estimator.Tool) -> None:
    python = os.environ.get("ESTIMATOR_RIVALS_PYTHON", sys.executable)
    cases = [Case(37, 20, 50, 16, 8, tool.dataflows[0]), Case(9, 64, 65, 16, 8, tool.dataflows[0])]
    found = estimator.theirs(tool, cases, python)
    if found is None:
        pytest.skip(f"{tool.module} is not installed; ESTIMATOR_RIVALS_PYTHON names where it is")
    assert estimator.ours(cases, tool.mode) == found
