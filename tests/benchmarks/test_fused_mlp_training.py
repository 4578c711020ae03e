"""The training benchmark: what it counts, and one real, smallest run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fused_mlp_training
import pytest
from fused_mlp_training import Case


def test_flops_of_a_step() -> None:
    # two layers of 3 x 3 on 5 rows: 90 per product; the first needs no gradient of its input
    assert Case(3, 2, 5).flops == 90 * 5


def test_all_methods_compute_the_same_gradients() -> None:
    import torch

    case = Case(8, 2, 40)
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    found = []
    for method in fused_mlp_training.METHODS:
        module = fused_mlp_training.module_of(case, method, seed=0)
        module(x).square().sum().backward()
        found.append([parameter.grad for parameter in module.parameters()])
    for ours in found[:-1]:
        for a, b in zip(ours, found[-1], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_smallest_run_prints_rows(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, fused_mlp_training.__file__, "--quick", "--widths", "16"]
    command += ["--rounds", "2", "--log2-batch", "14", "--format", "json", "--out", str(out)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    head, *rows = json.loads(out.read_text(encoding="utf-8"))
    assert "fused_mlp_training.py" in head["command"]
    case = "16x4 batch 16384"
    found = {(row["case"], row["method"], row["metric"]): row["value"] for row in rows}
    for method in fused_mlp_training.METHODS:
        step, speed = found[case, method, "step_s"], found[case, method, "gflops"]
        # two rounds: the median is a mean, of times here and of their inverses there
        assert speed >= Case(16, 4, 1 << 14).flops / step / 1e9 * 0.999
    for method in ("ours", "ours_stored"):
        assert found["all", method, "training_ratio_to_torch"] > 0
    # torch keeps three hidden activations of 1 MiB each, and so does ours_stored
    assert found[case, "torch", "memory_mib"] > 3
    assert found[case, "ours_stored", "memory_mib"] > 3
    assert found[case, "ours", "memory_mib"] < found[case, "torch", "memory_mib"]
