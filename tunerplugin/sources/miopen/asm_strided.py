"""The assembly kernel for forward and backward-data convolutions of 1x1 filters with strides.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997:
``src/solver/conv/conv_asm_1x1u_stride2.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator

from .asm import (
    GCN_AND_CDNA,
    ONE_TO_8,
    POWERS_TO_64,
    addressable,
    fits_sgprs,
    splits_evenly,
    waves_that_fit,
)
from .limits import BYTE_OFFSETS, MAX_VGPRS, MAX_WAVES_PER_GROUP, WAVE_SIZE, ceil_div
from .problem import ConvProblem
from .rules import Rule
from .solver import Condition, Ranges, Solver

_1_TO_32 = tuple(range(1, 33))


class Asm1x1UV2(Solver):
    """Solver ``ConvAsm1x1UV2`` (1x1 with strides)."""

    fields = (
        "chunk_size",
        "dwords_per_ld",
        "k_mult",
        "c_mult",
        "n_mult",
        "w_mult",
        "h_mult",
        "h_per_chunk",
        "waves_k_in_group",
        "waves_c_in_group",
    )
    full: Ranges = (
        POWERS_TO_64,
        (1, 2, 3, 4),
        *((_1_TO_32,) * 5),
        POWERS_TO_64,
        ONE_TO_8,
        ONE_TO_8,
    )
    searched: Ranges = (
        (16, 32, 64),
        (1, 2, 3),
        (8, 16),
        (1, 2, 4),
        (1, 2),
        (1, 2),
        (1, 2),
        (2, 4, 8),
        (2, 4),
        (1, 2),
    )
    #: from so many work groups along the image on, the kernel divides with 64 bits
    WIDE_DIVISION = 1 << 16

    directions = "FB"
    dtypes = ("FP32",)
    filter_size = (1, 1)
    padding = 0
    strides = ((2, 2),)  # without strides, MIOpen leaves it to ConvAsm1x1U
    isas = GCN_AND_CDNA

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield addressable(p, p.h * p.w, 1 << 24)

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test of ``IsValid``."""
        kernel = _StridedKernel(p)
        loads = ("dwords_per_ld", "k_mult", "c_mult", "n_mult", "w_mult", "h_mult")
        shape = ("chunk_size", *loads, "h_per_chunk")
        waves = ("waves_k_in_group", "waves_c_in_group")

        def fits(*fields: int) -> bool:
            return kernel.vgprs(*fields) < MAX_VGPRS

        def occupancy(*fields: int) -> bool:
            *kernel_fields, wk, wc = fields
            return waves_that_fit(kernel.vgprs(*kernel_fields)) >= wk * wc

        def offsets(chunk: int, n_mult: int) -> bool:
            spare = n_mult * (WAVE_SIZE // chunk) - 1
            inputs = (p.c + spare) * p.c * p.h * p.w
            outputs = (p.k + spare) * p.k * p.ho * p.wo
            return max(inputs, outputs) * p.element_bytes < BYTE_OFFSETS

        return [
            Rule("backward k", ("k_mult",), lambda k: p.direction != "B" or p.k % k == 0),
            Rule("sgprs", ("k_mult", "c_mult"), fits_sgprs, falling=True),
            Rule("channels", ("c_mult",), lambda c: p.c % c == 0),
            Rule(
                "batch",
                ("chunk_size", "n_mult"),
                lambda chunk, n: n <= ceil_div(p.n, WAVE_SIZE // chunk),
            ),
            Rule("offsets", ("chunk_size", "n_mult"), offsets),
            Rule("vgprs", loads, lambda *f: kernel.least(*f) < MAX_VGPRS, falling=True),
            Rule("rows", ("chunk_size", "h_per_chunk"), lambda chunk, rows: rows <= chunk),
            Rule("all vgprs", shape, fits),
            Rule("k of a group", ("k_mult", waves[0]), lambda k, wk: k * wk <= p.k, falling=True),
            Rule("group size", waves, lambda wk, wc: wk * wc <= MAX_WAVES_PER_GROUP),
            Rule("split of c", ("c_mult", waves[1]), lambda c, wc: splits_evenly(p.c, wc, c)),
            Rule("occupancy", (*shape, *waves), occupancy),
        ]


class _StridedKernel:
    """Registers of the kernel of ``ConvAsm1x1UV2``; strides turn into dilations backwards."""

    def __init__(self, p: ConvProblem) -> None:
        self._stride_w, self._stride_h = (p.stride_w, p.stride_h) if p.forward else (1, 1)
        self._dilated = not p.forward and p.stride_w > 1
        self._packed = p.packed
        self._w, self._h = ceil_div(p.w, self._stride_w), ceil_div(p.h, self._stride_h)

    def least(self, dwords: int, k: int, c: int, n: int, w: int, h: int) -> int:
        """Vector registers without what special cases add."""
        active = ceil_div(dwords * self._packed, self._stride_w)
        return 6 + dwords * w * h * c * n * 2 + active * w * h * k * n

    def vgprs(self, *fields: int) -> int:
        """Vector registers of a lane, from the fields up to ``h_per_chunk``."""
        chunk, dwords, _, c, n, w, h, rows = fields
        wide = self._groups(chunk, dwords, w, h, rows) >= Asm1x1UV2.WIDE_DIVISION
        inputs = dwords * w * h * c * n * 2
        extra = int(wide)
        if self._dilated:
            extra += max(0, (2 if dwords == 1 else 4) - (inputs - 1))
        elif wide and inputs < 2:
            extra += 1
        return self.least(*fields[1:7]) + extra

    def _groups(self, chunk: int, dwords: int, w: int, h: int, rows: int) -> int:
        """Work groups along the image (the source divides width by rows, height by columns)."""
        columns = ceil_div(dwords, self._stride_w) * w * max(1, chunk // rows)
        return ceil_div(self._w, rows * h) * ceil_div(self._h, columns)
