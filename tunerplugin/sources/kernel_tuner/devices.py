"""Public figures of the GPUs of the Kernel Tuner benchmark hub, and how alike two GPUs are.

Where to check them: NVIDIA's architecture white papers (Turing TU102 2018, Ampere GA100 2020,
Ampere GA102 2020) and data sheets (RTX A4000, RTX A6000, A100 PCIe); AMD's CDNA 2 and RDNA 2 /
RDNA 3 white papers and product pages (Instinct MI250X, Radeon PRO W6600, Radeon PRO W7800).  They
were entered without these documents at hand, as words for a predictor: do not quote them.  Clocks
are boost clocks; a laptop's is the highest that NVIDIA lists.  Of the MI250X one of its two dies
counts: a program sees each as a device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...space import Word


@dataclass(frozen=True)
class Gpu:
    """A GPU: ``units`` are SMs (NVIDIA) or compute units (AMD).

    ``shared_kb`` and ``lanes`` (FP32) are per unit, ``wave`` is the threads of a warp or wavefront.
    """

    name: str
    vendor: str
    architecture: str
    units: int
    lanes: int
    clock_mhz: int
    bandwidth_gb_s: int
    shared_kb: int
    cache_kb: int
    wave: int
    aliases: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[Word, ...]:
        """The device as problem words: figures, not its name."""
        return (
            ("vendor", self.vendor),
            ("architecture", self.architecture),
            ("units", self.units),
            ("lanes_per_unit", self.lanes),
            ("clock_mhz", self.clock_mhz),
            ("bandwidth_gb_s", self.bandwidth_gb_s),
            ("shared_kb", self.shared_kb),
            ("last_level_cache_kb", self.cache_kb),
            ("wave", self.wave),
            ("flops_per_byte", round(self.gflops / self.bandwidth_gb_s, 2)),
        )

    @property
    def gflops(self) -> float:
        """Peak FP32 GFLOP/s: two per lane and clock."""
        return 2e-3 * self.units * self.lanes * self.clock_mhz


GPUS = (
    Gpu("RTX 2080 Ti", "nvidia", "turing", 68, 64, 1545, 616, 64, 5632, 32),
    Gpu("TITAN RTX", "nvidia", "turing", 72, 64, 1770, 672, 64, 6144, 32, ("RTX Titan",)),
    Gpu("RTX 3060 Laptop", "nvidia", "ampere-8.6", 30, 128, 1703, 336, 100, 3072, 32),
    Gpu("RTX 3090", "nvidia", "ampere-8.6", 82, 128, 1695, 936, 100, 6144, 32),
    Gpu("RTX A4000", "nvidia", "ampere-8.6", 48, 128, 1560, 448, 100, 4096, 32, ("A4000",)),
    Gpu("RTX A6000", "nvidia", "ampere-8.6", 84, 128, 1800, 768, 100, 6144, 32, ("A6000",)),
    Gpu("A100", "nvidia", "ampere-8.0", 108, 64, 1410, 1555, 164, 40960, 32),
    Gpu("MI250X", "amd", "cdna2", 110, 64, 1700, 1638, 64, 8192, 64),
    Gpu("PRO W6600", "amd", "rdna2", 28, 64, 2903, 224, 64, 32768, 32, ("W6600",)),
    Gpu("PRO W7800", "amd", "rdna3", 70, 128, 2499, 576, 64, 65536, 32, ("W7800",)),
)


def find_gpu(name: str) -> Gpu | None:
    """The GPU that a driver's or a file's name means, e.g. ``NVIDIA GeForce RTX 2080 Ti``."""
    wanted = _plain(name)
    named = [(_plain(text), gpu) for gpu in GPUS for text in (gpu.name, *gpu.aliases)]
    matches = [(len(text), gpu) for text, gpu in named if f" {text} " in f" {wanted} "]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def device_words(name: str) -> tuple[Word, ...]:
    """The figures of a known GPU; of any other its name."""
    gpu = find_gpu(name)
    return gpu.words if gpu else (("device", name),)


def likeness(name: str, other: str) -> float:
    """How much one device's measurements count for another: 8, 3 or 1.

    For the same architecture, the same vendor, or neither.
    """
    first, second = find_gpu(name), find_gpu(other)
    if first is None or second is None:
        return 1.0
    if first.architecture == second.architecture:
        return 8.0
    return 3.0 if first.vendor == second.vendor else 1.0


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower()))
