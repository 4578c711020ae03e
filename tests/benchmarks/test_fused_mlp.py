"""The fused-MLP benchmark: what it counts and compares, and one real, smallest run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fused_mlp
import numpy as np
import pytest
from fused_mlp import Sample
from fused_mlp_methods import PEAK, Case, reference

CASE = Case(width=2, layers=3, batch=160, seed=0, threads=1)


def test_flops_of_a_call() -> None:
    # 3 layers of 2 x 2: 24 flops a row; TVM's default build gets a sixteenth of the rows
    assert CASE.flops("ours") == CASE.flops("torch") == 24 * 160
    assert CASE.flops("tvm-default") == 24 * 10
    # some hundred million, so that a call takes milliseconds
    assert CASE.flops(PEAK) > 1e8


def test_reference_is_linear_at_the_end() -> None:
    weight, bias = np.array([[-1.0]], np.float32), np.array([0.5], np.float32)
    case = Case(width=1, layers=2, batch=1, seed=0, threads=1)
    # relu(-1 * 2 + 0.5) = 0, then -1 * 0 + 0.5; and relu(1 + 0.5) = 1.5, then -1
    x = np.array([[2.0], [-1.0]], np.float32)
    np.testing.assert_allclose(reference(case, x, [(weight, bias)] * 2), [[0.5], [-1.0]])


def test_ratios_are_of_speeds_in_the_same_round() -> None:
    flops = {method: CASE.flops(method) for method in ("ours", PEAK)}
    samples = {
        PEAK: [Sample(flops[PEAK] / 8e9, 1.0), Sample(flops[PEAK] / 4e9, 1.0)],
        "ours": [Sample(flops["ours"] / 4e9, 1.0), Sample(flops["ours"] / 3e9, 1.0)],
        # twice the time of ours, and one round less
        "torch": [Sample(2 * flops["ours"] / 4e9, 3.0)],
    }
    rows = {(r.method, r.metric): r for r in fused_mlp.rows_of(CASE, samples)}
    assert rows["ours", "gflops"].value == pytest.approx(3.5)
    share = rows["ours", "share_of_peak"]
    assert (share.low, share.high) == pytest.approx((0.5, 0.75))
    assert rows["ours", "ratio_to_torch"].value == pytest.approx(2)
    assert rows["ours", "cpu_ratio_to_torch"].value == pytest.approx(3)
    assert ("torch", "share_of_peak") not in rows


def test_torch_waits_in_the_way_that_suits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning threads on a loaded machine made it a hundred times slower than it is."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    tried: list[dict[str, str]] = []

    class Slow(fused_mlp.Server):
        def __init__(self, *arguments: object) -> None:
            self.policy: dict[str, str] = arguments[-1]  # type: ignore[assignment]
            self.ready = ["torch"]
            tried.append(self.policy)

        def __exit__(self, *_: object) -> None:
            pass

        def seconds(self, method: str) -> tuple[float, float]:
            return (0.001 if self.policy else 0.19), 0.0

    monkeypatch.setattr(fused_mlp, "Server", Slow)
    assert fused_mlp.torch_policy(CASE, "torch") == {"OMP_WAIT_POLICY": "passive"}
    assert tried == [{}, {"OMP_WAIT_POLICY": "passive"}]
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert fused_mlp.torch_policy(CASE, "torch") == {}


def test_widths_are_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fused_mlp.py", "--widths", "16,300"])
    with pytest.raises(SystemExit) as stopped:
        fused_mlp.main()
    assert stopped.value.code == 2
    assert "expected widths of 1 to 256, got '16,300'" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_smallest_run_prints_rows(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, fused_mlp.__file__, "--quick", "--widths", "16", "--rounds", "2"]
    command += ["--threads", "1", "--log2-batch", "9", "--format", "json", "--out", str(out)]
    done = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    # A method that fails or is wrong is left out, and said to be.
    assert "left out" not in done.stderr
    assert "by the kernel" in done.stderr
    _, *rows = json.loads(out.read_text(encoding="utf-8"))
    speeds = {r["method"]: r["value"] for r in rows if r["metric"] == "gflops"}
    assert set(speeds) == {PEAK, "ours", "unfused", "tvm-default", "torch", "torch-chunked"}
    assert all(value > 0 for value in speeds.values())
    metrics = {r["metric"] for r in rows if (r["case"], r["method"]) == ("all", "ours")}
    assert {"share_of_peak", "ratio_to_torch", "ratio_to_unfused"} <= metrics
