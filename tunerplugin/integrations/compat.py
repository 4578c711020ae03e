"""The one file that knows TVM generations: every TVM name that moved between them comes from here.

Today's TVM (0.25 and later) keeps MetaSchedule in ``tvm.s_tir`` and calls a schedulable unit an
*sblock*.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.tune_context import _normalize_mod as normalize_mod
from tvm.s_tir.schedule import Schedule, ScheduleError, Trace
from tvm.sym import detect_linear_equation

__all__ = [
    "SBlock",
    "SBlockRealize",
    "Schedule",
    "ScheduleError",
    "Trace",
    "compiler_version",
    "derived_object",
    "detect_linear_equation",
    "ms",
    "normalize_mod",
    "new_schedule",
    "plain",
    "region_buffer",
    "structural_hash",
    "tirx",
]


def compiler_version() -> str:
    """The compiler as it stands in record keys, e.g. ``tvm-0.27.0.post1``."""
    return f"tvm-{tvm.__version__}"


def new_schedule(mod: Any) -> Schedule:
    """A schedule without debug checks or rendered errors (both cost more than scheduling)."""
    return Schedule(mod, debug_mask="none", error_render_level="none")


def structural_hash(mod: Any) -> int:
    """Equal programs hash equal, whatever their variables are called."""
    return int(tvm_ffi.structural_hash(mod)) % 2**64


def plain(value: Any) -> Any:
    """A TVM immediate, string or array as a plain Python value."""
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return value.value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__iter__"):
        return tuple(plain(item) for item in value)
    return value


def region_buffer(region: Any) -> Any:
    """The buffer that a block's read or write region lies in."""
    return region.source if hasattr(region, "source") else region.buffer
