"""The README's snippets for a TVM with Relay run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, flags=re.S | re.M)


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_snippets_run(tmp_path: Path) -> None:
    snippets = [snippet for snippet in PYTHON if "relay" in snippet]
    assert snippets
    for number, snippet in enumerate(snippets):
        script = tmp_path / f"snippet{number}.py"
        indented = snippet.replace("\n", "\n    ")
        script.write_text(f"if __name__ == '__main__':\n    {indented}")
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "fused" in done.stdout
    assert (tmp_path / "tuning.log").is_file()
