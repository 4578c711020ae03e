"""Assembly kernels for backward-weights convolutions.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997:
``src/solver/conv/conv_asm_dir_BwdWrW1x1.cpp`` and ``conv_asm_dir_BwdWrW3x3.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from .asm import GCN_AND_CDNA, addressable
from .limits import LANE_BYTES, LDS_BYTES, MAX_VGPRS, WAVE_SIZE, ceil_div
from .problem import ConvProblem
from .rules import Rule
from .solver import STRIDES_TO_2, Condition, Ranges, Signature, Solver

_POWERS_TO_16 = (1, 2, 4, 8, 16)


def reduction_fits(groups: int, accumulators: int) -> bool:
    """Whether all but one of ``groups`` waves can leave their accumulators in the LDS."""
    return (groups - 1) * WAVE_SIZE * LANE_BYTES * accumulators <= LDS_BYTES


def vgpr_budget(waves: int) -> int:
    """Vector registers of a lane when so many waves share a work group: 4 SIMDs, else half."""
    return MAX_VGPRS // 2 if waves > 4 else MAX_VGPRS


class AsmBwdWrW1x1(Solver):
    """Solver ``ConvAsmBwdWrW1x1``."""

    fields = (
        "chunk_size",
        "c_per_gpr",
        "c_mult",
        "k_per_gpr",
        "k_mult",
        "n_per_gpr",
        "n_part_cnt",
        "read_size",
        "short_store",
        "data_prefetch",
    )
    full: Ranges = (
        *((_POWERS_TO_16,) * 5),
        (1, 2, 4),
        tuple(range(1, 9)),
        (1, 2, 3, 4),
        (0, 1),
        (0, 1, 2, 3, 4),
    )
    searched: Ranges = (
        (1, 2, 4),
        (2, 4, 8, 16),
        (2, 4, 8),
        (1, 2, 4, 8),
        (2, 4, 8),
        (1, 2),
        (1, 2, 4),
        (2, 4),
        (0,),
        (0, 1, 2, 3),
    )

    directions = "W"
    filter_size = (1, 1)
    padding = 0
    strides = STRIDES_TO_2
    isas = GCN_AND_CDNA

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield addressable(p, min(p.h * p.w, p.ho * p.wo), 1 << 24)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        return (p.half, self._widened(p, isa), p.k % 2)

    @staticmethod
    def _widened(p: ConvProblem, isa: str) -> bool:
        """gfx8 and gfx9 have no BF16 arithmetic: inputs are widened into other registers."""
        return p.half and p.dtype != "FP16" and isa.startswith(("gfx8", "gfx9"))

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test of ``IsValid``."""
        widened = self._widened(p, isa)

        def lanes(chunk: int, c_per_gpr: int, n_per_gpr: int) -> bool:
            pixels, rest = divmod(WAVE_SIZE, chunk * c_per_gpr * n_per_gpr)
            return rest == 0 and pixels in (1, 2, 4)

        def vgprs(c: int, k_per: int, k: int, parts: int, read: int, prefetch: int) -> bool:
            loads = (c + k) * read * (prefetch + 1 + widened)
            return c * k * k_per + 12 + loads <= vgpr_budget(parts)

        def store(c_mult: int, short: int) -> bool:
            if not p.half:
                return short == 0
            return short == 1 or (c_mult % 2 == 0 and p.k % 2 == 0)

        return [
            Rule(
                "channels of a register",
                ("chunk_size", "c_per_gpr"),
                lambda chunk, c: chunk * c >= 16 and (chunk == 1 or chunk * c <= 16),
            ),
            Rule("k of a register", ("c_per_gpr", "k_per_gpr"), lambda c, k: k <= c),
            Rule("lanes", ("chunk_size", "c_per_gpr", "n_per_gpr"), lanes),
            Rule(
                "vgprs",
                ("c_mult", "k_per_gpr", "k_mult", "n_part_cnt", "read_size", "data_prefetch"),
                vgprs,
                falling=True,
            ),
            Rule(
                "lds",
                ("c_mult", "k_per_gpr", "k_mult", "n_part_cnt"),
                lambda c, k_per, k, parts: reduction_fits(parts, c * k * k_per),
            ),
            Rule("store", ("c_mult", "short_store"), store),
        ]


class AsmBwdWrW3x3(Solver):
    """Solver ``ConvAsmBwdWrW3x3``."""

    fields = (
        "limit_wave_cnt",
        "reverse_inout",
        "chunk_size",
        "k_per_wave",
        "pipe_lines_depth",
        "n_per_group",
    )
    full: Ranges = (
        tuple(range(10)),
        (0, 1),
        (8, 16),
        (1, 2, 4, 8),
        tuple(range(1, 17)),
        tuple(range(1, 9)),
    )
    searched: Ranges = ((0,), *full[1:])
    #: the instruction cache's reach, estimated a little low
    MAX_INSTRUCTIONS = 32_000
    #: instruction sets with a dot product of two halves; others take two instructions
    DOT2 = ("gfx906", "gfx908")

    directions = "W"
    dtypes = ("FP32", "FP16")
    filter_size = (3, 3)
    padding = 1
    strides = ((1, 1), (1, 2), (2, 1), (2, 2))
    grouped = True
    isas = GCN_AND_CDNA

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield Condition(p.wo <= 512, "a width of at most 512", p.wo)
        yield addressable(p, p.ho * p.wo, 1 << 22)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        c, k = p.c // p.groups, p.k // p.groups
        return (
            *(gcd(c, 8), gcd(k, 8), c & (c - 1) == 0),  # divided by powers of two up to 8
            *(p.ho, p.wo, p.pad_w, p.stride_h, p.stride_w),
            *(min(p.n, 8), p.dtype, isa in self.DOT2),
        )

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test of ``IsValid``."""
        kernel = _Kernel3x3(p, isa)

        def divides(reverse: int, chunk: int, k_per_wave: int) -> bool:
            outer, inner = (p.c, p.k) if reverse else (p.k, p.c)
            per_wave = WAVE_SIZE // chunk
            return outer % (per_wave * p.groups) == 0 and inner % (k_per_wave * p.groups) == 0

        def vgprs(reverse: int, chunk: int, k: int, depth: int, n: int) -> bool:
            return kernel.vgprs(reverse, chunk, k, depth) <= vgpr_budget(n)

        unit_stride = p.stride_h == p.stride_w == 1
        instructions = AsmBwdWrW3x3.MAX_INSTRUCTIONS
        return [
            Rule("padding", ("chunk_size",), lambda chunk: chunk == 16 or chunk > p.pad_w),
            Rule("reverse", ("reverse_inout",), lambda reverse: unit_stride or not reverse),
            Rule("channels", ("reverse_inout", "chunk_size", "k_per_wave"), divides),
            Rule("lanes", ("chunk_size", "k_per_wave"), lambda c, k: c * k <= WAVE_SIZE),
            Rule("lines", ("pipe_lines_depth",), lambda depth: depth <= p.ho),
            Rule(
                "instructions",
                ("chunk_size", "k_per_wave", "pipe_lines_depth"),
                lambda chunk, k, depth: kernel.instructions(chunk, k, depth) < instructions,
            ),
            Rule("batch", ("n_per_group",), lambda n: n <= p.n),
            Rule("waves", ("limit_wave_cnt", "n_per_group"), lambda w, n: not w or 4 * w >= n),
            Rule(
                "vgprs",
                ("reverse_inout", "chunk_size", "k_per_wave", "pipe_lines_depth", "n_per_group"),
                vgprs,
            ),
            Rule(
                "lds",
                ("k_per_wave", "n_per_group"),
                lambda k, n: reduction_fits(n, kernel.accumulators(k)),
            ),
        ]


class _Kernel3x3:
    """Registers and length of the kernel of ``ConvAsmBwdWrW3x3``."""

    def __init__(self, p: ConvProblem, isa: str) -> None:
        self._p = p
        self._packed = 2 if p.dtype == "FP16" else 1
        self._emulated = self._packed == 2 and isa not in AsmBwdWrW3x3.DOT2

    def accumulators(self, k_per_wave: int) -> int:
        """Registers of the sums; the chunks of a wave and their lanes make up the whole wave."""
        return self._p.x * self._p.y * k_per_wave

    def _line(self, chunk: int) -> tuple[int, int]:
        """Registers of an input line and of an output line."""
        p = self._p
        words = ceil_div(p.wo, self._packed)
        usable = chunk if chunk == 16 else max(1, chunk - p.pad_w)
        inputs = ceil_div(words, usable)
        inputs += inputs % p.stride_w
        return inputs, inputs // p.stride_w if inputs > 1 else 1

    def vgprs(self, reverse: int, chunk: int, k_per_wave: int, depth: int) -> int:
        """Vector registers of a lane."""
        p = self._p
        line_in, line_out = self._line(chunk)
        inputs = (depth + p.y - 1) * self._packed * line_in
        outputs = ceil_div(depth, p.stride_h) * self._packed * line_out
        waves = p.c // (WAVE_SIZE // chunk if reverse else k_per_wave) // p.groups
        total = self.accumulators(k_per_wave) + inputs + outputs + 6 + self._packed - 1
        if waves & (waves - 1):  # the kernel divides, in registers that lines may lend
            total += (0 if inputs >= 4 else 4) + (0 if outputs >= 3 else 3)
        return total

    def instructions(self, chunk: int, k_per_wave: int, depth: int) -> int:
        """Estimated instructions of the unrolled kernel."""
        p = self._p
        line_in, line_out = self._line(chunk)
        unrolled = depth * (depth + 2)
        loops = depth + unrolled + max(0, p.ho - 1 - depth) % unrolled + 1
        memory = 3 + (line_in + 3) // 4
        products = k_per_wave * p.y * line_out * p.x * 4 * (2 if self._emulated else 1)
        vector = products // 3 * self._packed
        exchange = 3 * memory if self._packed == 2 else 0
        return loops * (memory + vector + exchange) * self._packed
