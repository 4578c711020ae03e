"""TVM must not pin the thread that torch runs on; set before TVM starts its threads."""

from __future__ import annotations

import os

os.environ.setdefault("TVM_BIND_THREADS", "0")
