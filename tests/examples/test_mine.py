"""The mining examples run and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tunerplugin.hw.datasheet import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def output(name: str, *options: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_one_model(tmp_path: Path) -> None:
    text = output("mine_model.py", "--area", "150", "--power", "90", "--out", str(tmp_path))
    design = load(tmp_path / "mined-mlp.toml")
    assert design.area_mm2 is not None and design.area_mm2 <= 150
    teraflops = re.search(r"as a target: ([\d.]+) TFLOPS", text)
    assert teraflops and float(teraflops[1]) == pytest.approx(design.peak_flops / 1e12, abs=0.06)
    assert (tmp_path / "front.csv").is_file()


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_common_design() -> None:
    text = output("mine_common.py", "--models", "resnet18,vgg16=2", "--batch", "4")
    shares = [float(share) for share in re.findall(r"\(([\d.]+)%\) on the common", text)]
    # each on a design of its own is no slower, but for what the heuristic misses
    assert len(shares) == 2 and all(30 < share < 102 for share in shares)


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_comparison(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "comparison.png"
    options = ("--model", "vgg16", "--batch", "4", "--technology", "7nm-cache")
    text = output("mine_compare.py", *options, "--out", str(out))
    ratios = [float(ratio) for ratio in re.findall(r"([\d.]+)x$", text, re.M)]
    assert len(ratios) == 3 and min(ratios) >= 0.99
    assert out.read_bytes().startswith(b"\x89PNG")
