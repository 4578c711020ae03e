"""The pretraining example, on the smallest kind of operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tunerplugin.predictor import Predictor

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pretrain_cpu.py"


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_weights_of_one_kind_of_operator(tmp_path: Path) -> None:
    out = tmp_path / "weights.safetensors"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "work"), "--only", "softmax"]
    done = subprocess.run(
        [*command, "--trials", "3", "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "held-out task" in done.stdout
    predictor = Predictor.load(out)
    assert "9 measurements of 3 operators" in predictor.info.training_data
