"""MIOpen's solver ConvAsm1x1U as a space: eight fields and the rules that hang on prefixes.

Rules and ranges are those of ``conv_asm_1x1u.cpp`` in ROCm/MIOpen: rule k needs only the first k
fields.  ``valid`` says the same about whole tuples, in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.space.cases import numbers
from tunerplugin.space import Constraint, ListSpace, Prefix

FIELDS = (
    "read_size",
    "k_mult",
    "chunks_per_wave",
    "chunk_size",
    "n_mult",
    "c_mult",
    "waves_c_in_group",
    "waves_k_in_group",
)
#: what MIOpen's exhaustive search walks by default: 41,472 tuples
RANGES = (
    (1, 2, 3, 4),
    (8, 16, 32),
    (1, 2, 3, 4, 5, 6, 7, 8),
    (16, 32, 64),
    (1, 2, 3, 4),
    (1, 2, 4),
    (1, 2, 4),
    (1, 2, 4, 8),
)
MAX_VGPRS = 256
MAX_SGPRS = 102
MAX_WAVES = 16


@dataclass(frozen=True)
class Conv:
    """A 1x1 convolution: channels, output pixels, batch; ``packed`` elements in 32 bits."""

    c: int
    k: int
    pixels: int
    n: int
    packed: int
    backward: bool = False

    def vgprs(self, cpw: int, k_mult: int, n_mult: int, c_mult: int) -> int:
        """Vector registers of a thread."""
        inputs = ceil_div(cpw * n_mult * c_mult, self.packed)
        uneven = self.pixels % self.packed != 0
        return 5 + 2 * inputs + cpw * n_mult * k_mult + uneven


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def valid(conv: Conv, values: Prefix) -> bool:
    """Whether the kernel runs with this tuple."""
    read, k_mult, cpw, chunk, n_mult, c_mult, wc, wk = numbers(values)
    e = conv.packed
    share = ceil_div(conv.c, wc)
    registers = conv.vgprs(cpw, k_mult, n_mult, c_mult)
    return (
        k_mult % e == 0
        and not (conv.backward and conv.k % k_mult)
        and read * e <= cpw
        and cpw % e == 0
        and cpw <= ceil_div(conv.pixels, chunk)
        and n_mult <= ceil_div(conv.n, 64 // chunk)
        and c_mult % e == 0
        and registers < MAX_VGPRS
        and 25 + 2 * k_mult * c_mult < MAX_SGPRS
        and wc <= conv.c
        and share % c_mult == 0
        and (conv.c - share * (wc - 1)) % c_mult == 0
        and k_mult * wk <= conv.k
        and wc * wk <= MAX_WAVES
        and MAX_VGPRS // registers * 4 >= wc * wk
    )


class PrefixRule(Constraint):
    """A rule that can be judged once ``fields`` values are there."""

    def __init__(self, name: str, fields: int, holds: Callable[..., bool]) -> None:
        self.name, self._fields, self._holds = name, fields, holds

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        return len(prefix) < self._fields or self._holds(*numbers(prefix[: self._fields]))


def rules(conv: Conv) -> list[Constraint]:
    """One constraint for each rule of MIOpen's ``IsPartiallyValid``."""
    e = conv.packed

    def split(read: int, k: int, cpw: int, chunk: int, n: int, c_mult: int, wc: int) -> bool:
        share = ceil_div(conv.c, wc)
        rest = conv.c - share * (wc - 1)
        return wc <= conv.c and share % c_mult == 0 and rest % c_mult == 0

    def waves(read: int, k: int, cpw: int, chunk: int, n: int, c: int, wc: int, wk: int) -> bool:
        occupancy = MAX_VGPRS // conv.vgprs(cpw, k, n, c) * 4
        return wc * wk <= MAX_WAVES and occupancy >= wc * wk and k * wk <= conv.k

    return [
        PrefixRule("packing of k", 2, lambda read, k: k % e == 0),
        PrefixRule("backward k", 2, lambda read, k: not (conv.backward and conv.k % k)),
        PrefixRule("read size", 3, lambda read, k, cpw: read * e <= cpw and cpw % e == 0),
        PrefixRule("chunks", 4, lambda read, k, cpw, chunk: cpw <= ceil_div(conv.pixels, chunk)),
        PrefixRule("batch", 5, lambda read, k, cpw, chunk, n: n <= ceil_div(conv.n, 64 // chunk)),
        PrefixRule("packing of c", 6, lambda *f: f[5] % e == 0),
        PrefixRule("vgprs", 6, lambda *f: conv.vgprs(f[2], f[1], f[4], f[5]) < MAX_VGPRS),
        PrefixRule("sgprs", 6, lambda *f: 25 + 2 * f[1] * f[5] < MAX_SGPRS),
        PrefixRule("split of c", 7, split),
        PrefixRule("waves", 8, waves),
    ]


def space(conv: Conv, ranges: tuple[tuple[int, ...], ...] = RANGES) -> ListSpace:
    """The solver's space for a convolution."""
    return ListSpace(FIELDS, ranges, rules(conv))
