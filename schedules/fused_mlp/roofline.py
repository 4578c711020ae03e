"""Roofline of an MLP, fused and unfused: what bounds it, and which of the two to build.

The model is that of Yuan et al., "Fully-fused Multi-Layer Perceptrons on Intel Data Center GPUs"
(arXiv 2403.17607); ``traffic`` counts, ``devices`` has the peaks.  Start at ``decide``;
``estimate`` is one plan on one device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .description import MLP
from .devices import Device, RegisterMode
from .traffic import (
    Phase,
    Plan,
    cached_bytes,
    flops,
    global_bytes,
    padding,
    registers,
    shared_bytes,
    shared_capacity,
)

Limit = Literal["compute", "global memory", "shared memory", "cache"]

# Addresses and temporaries take the rest.  On Ponte Vecchio IGC spilled nothing at width 96
# (5120 of 8192 bytes by the formula) and 1664 bytes at width 128 (6656 of 8192).
USABLE_REGISTERS = 0.75


@dataclass(frozen=True)
class Roofline:
    """What a plan needs of a device, and the bound that follows.

    ``flops``: of the matrix products, without padding.  ``registers``: bytes per sub-group.
    ``shared_capacity``: bytes of shared memory per work-group.  ``shared_accesses``: elements
    read from or written to shared memory.  ``occupancy``: share of the sub-groups that fill the
    device; an under-filled device is taken to give that share of each of its peaks.
    """

    plan: Plan
    device: Device
    register_mode: RegisterMode
    flops: float
    global_bytes: float
    shared_bytes: float
    shared_capacity: int
    registers: int
    occupancy: float
    seconds: float
    limit: Limit

    @property
    def shared_accesses(self) -> float:
        """Elements moved in and out of shared memory."""
        return self.shared_bytes / self.plan.element_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: flop per byte of global memory."""
        return self.flops / self.global_bytes

    @property
    def shared_intensity(self) -> float:
        """Flop per byte of shared memory; infinite without it."""
        return self.flops / self.shared_bytes if self.shared_bytes else math.inf

    @property
    def bound(self) -> float:
        """Highest possible rate in flop/s."""
        return self.flops / self.seconds

    @property
    def launches(self) -> int:
        """Kernels that are started, one per layer and product where nothing is fused."""
        plan = self.plan
        if not plan.fused:
            return {"training": 3}.get(plan.phase, 1) * plan.mlp.layers
        if plan.phase != "training":
            return 1
        return 2 + (0 if plan.fused_gradients else plan.mlp.layers)

    @property
    def elapsed(self) -> float:
        """Least possible seconds with the time that starting kernels takes."""
        return self.seconds + self.launches * self.device.launch_seconds

    @property
    def fits(self) -> bool:
        """Whether registers and shared memory suffice."""
        usable = USABLE_REGISTERS * self.register_mode.bytes_per_sub_group
        return self.registers <= usable and self.shared_capacity <= self.device.shared_bytes


def estimate(plan: Plan, device: Device, mode: RegisterMode | None = None) -> Roofline:
    """The roofline of ``plan`` on ``device``; ``mode`` is its first register mode by default."""
    mode = mode or device.register_modes[0]
    work = flops(plan)
    moved = global_bytes(plan, device.cache_bytes, device.l2_bytes)
    shared = shared_bytes(plan)
    occupancy = min(1.0, plan.sub_groups / mode.sub_groups)
    times: dict[Limit, float] = {
        "compute": work * padding(plan, device.tile) / device.peak(plan.mlp.dtype),
        "global memory": moved / device.bandwidth,
        "shared memory": shared / device.shared_bandwidth,
        "cache": cached_bytes(plan) / device.l2_bandwidth,
    }
    limit = max(times, key=lambda name: times[name])
    return Roofline(
        plan=plan,
        device=device,
        register_mode=mode,
        flops=work,
        global_bytes=moved,
        shared_bytes=shared,
        shared_capacity=shared_capacity(plan),
        registers=registers(plan, device.tile),
        occupancy=occupancy,
        seconds=times[limit] / occupancy,
        limit=limit,
    )


@dataclass(frozen=True)
class Decision:
    """Whether to fuse, how, and why in one line.  Intel calls ``register_mode`` the GRF mode."""

    fused: bool
    rows_per_group: int
    rows_per_sub_group: int
    staged: bool
    register_mode: str
    reason: str
    chosen: Roofline
    rejected: Roofline | None


def decide(mlp: MLP, batch: int, device: Device, phase: Phase = "inference") -> Decision:
    """Fused or unfused, rows per work-group and register mode, by the least possible time.

    Of equal times the one with the higher intensity is taken, then the smaller register mode.  The
    unfused side is taken at its best, bound by arithmetic and global memory alone, so that what
    is fused by this rule has a margin.
    """
    unfused = min(
        (estimate(p, device) for p in _plans(mlp, batch, device, phase, fused=False)), key=_rank
    )
    fitting = [
        roofline
        for mode in device.register_modes
        for plan in _plans(mlp, batch, device, phase, fused=True)
        if (roofline := estimate(plan, device, mode)).fits
    ]
    fused = min(fitting, key=_rank, default=None)
    if fused is None:
        least = estimate(Plan(mlp, batch, 1, 1, phase, staged=False), device)
        reason = (
            f"unfused: one row of the widest layer needs {least.registers} bytes of registers per "
            f"sub-group, more than {USABLE_REGISTERS:.0%} of "
            f"{device.register_modes[-1].bytes_per_sub_group}"
        )
        return _decision(unfused, None, reason)
    faster = fused.elapsed <= unfused.elapsed
    chosen, rejected = (fused, unfused) if faster else (unfused, fused)
    return _decision(chosen, rejected, _reason(chosen, rejected))


def _plans(mlp: MLP, batch: int, device: Device, phase: Phase, *, fused: bool) -> Iterator[Plan]:
    """Rows per sub-group from the instruction's down to one (for a batch that does not fill the
    device), sub-groups per work-group in powers of two, weights staged or streamed."""
    per_sub_group = device.tile[0]
    while per_sub_group:
        together = device.max_sub_groups if fused else 1
        while together:
            for staged in (True, False) if fused else (False,):
                yield Plan(
                    mlp,
                    batch,
                    together * per_sub_group,
                    per_sub_group,
                    phase,
                    fused=fused,
                    staged=staged,
                )
            together //= 2
        per_sub_group //= 2


def _rank(roofline: Roofline) -> tuple[float, float, int]:
    # Rounded, so that equal bounds are equal whatever the order of additions.
    seconds = float(f"{roofline.elapsed:.6e}")
    return seconds, -roofline.intensity, roofline.register_mode.bytes_per_sub_group


def _decision(chosen: Roofline, rejected: Roofline | None, reason: str) -> Decision:
    return Decision(
        fused=chosen.plan.fused,
        rows_per_group=chosen.plan.rows,
        rows_per_sub_group=chosen.plan.rows_per_sub_group,
        staged=chosen.plan.staged,
        register_mode=chosen.register_mode.name,
        reason=reason,
        chosen=chosen,
        rejected=rejected,
    )


def _reason(chosen: Roofline, rejected: Roofline) -> str:
    kind, other = ("fused", "unfused") if chosen.plan.fused else ("unfused", "fused")
    return (
        f"{kind}: {chosen.intensity:.1f} flop/B against {rejected.intensity:.1f} {other}, at most "
        f"{chosen.bound / 1e9:.4g} Gflop/s against {rejected.bound / 1e9:.4g} "
        f"({chosen.limit} limits, {chosen.occupancy:.0%} occupied, "
        f"{chosen.plan.rows} rows per group), kernels to start: {chosen.launches} against "
        f"{rejected.launches}"
    )
