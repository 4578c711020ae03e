"""Published chips beside mined ones: one chip's cores, as many as a budget holds."""

from __future__ import annotations

from dataclasses import replace

from ...errors import BudgetError
from ..accelerator import Accelerator
from ..estimate.design import area, power
from ..estimate.technology import Technology
from .space import Budget, upwards


def scaled(
    chip: Accelerator,
    like: Accelerator,
    budget: Budget,
    technology: Technology,
    own_clock: bool = False,
) -> Accelerator:
    """``chip`` with as many of its cores as fit the budget, at ``like``'s memory and bandwidth.

    Vector cores and the shared buffer grow with the tensor cores.  Memory, links and on-chip
    bandwidth are ``like``'s, and so is the clock unless ``own_clock``: the technology presets know
    no cost of a faster clock but its power.
    Raises ``BudgetError`` where not even one core fits.
    """

    def of(count: int) -> Accelerator:
        return replace(
            chip,
            name=f"{chip.name}-x{count}",
            tensor_cores=count,
            vector_cores=max(1, count * chip.vector_cores // chip.tensor_cores),
            shared_buffer_bytes=max(1, count * chip.shared_buffer_bytes // chip.tensor_cores),
            frequency_hz=chip.frequency_hz if own_clock else like.frequency_hz,
            memory_bytes=like.memory_bytes,
            memory_bytes_s=like.memory_bytes_s,
            on_chip_bytes_s=like.on_chip_bytes_s,
            links=like.links,
            link_bytes_s=like.link_bytes_s,
            topology=like.topology,
            tdp_w=None,
            area_mm2=None,
            process_nm=None,
        )

    def fits(count: int) -> bool:
        made = of(count)
        sizes = area(made, technology).total_mm2, power(made, technology).total_w
        return budget.allows(*sizes)

    if not fits(1):
        one = of(1)
        raise BudgetError(
            f"expected a budget that holds one core of {chip.name}, got {budget}; it takes "
            f"{upwards(area(one, technology).total_mm2)} mm^2 and "
            f"{upwards(power(one, technology).total_w)} W in technology {technology.name}"
        )
    count = 1
    while fits(2 * count) and count < 1 << 20:
        count *= 2
    step = count
    while step:
        if fits(count + step):
            count += step
        step //= 2
    return of(count)
