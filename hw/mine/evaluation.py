"""What an evaluation says: a design's area and power, and its time and energy by workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..accelerator import Accelerator


class Metric(StrEnum):
    """What is best."""

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_WATT = "throughput-per-watt"
    ENERGY_DELAY = "energy-delay"

    @property
    def unit(self) -> str:
        """Of ``Evaluation.value``."""
        return {"throughput": "samples/s", "throughput-per-watt": "samples/s/W"}.get(self, "J s")


@dataclass(frozen=True)
class Run:
    """One step of one workload on a design.

    ``limits`` are the shares of the critical chain's time by ``estimate.cost.LIMITS``, ``waits``
    the cycles for which operators were ready and waited, by ``Resource``, and ``forward`` the
    forward pass's share of the critical chain.  ``bound_s`` is the time that no schedule of these
    operators beats.
    """

    workload: str
    seconds: float
    bound_s: float
    energy_j: float
    throughput: float
    limits: tuple[float, ...]
    waits: tuple[int, ...]
    forward: float
    utilisation: tuple[float, ...]

    @property
    def samples(self) -> int:
        """Of one step."""
        return round(self.throughput * self.seconds)


@dataclass(frozen=True)
class Evaluation:
    """A design with what it achieves; over several workloads, weighted geometric means.

    ``throughput`` is in samples/s, ``energy_delay_js`` in joule seconds for one step.
    """

    design: Accelerator
    technology: str
    area_mm2: float
    power_w: float
    throughput: float
    energy_delay_js: float
    runs: tuple[Run, ...]
    scheduled: bool

    @property
    def throughput_per_watt(self) -> float:
        """Samples per second for a watt of the sustained maximum power (WHAM's Perf/TDP)."""
        return self.throughput / self.power_w

    def value(self, metric: Metric) -> float:
        """The metric in its own unit."""
        if metric == Metric.THROUGHPUT:
            return self.throughput
        if metric == Metric.THROUGHPUT_PER_WATT:
            return self.throughput_per_watt
        return self.energy_delay_js

    def score(self, metric: Metric, floor: float = 0.0) -> float:
        """The metric as something to maximise; below the throughput ``floor`` it is negative."""
        if self.throughput < floor:
            return self.throughput / floor - 1
        value = self.value(metric)
        return 1 / value if metric == Metric.ENERGY_DELAY else value

    @property
    def limits(self) -> tuple[float, ...]:
        """Shares of the critical chains' time by ``LIMITS``, mean over the workloads."""
        return tuple(
            sum(share) / len(self.runs)
            for share in zip(*(r.limits for r in self.runs), strict=True)
        )
