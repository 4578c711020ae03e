"""The benchmark of the fused MLP through Relay runs, and what it measured is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "relay_fused_mlp.py"


def test_a_small_run() -> None:
    small = ["--width", "16", "--layers", "2", "--log2-batch", "6", "--rounds", "2"]
    command = [sys.executable, str(SCRIPT), *small, "--threads", "1", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    header, *rows = json.loads(done.stdout)
    assert header["versions"]["tvm"] != "not installed"
    found = {(row["method"], row["metric"]): row["value"] for row in rows}
    assert found["fused", "max_error"] < 1e-4 and found["unfused", "max_error"] < 1e-4
    assert found["fused", "difference"] < 1e-4
    assert found["fused", "speedup"] > 0 and found["fused", "latency_ms"] > 0
    assert "main: nn.dense_0..nn.relu_1 (16-16-16) fused" in done.stderr
