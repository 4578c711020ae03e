"""The fused-training examples: same loss as torch, a better one than at the start, a picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NUMBER = r"([\d.e+-]+)"


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
