"""Lets the tests run from the checkout, installed or not.

``setup.cfg`` installs ``schedules/`` and ``hw/`` as ``tunerplugin.schedules`` and
``tunerplugin.hw``; in the checkout they are found because the repository root is searched for
subpackages of ``tunerplugin`` too.  Child processes of the tests find the checkout through
``PYTHONPATH``.
"""

from __future__ import annotations

import os
from pathlib import Path

import tunerplugin

ROOT = Path(__file__).resolve().parent

if str(ROOT) not in tunerplugin.__path__:
    tunerplugin.__path__.append(str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
