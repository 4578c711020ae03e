"""Cycles of a systolic array: by hand on 2 x 2, against SCALE-Sim's and ZigZag's tables, laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import InputError
from tunerplugin.hw.accelerator import DATAFLOWS
from tunerplugin.hw.estimate.systolic import MODES, gemm_cycles

#: (m, n, k) -> rows of the demand matrix of SCALE-Sim 3.0.0 for ws, os, is on 128 x 128, then on
#: 32 x 32, as run
SCALE_SIM = {
    (32, 32, 32): (414, 286, 414, 126, 94, 126),
    (128, 128, 128): (510, 382, 510, 3552, 3040, 3552),
    (256, 256, 256): (2552, 2040, 2552, 22400, 20352, 22400),
    (100, 70, 50): (482, 304, 452, 1164, 1344, 1312),
    (1, 1024, 1024): (24512, 10224, 11248, 97280, 34752, 35776),
    (128, 128, 64): (510, 318, 510, 1776, 2016, 1776),
    (128, 64, 128): (510, 382, 446, 1776, 1520, 2528),
    (128, 768, 768): (18360, 6132, 6900, 127872, 79680, 82752),
    (128, 3072, 768): (73440, 24528, 20724, 511488, 318720, 303936),
    (128, 768, 3072): (73440, 19956, 27600, 511488, 300864, 331008),
    (784, 64, 147): (2332, 2807, 6244, 8780, 10450, 19750),
    (784, 64, 576): (5830, 5810, 15610, 31608, 31900, 71100),
    (49, 512, 4608): (62064, 19448, 32184, 329472, 149440, 174528),
    (300, 129, 257): (4092, 3066, 4599, 17730, 15950, 20070),
}
#: (m, n, k) -> latency of ZigZag 3.9.1 for ws and os on 128 x 128, ws on 32 x 32, as run
ZIGZAG = {
    (32, 32, 32): (96, 95, 96),
    (128, 128, 128): (384, 383, 2608),
    (256, 256, 256): (1788, 1342, 18432),
    (100, 70, 50): (220, 219, 766),
    (1, 1024, 1024): (8448, 8320, 32832),
    (128, 128, 64): (320, 319, 1336),
    (128, 64, 128): (320, 319, 1336),
    (128, 768, 768): (9436, 4926, 91648),
    (128, 3072, 768): (36976, 18750, 366400),
    (128, 768, 3072): (36976, 18750, 366400),
    (784, 64, 147): (1832, 1247, 8184),
    (784, 64, 576): (4397, 4250, 29404),
    (49, 512, 4608): (25600, 18632, 184384),
    (300, 129, 257): (2308, 1821, 14509),
}
#: (m, n, k, rows, columns, dataflow) -> the same where loads or write-outs outlast the streaming
ZIGZAG_SHORT = {
    (2, 62, 29, 128, 64, "ws"): 119,
    (188, 73, 6, 128, 128, "os"): 259,
    (5, 159, 2, 16, 32, "os"): 52,
    (89, 11, 3, 128, 64, "os"): 106,
    (10, 333, 1, 64, 16, "os"): 130,
    (389, 995, 1, 64, 64, "os"): 3151,
    (171, 527, 7, 64, 32, "os"): 1529,
    (838, 50, 5, 128, 32, "os"): 821,
}


def cycles(m: int, n: int, k: int, side: int, dataflow: str, mode: str, batch: int = 1) -> int:
    made = gemm_cycles(m, n, k, rows=side, columns=side, dataflow=dataflow, mode=mode, batch=batch)
    return int(made)


@pytest.mark.parametrize("gemm", SCALE_SIM, ids=str)
def test_serial_is_scale_sim(gemm: tuple[int, int, int]) -> None:
    ours = [
        cycles(*gemm, side, dataflow, "serial")
        for side in (128, 32)
        for dataflow in ("ws", "os", "is")
    ]
    assert ours == list(SCALE_SIM[gemm])


@pytest.mark.parametrize("gemm", ZIGZAG, ids=str)
def test_drain_once_is_zigzag(gemm: tuple[int, int, int]) -> None:
    arrays = ((128, "ws"), (128, "os"), (32, "ws"))
    ours = [cycles(*gemm, side, dataflow, "drain-once") for side, dataflow in arrays]
    assert ours == list(ZIGZAG[gemm])


@pytest.mark.parametrize("case", ZIGZAG_SHORT, ids=str)
def test_drain_once_is_zigzag_on_short_streams(case: tuple[int, int, int, int, int, str]) -> None:
    m, n, k, rows, columns, dataflow = case
    ours = gemm_cycles(m, n, k, rows=rows, columns=columns, dataflow=dataflow, mode="drain-once")
    assert int(ours) == ZIGZAG_SHORT[case]


@pytest.mark.parametrize(
    ("m", "n", "k", "dataflow", "mode", "expected"),
    [
        # One fold of a 2 x 2 array: load 2, then 2 streamed rows leave after a skew of 1 + 1.
        (2, 2, 2, "ws", "serial", 6),
        (2, 2, 2, "ws", "pipelined", 6),
        (2, 2, 2, "os", "serial", 4),  # nothing to load
        (2, 2, 2, "os", "pipelined", 4),
        (5, 2, 2, "is", "serial", 3 * 6),  # k in rows, m in columns: 3 folds of n = 2
        # k = 4 is two folds: load 2, stream 3 while the next loads, stream 3, skew 2.
        (3, 2, 4, "ws", "pipelined", 2 + 3 + 3 + 2),
        # m = 1 streams for less than a load: load 2, slot 2, stream 1, skew 2.
        (1, 2, 4, "ws", "pipelined", 2 + 2 + 1 + 2),
        # k = 3: the second fold holds one row, which loads within the streaming of the first.
        (1, 2, 3, "ws", "pipelined", 2 + 1 + 1 + 2),
        # A single unit used: load 1, stream 1, no skew.
        (1, 1, 1, "ws", "pipelined", 2),
        (1, 1, 1, "ws", "serial", 2 + 2 + 2 + 1 - 2),
    ],
)
def test_by_hand(m: int, n: int, k: int, dataflow: str, mode: str, expected: int) -> None:
    assert cycles(m, n, k, 2, dataflow, mode) == expected


sizes, sides = st.integers(1, 700), st.sampled_from([1, 2, 7, 16, 128])
arguments: dict[str, Any] = {
    "m": sizes,
    "n": sizes,
    "k": sizes,
    "side": sides,
    "dataflow": st.sampled_from(DATAFLOWS),
    "batch": st.integers(1, 5),
}


@settings(deadline=None)
@given(**arguments)
def test_pipelining_helps_and_no_unit_works_twice(
    m: int, n: int, k: int, side: int, dataflow: str, batch: int
) -> None:
    pipelined = cycles(m, n, k, side, dataflow, "pipelined", batch)
    assert pipelined <= cycles(m, n, k, side, dataflow, "serial", batch)
    for mode in MODES:
        assert cycles(m, n, k, side, dataflow, mode, batch) * side * side >= batch * m * n * k


@settings(deadline=None)
@given(
    **arguments, grow=st.sampled_from(["m", "n", "k", "batch"]), mode=st.sampled_from(MODES[::2])
)
def test_a_larger_product_takes_no_less(
    m: int, n: int, k: int, side: int, dataflow: str, batch: int, grow: str, mode: str
) -> None:
    size = {"m": m, "n": n, "k": k, "batch": batch}
    larger = size | {grow: size[grow] + 1}
    small = cycles(**size, side=side, dataflow=dataflow, mode=mode)
    assert cycles(**larger, side=side, dataflow=dataflow, mode=mode) >= small


def test_arrays_give_what_numbers_give() -> None:
    m, n, k = (np.array(column) for column in zip(*SCALE_SIM, strict=True))
    for mode in MODES:
        found = gemm_cycles(m, n, k, rows=32, columns=32, mode=mode)
        assert found.tolist() == [cycles(*gemm, 32, "ws", mode) for gemm in SCALE_SIM]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="expected a mode of serial, drain-once, pipelined, got"):
        cycles(2, 2, 2, 2, "ws", "fast")
    with pytest.raises(InputError, match="expected a dataflow of ws, os, is, got 'rs'"):
        cycles(2, 2, 2, 2, "rs", "serial")
    with pytest.raises(InputError, match="expected sizes of at least 1"):
        cycles(0, 2, 2, 2, "ws", "serial")
