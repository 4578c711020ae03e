"""The fused-training examples: same loss as torch, a better one than at the start, a picture."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Captured = pytest.CaptureFixture[str]
NUMBER = r"([\d.e+-]+)"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--steps", "0", "expected a whole number of at least 1, got '0'"),
        ("--steps", "-3", "expected a whole number of at least 1, got '-3'"),
        ("--out", "picture.xyz", "expected a file name ending in .png, got 'picture.xyz'"),
        ("--out", "/dev/null/here.png", "expected a folder that can be written"),
    ],
)
def test_bad_options(
    option: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Before anything is trained, with a sentence and not a traceback."""
    monkeypatch.syspath_prepend(EXAMPLES)
    options_of = importlib.import_module("fused_training").options_of
    monkeypatch.setattr(sys, "argv", ["example", f"{option}={value}"])
    with pytest.raises(SystemExit) as stopped:
        options_of("An example.", "example.png", steps=2, quick=1)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["image", "nerf", "pinn"])
def test_quick_run(name: str, tmp_path: Path) -> None:
    out = tmp_path / "pictures" / "result.png"
    command = [sys.executable, str(EXAMPLES / f"fused_{name}.py"), "--quick", "--seed", "1"]
    done = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr

    def pair(line: str) -> list[float]:
        found = re.search(rf"^{line} +fused {NUMBER}.* torch {NUMBER}", done.stdout, re.M)
        assert found, done.stdout
        return [float(number) for number in found.groups()]

    first, last = pair("first loss"), pair("last losses")
    # the same weights and data: the same loss but for rounding, which grows while training goes on
    assert first[0] == pytest.approx(first[1], rel=1e-4)
    assert last[0] == pytest.approx(last[1], rel=0.02)
    assert last[0] < 0.9 * first[0]
    assert re.search(rf"speed beside torch {NUMBER}x", done.stdout)
    assert out.read_bytes().startswith(b"\x89PNG")
