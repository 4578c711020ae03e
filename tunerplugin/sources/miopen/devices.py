"""AMD GPUs by the names of MIOpen's databases, and problems described for them.

A database is named after the instruction set and the compute units: ``gfx906_60`` has 60,
``gfx90a68`` has 0x68 = 104 (ROCm/MIOpen ``src/include/miopen/db_path.hpp``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ...errors import InputError
from ...space import Problem, Word
from .problem import ConvProblem

_LDS_BYTES = 64 * 1024


@dataclass(frozen=True)
class Isa:
    """What an instruction set says of every device that has it."""

    family: str
    wave_size: int
    packed_half: bool
    dot2: bool
    matrix_cores: bool


#: AMD's ISA documents: GCN3, Vega, Vega 7nm, CDNA 1 to 3, RDNA 2
ISAS = {
    "gfx803": Isa("gcn", 64, False, False, False),
    "gfx900": Isa("gcn", 64, True, False, False),
    "gfx906": Isa("gcn", 64, True, True, False),
    "gfx908": Isa("cdna", 64, True, True, True),
    "gfx90a": Isa("cdna", 64, True, True, True),
    "gfx942": Isa("cdna", 64, True, True, True),
    "gfx1030": Isa("rdna", 32, True, True, False),
}


@dataclass(frozen=True)
class Board:
    """Peak engine clock in MHz and memory bandwidth in GB/s (of one die)."""

    clock_mhz: int
    bandwidth_gb_s: int


#: To be checked against AMD's product pages of the first board named: entered without them at hand,
#: as words for a predictor.  Where boards share a name, they differ by little.
BOARDS = {
    ("gfx803", 36): Board(1340, 256),  # Radeon RX 580
    ("gfx803", 64): Board(1000, 512),  # Radeon Instinct MI8, Radeon R9 Nano
    ("gfx900", 56): Board(1471, 410),  # Radeon RX Vega 56
    ("gfx900", 64): Board(1500, 484),  # Radeon Instinct MI25
    ("gfx906", 60): Board(1725, 1024),  # Radeon Instinct MI50, Radeon VII
    ("gfx906", 64): Board(1800, 1024),  # Radeon Instinct MI60
    ("gfx908", 120): Board(1502, 1229),  # Instinct MI100
    ("gfx90a", 104): Board(1700, 1638),  # Instinct MI210, a die of MI250
    ("gfx90a", 110): Board(1700, 1638),  # a die of Instinct MI250X
    ("gfx942", 304): Board(2100, 5300),  # Instinct MI300X
    ("gfx1030", 36): Board(2250, 512),  # Radeon RX 6800 XT: MIOpen counts pairs of units
}

_NAME = re.compile(r"(gfx[0-9a-f]+)(?:_(\d{1,3})(?!\d))?")


@dataclass(frozen=True)
class Device:
    """A GPU: its instruction set and its compute units as MIOpen counts them (0: not known)."""

    isa: str
    compute_units: int = 0

    @property
    def name(self) -> str:
        """The name with decimal units, e.g. ``gfx90a_104``."""
        return f"{self.isa}_{self.compute_units}" if self.compute_units else self.isa

    @property
    def words(self) -> tuple[Word, ...]:
        """The device in the problem language; what is not known is left out."""
        words: list[Word] = [("isa", self.isa)]
        isa = ISAS.get(self.isa)
        if isa is not None:
            words += [
                ("device_family", isa.family),
                ("wave_size", isa.wave_size),
                ("lds_bytes", _LDS_BYTES),
                ("packed_half", int(isa.packed_half)),
                ("dot2", int(isa.dot2)),
                ("matrix_cores", int(isa.matrix_cores)),
            ]
        if self.compute_units:
            words.append(("compute_units", self.compute_units))
        board = BOARDS.get((self.isa, self.compute_units))
        if board is not None:
            words += [
                ("clock_mhz", board.clock_mhz),
                ("bandwidth_gb_s", board.bandwidth_gb_s),
            ]
        return tuple(words)


@lru_cache(maxsize=256)
def parse_device(name: str) -> Device:
    """The device that a database is named after; what follows the units (a date) is ignored.

    Raises ``InputError`` for a name that does not start with an instruction set.
    """
    match = _NAME.match(name)
    if match is None:
        raise InputError(
            f"expected a device like gfx906_60 or gfx90a68, got {name!r}; name an AMD GPU"
        )
    text, units = match[1], match[2]
    isa = max((known for known in ISAS if text.startswith(known)), key=len, default=None)
    if isa is None:
        return Device(text, int(units or 0))
    written = text[len(isa) :]  # behind a known instruction set: units in hexadecimal
    return Device(isa, int(written, 16) if written else int(units or 0))


def describe(problem: ConvProblem, device: str) -> Problem:
    """The convolution and the device as words, with the numbers that decide what divides what.

    Raises ``InputError`` for a device name as ``parse_device`` does.
    """
    return _words_of(problem, parse_device(device))


@lru_cache(maxsize=1 << 14)
def _words_of(p: ConvProblem, device: Device) -> Problem:
    return Problem(
        (
            ("op", "miopen.conv2d"),
            ("direction", p.direction),
            ("dtype", p.number_format),
            ("layout", p.layout),
            ("n", p.n),
            ("c", p.c),
            ("k", p.k),
            ("h", p.h),
            ("w", p.w),
            ("ho", p.ho),
            ("wo", p.wo),
            ("y", p.y),
            ("x", p.x),
            ("pad_h", p.pad_h),
            ("pad_w", p.pad_w),
            ("stride_h", p.stride_h),
            ("stride_w", p.stride_w),
            ("dilation_h", p.dilation_h),
            ("dilation_w", p.dilation_w),
            ("groups", p.groups),
            ("bias", p.bias),
            ("packed", p.packed),
            ("pixels_in", p.h * p.w),
            ("pixels_out", p.ho * p.wo),
            ("c_per_group", p.c // p.groups),
            ("k_per_group", p.k // p.groups),
            ("sums", p.c // p.groups * p.y * p.x),
            ("columns", p.n * p.ho * p.wo),
            *device.words,
        )
    )
