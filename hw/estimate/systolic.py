"""Cycles of a matrix product on one systolic array of R rows and C columns.

A product (m, k) x (k, n) is cut into *folds* that fill the array; one operand stays in it, another
streams through for T cycles per fold:

==================  =========  ============  ==========
dataflow            rows hold  columns hold  streamed T
==================  =========  ============  ==========
weight stationary   k          n             m
output stationary   m          n             k
input stationary    k          m             n
==================  =========  ============  ==========

Three modes say how much of the folds overlaps; the truth of a real chip lies between the first
and the last:

``serial``
    Every fold loads, fills, streams and drains by itself.  Equal, cycle for cycle, to the compute
    part of SCALE-Sim 3 (Raj et al., ISPASS 2025); its report prints one less.
``drain-once``
    Folds follow one another in the array, which fills and drains once; the stationary operand is
    loaded between them through a port of C words per cycle.  Equal to ZigZag 3.9 (Mei et al., IEEE
    Trans. Computers 2021) on a weight or output stationary array of one word per unit whose ports
    carry R words of the streamed operand, C of the stationary one and C of the output.  Outer
    products (k of 1), output stationary, may come out up to a sixth higher: there ZigZag averages
    over folds of different size.
``pipelined``
    The stationary operand is double buffered as in a TPU: the next fold loads while one streams.

All functions take whole numbers or numpy arrays of them, and broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..accelerator import DATAFLOWS

MODES = ("serial", "drain-once", "pipelined")
Whole = int | npt.NDArray[np.int64]


def gemm_cycles(
    m: Whole,
    n: Whole,
    k: Whole,
    *,
    rows: Whole,
    columns: Whole,
    dataflow: str = "ws",
    mode: str = "pipelined",
    batch: Whole = 1,
) -> npt.NDArray[np.int64]:
    """Cycles of ``batch`` products (m, k) x (k, n) on one array of ``rows`` x ``columns``.

    Raises ``InputError`` for an unknown dataflow or mode, and for sizes below 1.
    """
    check_mode(mode)
    if dataflow not in DATAFLOWS:
        raise InputError(f"expected a dataflow of {', '.join(DATAFLOWS)}, got {dataflow!r}")
    sizes = [np.asarray(size, dtype=np.int64) for size in (m, n, k, rows, columns, batch)]
    if any(size.size and size.min() < 1 for size in sizes):
        raise InputError("expected sizes of at least 1 in a matrix product and its array")
    m_, n_, k_, r, c, b = sizes
    # extents held by rows and columns, and the streamed one
    held_r, held_c, streamed = {"ws": (k_, n_, m_), "os": (m_, n_, k_), "is": (k_, m_, n_)}[
        dataflow
    ]
    cycles = {"serial": _serial, "drain-once": _drain_once, "pipelined": _pipelined}[mode]
    return np.asarray(cycles(held_r, held_c, streamed, r, c, b, dataflow == "os"))


def check_mode(mode: str) -> None:
    """Raise ``InputError`` unless ``mode`` is one of ``MODES``."""
    if mode not in MODES:
        raise InputError(f"expected a mode of {', '.join(MODES)}, got {mode!r}")


def _serial(held_r: Any, held_c: Any, t: Any, r: Any, c: Any, b: Any, outputs_stay: bool) -> Any:
    """Load r unless outputs stay; skew r + c - 2; stream t: once for each fold."""
    load = 0 if outputs_stay else r
    return b * ceil_div(held_r, r) * ceil_div(held_c, c) * (load + r + c + t - 2)


def _drain_once(
    held_r: Any, held_c: Any, t: Any, r: Any, c: Any, b: Any, outputs_stay: bool
) -> Any:
    folds_r, folds_c = ceil_div(held_r, r), ceil_div(held_c, c)
    folds = b * folds_r * folds_c
    skew = np.minimum(r, held_r) - 1 + np.minimum(c, held_c) - 1
    tile = (held_r // folds_r) * (held_c // folds_c)  # ZigZag evens the folds out
    if outputs_stay:
        # A result is half as wide as a sum; a tile leaves while the next one is computed.
        write = ceil_div(tile, 2 * c)
        last = np.where(folds == 1, np.maximum(write - t, 1), write)
        return folds * t + (folds - 1) * np.maximum(write - t, 0) + last + skew
    load = ceil_div(tile, c)
    first = np.where(folds == 1, np.maximum(load - t, 1), load)
    return folds * t + (folds - 1) * (load - 1) + first + 1 + skew


def _pipelined(held_r: Any, held_c: Any, t: Any, r: Any, c: Any, b: Any, outputs_stay: bool) -> Any:
    """First load, then a slot per fold in which it streams and the next one loads, then the skew.

    A fold that holds fewer rows loads (or, with outputs stationary, shifts out) in fewer cycles.
    """
    first = np.minimum(r, held_r)
    columns = b * ceil_div(held_c, c)
    ragged = held_r % r
    slots = columns * ((held_r // r) * np.maximum(t, r) + (ragged > 0) * np.maximum(t, ragged))
    slots = slots - np.maximum(t, first) + t
    skew = first - 1 + np.minimum(c, held_c) - 1
    return (0 if outputs_stay else first) + slots + skew


def ceil_div(a: Any, b: Any) -> Any:
    """``a / b`` rounded up, in whole numbers."""
    return -(-a // b)
