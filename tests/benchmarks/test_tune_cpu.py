"""The CPU tuning benchmark: how runs become rows, and one real, smallest run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tune_cpu
from harness import Row
from tune_cpu import Trial
from tuning_run import TuningRun, start

RUN = TuningRun([None, 4.0, 5.0, 2.0], [1.0, 3.0, 4.0, 20.0], total_s=25.0, module="text")


def table(rows: list[Row]) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    return {(r.case, r.method, r.metric): (r.value, r.low, r.high) for r in rows}


def trial(ours: float, stock: float, untuned: float = 8.0) -> Trial:
    samples = {"untuned": untuned, "ours": ours, "stock": stock}
    return Trial(
        {"ours": RUN, "stock": TuningRun(error="exit code 1")},
        # the machine is twice as slow in the second round
        {method: (seconds, 2 * seconds, seconds) for method, seconds in samples.items()},
        frozenset({"stock"}),
    )


def test_curve_of_a_run() -> None:
    assert RUN.first_s == 3.0
    assert [RUN.best_after(n) for n in (1, 2, 3, 4, 99)] == [None, 4.0, 4.0, 2.0, 2.0]
    assert [RUN.best_at(s) for s in (0.5, 3.0, 19.0, 20.0)] == [None, 4.0, 4.0, 2.0]
    assert TuningRun().first_s is None


def test_rows_of_an_operator() -> None:
    found = table(tune_cpu.operator_rows("dense", [trial(2.0, 4.0), trial(1.0, 4.0)]))
    assert found["dense", "ours", "latency_s"] == (1.5, 1.0, 2.0)
    assert found["dense", "untuned", "latency_s"] == (8.0, 8.0, 8.0)
    assert found["dense", "ours", "speedup_over_untuned"] == (6.0, 4.0, 8.0)
    assert found["dense", "ours", "speedup_over_stock"] == (3.0, 2.0, 4.0)
    assert found["dense", "ours", "latency_s_after_15_s"] == (4.0, 4.0, 4.0)
    assert found["dense", "ours", "latency_s_after_30_s"] == (2.0, 2.0, 2.0)
    assert found["dense", "ours", "seconds_to_first_measurement"] == (3.0, 3.0, 3.0)
    assert found["dense", "ours", "total_s"] == (25.0, 25.0, 25.0)
    assert found["dense", "stock", "failed_runs"] == (2, 2, 2)
    assert ("dense", "stock", "total_s") not in found
    assert ("dense", "ours", "failed_runs") not in found
    assert ("dense", "ours", "speedup_over_random") not in found


def test_summary_is_a_geometric_mean_with_the_range_over_seeds() -> None:
    results = {
        "dense": [trial(2.0, 4.0), trial(1.0, 4.0)],
        "softmax": [trial(8.0, 4.0), trial(4.0, 4.0)],
    }
    found = table(tune_cpu.summary_rows(results))
    # seed 0: 2 and 0.5, seed 1: 4 and 1
    assert found["all", "ours", "speedup_over_stock"] == pytest.approx((1.5, 1.0, 2.0))
    assert found["all", "ours", "seconds_to_first_measurement"] == (3.0, 3.0, 3.0)


def test_a_run_that_dies_is_reported(tmp_path: Path) -> None:
    run = start("ours", "nosuch", 1, 0, tmp_path)
    assert run.module is None
    assert run.error == "exit code 1: KeyError: 'nosuch'"


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_smallest_run_prints_rows(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, tune_cpu.__file__, "--quick", "--trials", "2"]
    command += ["--operators", "softmax", "--methods", "ours,random"]
    command += ["--format", "json", "--out", str(out)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    head, *rows = json.loads(out.read_text(encoding="utf-8"))
    assert "tune_cpu.py" in head["command"]
    for row in rows:
        assert set(row) == {"case", "method", "metric", "value", "unit", "low", "high"}
        assert 0 < row["low"] <= row["value"] <= row["high"]
    found = {(row["case"], row["method"], row["metric"]) for row in rows}
    for method in ("untuned", "ours", "random"):
        assert ("softmax", method, "latency_s") in found
    for method in ("ours", "random"):
        assert ("softmax", method, "seconds_to_first_measurement") in found
        assert ("all", method, "speedup_over_untuned") in found
        assert ("softmax", method, "failed_runs") not in found
    assert ("all", "ours", "speedup_over_random") in found
