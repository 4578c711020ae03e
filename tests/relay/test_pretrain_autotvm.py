"""The pretraining example for AutoTVM's templates, on one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tvm import autotvm

from tunerplugin.predictor import Predictor

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pretrain_autotvm.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_weights_of_one_template(tmp_path: Path) -> None:
    log, out = tmp_path / "tuning.log", tmp_path / "weights.safetensors"
    chosen = (log, "--only", "batch_matmul.x86", "--threads", 1)
    done = run(*chosen, "--trials", 2)
    assert done.returncode == 0, done.stderr
    assert len(list(autotvm.record.load_from_file(str(log)))) == 2 * 4
    again = run(*chosen, "--trials", 2, "--out", out)  # measured already: it trains at once
    assert again.returncode == 0, again.stderr
    assert len(list(autotvm.record.load_from_file(str(log)))) == 2 * 4
    assert Predictor.load(out).info.training_data.endswith("AutoTVM's x86 templates")


def test_an_unknown_template_is_bad_input(tmp_path: Path) -> None:
    done = run(tmp_path / "tuning.log", "--only", "dense.x86")
    assert done.returncode == 2
    assert "expected --only among batch_matmul.x86, conv2d_NCHWc.x86" in done.stderr
