"""Limits of AMD's GCN and CDNA compute units, as MIOpen's validity tests use them.

Registers and waves: AMD "Vega" Instruction Set Architecture, section 3; LDS per work group: ibid.,
section 2.2.  The same numbers stand in ROCm/MIOpen ``src/solver/conv``.
"""

from __future__ import annotations

WAVE_SIZE = 64
"""Lanes of a wave."""

MAX_VGPRS = 256
"""Vector registers (32 bits) of a lane."""

MAX_SGPRS = 102
"""Scalar registers (32 bits) of a wave."""

SIMDS_PER_CU = 4
"""SIMD units of a compute unit."""

MAX_WAVES_PER_GROUP = 16
"""Waves of a work group (1,024 threads)."""

LDS_BYTES = 64 * 1024
"""Local data share of a work group."""

LANE_BYTES = 4
"""Bytes of one lane's 32-bit word."""

BYTE_OFFSETS = 1 << 31
"""Byte offsets that a signed 32-bit word can tell apart."""


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up, for positive ``b``."""
    return -(-a // b)
