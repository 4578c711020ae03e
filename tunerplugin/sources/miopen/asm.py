"""Assembly kernels for forward and backward-data convolutions.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997: ``src/solver/conv/conv_asm_1x1u.cpp``
and ``conv_asm_3x3u.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import gcd, lcm

from .limits import (
    LANE_BYTES,
    MAX_SGPRS,
    MAX_VGPRS,
    MAX_WAVES_PER_GROUP,
    SIMDS_PER_CU,
    WAVE_SIZE,
    ceil_div,
)
from .problem import ConvProblem
from .rules import Rule
from .solver import STRIDES_TO_2, UNIT_STRIDE, Condition, Ranges, Signature, Solver

POWERS_TO_64 = (1, 2, 4, 8, 16, 32, 64)
ONE_TO_8 = tuple(range(1, 9))


GCN_AND_CDNA = ("gfx8", "gfx9")
"""The instruction sets that the assembly kernels are written in."""


def addressable(p: ConvProblem, pixels: int, image: int) -> Condition:
    """Sizes that the kernels can count: ``image`` elements of one image of so many pixels."""
    c, k, n = p.c, p.k, p.n
    whole = max(n * max(c, k) * pixels, c * k * p.y * p.x)
    holds = max(n, c, k) < 1 << 16 and max(c, k) * pixels < image and whole < 1 << 29
    return Condition(holds, "smaller tensors", (n, c, k, pixels))


def waves_that_fit(vgprs: int) -> int:
    """Waves that a compute unit can hold when each lane has ``vgprs`` registers."""
    return MAX_VGPRS // vgprs * SIMDS_PER_CU


def splits_evenly(c: int, waves: int, c_mult: int) -> bool:
    """Whether every wave of a group, the last one too, has a multiple of ``c_mult`` channels."""
    share = ceil_div(c, waves)
    return waves <= c and share % c_mult == 0 and (c - share * (waves - 1)) % c_mult == 0


# Beyond these sizes, no tuple of Asm1x1U tells problems apart: 16 chunks of 64 pixels, 8 groups of
# 64 images, 8 waves of 32 filters.
_MANY_PIXELS = 16 * WAVE_SIZE
_MANY_IMAGES = 8 * WAVE_SIZE
_MANY_FILTERS = 8 * 32
_MULTIPLE_OF_K_MULTS = lcm(*range(4, 33, 4))


@lru_cache(maxsize=1 << 14)
def _even_splits(c: int) -> frozenset[tuple[int, int]]:
    """The (waves, c_mult) of ``Asm1x1U`` that split so many channels evenly."""
    pairs = product(ONE_TO_8, (1, 2, 4, 8, 16, 32))
    return frozenset((waves, c_mult) for waves, c_mult in pairs if splits_evenly(c, waves, c_mult))


class Asm1x1U(Solver):
    """Solver ``ConvAsm1x1U``; MIOpen itself judges its tuples field by field.

    MIOpen's own order can end where no value is left.  Three things settle early whether one will
    be: budgets hold for the least values of open fields, c_mult divides all channels (for one wave
    that is enough, for more it is needed), and read_size asks for that many chunks at least.
    """

    closed = True

    fields = (
        "read_size",
        "k_mult",
        "chunks_per_wave",
        "chunk_size",
        "n_mult",
        "c_mult",
        "waves_c_in_group",
        "waves_k_in_group",
    )
    full: Ranges = (
        (1, 2, 3, 4),
        (1, *range(4, 33, 4)),
        tuple(range(1, 17)),
        POWERS_TO_64,
        ONE_TO_8,
        (1, 2, 4, 8, 16, 32),
        ONE_TO_8,
        (1, 2, 4, 8),
    )
    searched: Ranges = (
        (1, 2, 3, 4),
        (8, 16, 32),
        ONE_TO_8,
        (16, 32, 64),
        (1, 2, 3, 4),
        (1, 2, 4),
        (1, 2, 4),
        (1, 2, 4, 8),
    )

    directions = "FB"
    dtypes = ("FP32", "FP16")
    filter_size = (1, 1)
    padding = 0
    strides = STRIDES_TO_2
    isas = GCN_AND_CDNA
    #: bytes of one image, counted as if its elements had 32 bits
    MAX_IMAGE_BYTES = 1 << 24

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        packs = p.c % p.packed == p.k % p.packed == 0 and p.ho * p.wo >= p.packed
        many = p.packed == 1 or p.k >= 4
        yield Condition(packs and many, "channels and pixels that fill words", (p.c, p.k))
        stack = LANE_BYTES * max(p.c * p.h * p.w, p.k * p.ho * p.wo)
        yield Condition(stack < self.MAX_IMAGE_BYTES, "images of less than 16 MiB", stack)
        yield addressable(p, min(p.h * p.w, p.ho * p.wo), 1 << 24)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        pixels = p.ho * p.wo
        return (
            p.packed,
            min(pixels, _MANY_PIXELS),
            pixels % p.packed,
            min(p.n, _MANY_IMAGES),
            min(p.k, _MANY_FILTERS),
            gcd(p.k, _MULTIPLE_OF_K_MULTS) if p.direction == "B" else 0,
            _even_splits(p.c),
        )

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test of ``IsValidImpl``; rule by rule in the order of the fields."""
        e, pixels = p.packed, p.ho * p.wo
        least_vgprs = 5 + (pixels % e != 0)

        def vgprs(cpw: int, k_mult: int, n_mult: int, c_mult: int) -> int:
            return least_vgprs + 2 * ceil_div(cpw * n_mult * c_mult, e) + cpw * n_mult * k_mult

        def occupancy(cpw: int, k: int, n: int, c: int, wc: int, wk: int) -> bool:
            return waves_that_fit(vgprs(cpw, k, n, c)) >= wc * wk

        reads = ("read_size", "chunks_per_wave")
        registers = ("chunks_per_wave", "k_mult", "n_mult", "c_mult")
        waves = ("waves_c_in_group", "waves_k_in_group")
        return [
            Rule("packing of k", ("k_mult",), lambda k: k % e == 0),
            Rule("backward k", ("k_mult",), lambda k: p.direction != "B" or p.k % k == 0),
            Rule("packing of chunks", ("chunks_per_wave",), lambda cpw: cpw % e == 0),
            Rule("read size", reads, lambda read, cpw: read * e <= cpw),
            Rule(
                "chunks",
                ("chunks_per_wave", "chunk_size"),
                lambda cpw, chunk: cpw <= ceil_div(pixels, chunk),
                falling=True,
            ),
            Rule(
                "chunks of a read",
                ("read_size", "chunk_size"),
                lambda read, chunk: read * e <= ceil_div(pixels, chunk),
                falling=True,
            ),
            Rule(
                "vgprs of a read",
                ("read_size", *registers[1:]),
                lambda read, *f: vgprs(read * e, *f) < MAX_VGPRS,
                falling=True,
            ),
            Rule(
                "batch",
                ("chunk_size", "n_mult"),
                lambda chunk, n: n <= ceil_div(p.n, WAVE_SIZE // chunk),
            ),
            Rule("packing of c", ("c_mult",), lambda c: c % e == 0),
            Rule("channels", ("c_mult",), lambda c: p.c % c == 0),
            Rule("vgprs", registers, lambda *f: vgprs(*f) < MAX_VGPRS, falling=True),
            Rule("sgprs", ("k_mult", "c_mult"), fits_sgprs, falling=True),
            Rule("split of c", ("c_mult", waves[0]), lambda c, wc: splits_evenly(p.c, wc, c)),
            Rule("k of a group", ("k_mult", waves[1]), lambda k, wk: k * wk <= p.k, falling=True),
            Rule("group size", waves, lambda c, k: c * k <= MAX_WAVES_PER_GROUP),
            Rule("occupancy", (*registers, *waves), occupancy, falling=True),
        ]


def fits_sgprs(k_mult: int, c_mult: int) -> bool:
    """Whether weights for k_mult x c_mult, twice, and 25 other words fit the scalar registers."""
    return 25 + 2 * k_mult * c_mult < MAX_SGPRS


class Asm3x3U(Solver):
    """Solver ``ConvAsm3x3U``."""

    fields = ("limit_wave_cnt", "filters_per_wave", "output_lines_per_wave")
    full: Ranges = (tuple(range(10)), ONE_TO_8, ONE_TO_8)
    searched: Ranges = full

    directions = "FB"
    dtypes = ("FP32",)
    filter_size = (3, 3)
    padding = 1
    strides = UNIT_STRIDE
    grouped = True
    isas = ("gfx8", "gfx90")

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        channels = p.c // p.groups
        yield Condition(channels % 4 == 0, "input channels in fours per group", channels)
        yield Condition(3 < p.w <= 1000, "a width of 4 to 1000", p.w)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        k_per_group = p.k // p.groups
        filters = (k_per_group & (k_per_group - 1) == 0,) if p.groups == 1 else (p.k, p.groups)
        return (p.w, min(p.h, 9), *filters)  # at most 8 lines: a height beyond is never equal

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test of ``IsValid``."""
        chunks = ceil_div(p.w, WAVE_SIZE)
        lanes = ceil_div(p.w, chunks)
        line = ceil_div(p.w, lanes)  # registers of an input line
        k_per_group = p.k // p.groups
        power_of_two = k_per_group & (k_per_group - 1) == 0

        def grouped(filters: int) -> bool:
            return p.k % filters == 0 and (p.k // filters) % p.groups == 0

        def vgprs(filters: int, lines: int) -> bool:
            padded = p.h != lines
            inputs = line * (lines + 2 if padded else lines)
            doubled = 2 * inputs if power_of_two else max(inputs, 4) + max(inputs, 3)
            fixed = 2 + padded + (p.w % lanes != 0)
            return fixed + doubled + line * filters * lines < MAX_VGPRS

        return [
            Rule("groups", ("filters_per_wave",), lambda f: p.groups == 1 or grouped(f)),
            Rule("vgprs", ("filters_per_wave", "output_lines_per_wave"), vgprs),
        ]
