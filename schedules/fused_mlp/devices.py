"""What the roofline needs to know of a device; every number with its source.

Peaks are nominal (datasheet or paper), dense, in flop/s; bandwidths in bytes/s.  Nothing here was
measured on the device named, except what ``measure_host`` returns.  A data centre GPU of several
dies is one device where the driver shows one (Max 1550), and one die where it shows one (MI250X).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tunerplugin.errors import TargetError

KIB = 1024
MIB = 1024 * KIB

# Order of magnitude of what starting a kernel costs, without graphs; not measured per device.
GPU_LAUNCH_SECONDS = 5e-6
CPU_LAUNCH_SECONDS = 2e-6  # waking the threads of a pool


@dataclass(frozen=True)
class RegisterMode:
    """One way to share out the register file.

    ``bytes_per_sub_group``: register bytes one sub-group may use.  ``sub_groups``: sub-groups
    that are resident at once on the whole device in this mode, i.e. what fills it.
    """

    name: str
    bytes_per_sub_group: int
    sub_groups: int


@dataclass(frozen=True)
class Device:
    """Peaks and capacities of one device.

    ``peaks``: (dtype, flop/s) of multiply-adds with float32 sums.  ``bandwidth``: realistic
    bytes/s of global memory.  ``shared_bytes``: shared memory one work-group may use.
    ``shared_bandwidth``: bytes/s of shared memory over the whole device.  ``tile``: rows, depth
    and columns of one matrix instruction; depth and columns are what widths are padded to.
    ``max_sub_groups``: sub-groups in one work-group.  ``l2_bytes`` and ``l2_bandwidth``: the cache
    that weights come through which are not staged in shared memory.  ``cache_bytes``: other
    tensors up to this size are read from memory once; 0 is the paper's assumption of no reuse.
    ``launch_seconds``: from one kernel's end to the next one's begin.
    """

    name: str
    peaks: tuple[tuple[str, float], ...]
    bandwidth: float
    shared_bytes: int
    shared_bandwidth: float
    register_modes: tuple[RegisterMode, ...]
    tile: tuple[int, int, int]
    max_sub_groups: int
    l2_bytes: int
    l2_bandwidth: float
    launch_seconds: float
    cache_bytes: int = 0

    def peak(self, dtype: str) -> float:
        """Peak flop/s for a storage type.  Raises ``TargetError`` where it is not known."""
        for name, flops in self.peaks:
            if name == dtype:
                return flops
        known = ", ".join(name for name, _ in self.peaks)
        raise TargetError(f"expected a dtype of {known} on {self.name}, got {dtype}")


def _half(flops: float) -> tuple[tuple[str, float], ...]:
    return (("float16", flops), ("bfloat16", flops))


def _vgpr_modes(
    simds: int, registers: int, lanes: int, most_waves: int
) -> tuple[RegisterMode, ...]:
    """AMD's allocation: ``registers`` per lane of a SIMD, shared by 1 to ``most_waves`` waves."""
    modes = []
    waves = most_waves
    while waves:
        each = registers // waves
        modes.append(RegisterMode(f"{each} VGPRs", each * lanes * 4, simds * waves))
        waves //= 2
    return tuple(modes)


def _rdna_modes(simds: int) -> tuple[RegisterMode, ...]:
    """RDNA 3 and 4: 1536 registers a lane and SIMD for 16, 8 or 6 waves of 32, 256 at most each."""
    shares = ((96, 16), (192, 8), (256, 6))
    return tuple(RegisterMode(f"{n} VGPRs", n * 32 * 4, simds * waves) for n, waves in shares)


# Section "roofline" of arXiv 2403.17607: 838 Tflop/s bf16, 52 fp32, 2 TB/s realistic (3.2 peak),
# 8192 sub-groups fill the device, registers of 8192 or 16384 bytes.  Shared memory: 128 KiB per
# Xe-core (Intel Xe GPU architecture guide); its bandwidth is the one that the paper's cap of
# 393 Tflop/s at 7.877 flop/B implies, 49.9 TB/s.  Matrix tile: DPAS of sub-group 16, 16-bit.  L2:
# 408 MB, 13 TB/s (Intel, Hot Chips 2021).
PVC = Device(
    name="Intel Data Center GPU Max 1550",
    peaks=(*_half(838e12), ("float32", 52e12)),
    bandwidth=2e12,
    shared_bytes=128 * KIB,
    shared_bandwidth=393e12 / 7.877,
    register_modes=(
        RegisterMode("128 GRF", 8192, 8192),
        RegisterMode("256 GRF", 16384, 4096),
    ),
    tile=(8, 16, 16),
    max_sub_groups=64,
    l2_bytes=408 * MIB,
    l2_bandwidth=13e12,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# Arc A770 16 GB, Intel's product page: 32 Xe-cores, 512 vector engines, 2.1 GHz, 560 GB/s.  Peaks:
# 512 engines * 128 f16 (matrix) or 16 f32 flop a clock.  128 registers of 32 bytes, 8 threads an
# engine (4 with the large file); 64 KiB of shared memory for one work-group (Xe-HPG guide).
# Shared memory bandwidth: 128 bytes a clock and Xe-core, 16 MiB of L2 at half of that: assumptions
# to be checked on one.
DG2 = Device(
    name="Intel Arc A770",
    peaks=(*_half(512 * 128 * 2.1e9), ("float32", 512 * 16 * 2.1e9)),
    bandwidth=560e9,
    shared_bytes=64 * KIB,
    shared_bandwidth=32 * 128 * 2.1e9,
    register_modes=(
        RegisterMode("128 GRF", 4096, 4096),
        RegisterMode("256 GRF", 8192, 2048),
    ),
    tile=(8, 16, 8),
    max_sub_groups=64,
    l2_bytes=16 * MIB,
    l2_bandwidth=32 * 64 * 2.1e9,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# Paper: 2 TB/s.  H100 PCIe datasheet: 756 Tflop/s dense bf16 and f16, 51 f32.  Hopper tuning
# guide: 227 KiB of shared memory for a block, 128 bytes a clock and SM (114 SMs, 1.755 GHz),
# 65536 registers an SM: 8 warps of 255 (of 256 allocated) or 16 of 128.  L2: 50 MB (datasheet), at
# 5.5 TB/s as microbenchmarks report it.
H100 = Device(
    name="NVIDIA H100 PCIe",
    peaks=(*_half(756e12), ("float32", 51e12)),
    bandwidth=2e12,
    shared_bytes=227 * KIB,
    shared_bandwidth=114 * 128 * 1.755e9,
    register_modes=(
        RegisterMode("128 registers", 128 * 32 * 4, 114 * 16),
        RegisterMode("255 registers", 255 * 32 * 4, 114 * 8),
    ),
    tile=(16, 16, 16),
    max_sub_groups=32,
    l2_bytes=50 * MIB,
    l2_bandwidth=5.5e12,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# One of the two dies of an MI250X (AMD CDNA 2 white paper): 383 Tflop/s f16 and bf16 matrix and
# 95.7 f32 matrix for both, 3.2 TB/s for both; 110 compute units of 4 SIMDs, 1.7 GHz.  LDS: 64 KiB,
# 128 bytes a clock and compute unit.  512 registers (with accumulation) a lane, 8 waves a SIMD.
# L2: 8 MB, 32 channels of 128 bytes a clock.
GFX90A = Device(
    name="AMD Instinct MI250X (one die)",
    peaks=(*_half(191.5e12), ("float32", 47.9e12)),
    bandwidth=1.6e12,
    shared_bytes=64 * KIB,
    shared_bandwidth=110 * 128 * 1.7e9,
    register_modes=_vgpr_modes(110 * 4, 512, 64, 8),
    tile=(16, 16, 16),
    max_sub_groups=16,
    l2_bytes=8 * MIB,
    l2_bandwidth=32 * 128 * 1.7e9,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# AMD CDNA 3 white paper: 304 compute units, 2.1 GHz, 1307.4 Tflop/s f16 and bf16 dense, 163.4 f32
# matrix, 5.3 TB/s.  LDS and registers as gfx90a.  L2: 4 MB on each of 8 dies, 2048 bytes a clock.
GFX942 = Device(
    name="AMD Instinct MI300X",
    peaks=(*_half(1307.4e12), ("float32", 163.4e12)),
    bandwidth=5.3e12,
    shared_bytes=64 * KIB,
    shared_bandwidth=304 * 128 * 2.1e9,
    register_modes=_vgpr_modes(304 * 4, 512, 64, 8),
    tile=(16, 16, 16),
    max_sub_groups=16,
    l2_bytes=4 * MIB,
    l2_bandwidth=8 * 2048 * 2.1e9,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# RX 7900 XTX, AMD's product page: 96 compute units, 2.5 GHz boost, 122.8 Tflop/s f16 matrix, 61.4
# f32, 960 GB/s.  RDNA 3 ISA guide: 64 KiB of LDS for one work-group, 128 bytes a clock and compute
# unit, waves of 32, 1536 registers a lane and SIMD (2 a compute unit), 256 at most for one wave.
# Infinity Cache: 96 MB, 5.3 TB/s (AMD).
GFX1100 = Device(
    name="AMD Radeon RX 7900 XTX",
    peaks=(*_half(122.8e12), ("float32", 61.4e12)),
    bandwidth=960e9,
    shared_bytes=64 * KIB,
    shared_bandwidth=96 * 128 * 2.5e9,
    register_modes=_rdna_modes(192),
    tile=(16, 16, 16),
    max_sub_groups=32,
    l2_bytes=96 * MIB,
    l2_bandwidth=5.3e12,
    launch_seconds=GPU_LAUNCH_SECONDS,
)

# RX 9070 XT, AMD's product page: 64 compute units, 2.97 GHz boost, 195 Tflop/s f16 matrix (dense),
# 48.7 f32, 640 GB/s.  LDS, waves and registers as gfx1100.  L2: 8 MB (ROCm's table of GPUs), 2048
# bytes a clock: an assumption to be checked on one, as is that the 64 MB behind it add nothing.
GFX1201 = Device(
    name="AMD Radeon RX 9070 XT",
    peaks=(*_half(195e12), ("float32", 48.7e12)),
    bandwidth=640e9,
    shared_bytes=64 * KIB,
    shared_bandwidth=64 * 128 * 2.97e9,
    register_modes=_rdna_modes(128),
    tile=(16, 16, 16),
    max_sub_groups=32,
    l2_bytes=8 * MIB,
    l2_bandwidth=2048 * 2.97e9,
    launch_seconds=GPU_LAUNCH_SECONDS,
)


def cpu_device(
    cores: int,
    flops_per_core: float = 80e9,
    bandwidth: float = 20e9,
    cache_bytes: int = 1 << 20,
    name: str = "CPU",
) -> Device:
    """A CPU: one "sub-group" is one thread with a tile of 64 rows, its "shared memory" the cache of
    a core, its matrix tile the columns of a vector.

    ``flops_per_core``: float32 multiply-adds in flop/s; ``bandwidth``: bytes/s of memory for all
    cores; ``cache_bytes``: second-level cache of one core.  The defaults are a cautious AVX2 core
    (16 lanes * 2 flop * 2.5 GHz), two channels of DDR4 and 1 MiB.  16-bit types are converted in
    registers, so they have the float32 peak.  Registers are the micro-kernel's affair: no limit.
    """
    peak = cores * flops_per_core
    return Device(
        name=name,
        peaks=(*_half(peak), ("float32", peak)),
        bandwidth=bandwidth,
        shared_bytes=cache_bytes,
        # Two 32-byte loads a clock from the first-level cache feed one such FMA each.
        shared_bandwidth=2 * peak,
        register_modes=(RegisterMode("vector registers", 1 << 30, cores),),
        tile=(64, 1, 8),
        max_sub_groups=1,
        l2_bytes=cache_bytes,
        l2_bandwidth=2 * peak,
        launch_seconds=CPU_LAUNCH_SECONDS,
        cache_bytes=cache_bytes,
    )


def measure_host(cores: int, repeats: int = 5) -> Device:
    """This machine, measured in about half a second: peak of a float32 product, copy bandwidth.

    The product is numpy's (its BLAS), so the peak is a lower bound, with as many threads as that
    takes; ``cores`` is what a schedule may use.
    """
    import numpy as np

    side, copied = 768, 1 << 24
    left = np.full((side, side), 0.5, np.float32)
    product = np.empty_like(left)
    source = np.ones(copied, np.float32)
    target = np.empty_like(source)
    flops = bandwidth = 0.0
    for _ in range(repeats):
        begin = time.perf_counter()
        np.matmul(left, left, out=product)
        middle = time.perf_counter()
        np.copyto(target, source)
        end = time.perf_counter()
        flops = max(flops, 2 * side**3 / (middle - begin))
        bandwidth = max(bandwidth, 2 * source.nbytes / (end - middle))
    return cpu_device(cores, flops / cores, bandwidth, name="this machine, measured")
