"""Scripts import their neighbours by plain name, as ``python examples/benchmarks/X.py`` has it."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "benchmarks"
sys.path.append(str(SCRIPTS))
