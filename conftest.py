"""Child processes of the tests find the checkout, installed or not, wherever they are started."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
