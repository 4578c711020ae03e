"""Area and power of a design under a technology preset.

Area is the sum of the parts, scaled up for the share of a die that is none of them.  Power is the
sustained maximum: every unit, the on-chip buffer and the memory busy in every cycle, plus what the
die draws when idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..accelerator import Accelerator
from .technology import Technology

_MIB = 1 << 20


@dataclass(frozen=True)
class Area:
    """Square millimetres by part; ``technology`` is the preset that they hold under."""

    technology: str
    tensor_mm2: float
    vector_mm2: float
    shared_buffer_mm2: float
    core_buffers_mm2: float
    memory_interface_mm2: float
    links_mm2: float
    other_mm2: float

    @property
    def total_mm2(self) -> float:
        """The die."""
        return (
            self.tensor_mm2
            + self.vector_mm2
            + self.shared_buffer_mm2
            + self.core_buffers_mm2
            + self.memory_interface_mm2
            + self.links_mm2
            + self.other_mm2
        )


@dataclass(frozen=True)
class Power:
    """Watts by part when all is busy; ``technology`` is the preset that they hold under."""

    technology: str
    tensor_w: float
    vector_w: float
    on_chip_w: float
    memory_w: float
    static_w: float

    @property
    def total_w(self) -> float:
        """The sustained maximum."""
        return self.tensor_w + self.vector_w + self.on_chip_w + self.memory_w + self.static_w


@lru_cache(maxsize=4096)
def area(design: Accelerator, technology: Technology) -> Area:
    """The area of a design; a published ``area_mm2`` of it plays no part."""
    tensor = design.macs * technology.mac_um2 * 1e-6
    vector = design.vector_cores * design.vector_lanes * technology.vector_lane_um2 * 1e-6
    shared = design.shared_buffer_bytes / _MIB * technology.sram_mm2_per_mib
    cores = design.tensor_cores * design.core_buffer_bytes / _MIB * technology.core_sram_mm2_per_mib
    memory = design.memory_bytes_s * 1e-12 * technology.memory_mm2_per_tb_s
    links = design.links * technology.link_mm2
    counted = tensor + vector + shared + cores + memory + links
    other = counted * technology.other_share / (1 - technology.other_share)
    return Area(technology.name, tensor, vector, shared, cores, memory, links, other)


@lru_cache(maxsize=4096)
def power(design: Accelerator, technology: Technology) -> Power:
    """The sustained maximum power of a design; a published ``tdp_w`` of it plays no part."""
    lanes = design.vector_cores * design.vector_lanes
    return Power(
        technology.name,
        tensor_w=design.macs * design.frequency_hz * technology.mac_pj * 1e-12,
        vector_w=lanes * design.frequency_hz * technology.vector_op_pj * 1e-12,
        on_chip_w=design.on_chip_bytes_s * technology.sram_pj_per_byte * 1e-12,
        memory_w=design.memory_bytes_s * technology.memory_pj_per_byte * 1e-12,
        static_w=area(design, technology).total_mm2 * technology.static_w_per_mm2,
    )
