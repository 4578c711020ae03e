"""What became of one candidate: the closed set of outcomes.

Nothing vanishes: every candidate that was asked for ends in exactly one ``Outcome``.  Times that
are not finite and positive never become a latency (``faults`` of other tuners: TVM's own database
ranks NaN first); that conversion happens here and nowhere else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The end states of a candidate."""

    OK = "ok"
    ILLEGAL = "illegal"
    COMPILE_ERROR = "compile_error"
    COMPILE_CRASH = "compile_crash"
    RUN_ERROR = "run_error"
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    NON_FINITE = "non_finite"


@dataclass(frozen=True)
class Outcome:
    """Result of measuring one candidate.

    ``samples_s`` holds one mean run time in seconds per repeat; it is empty unless ``status`` is
    ``OK``.  ``reason`` is one line for people.  ``wall_s`` is what the measurement cost.
    """

    status: Status
    samples_s: tuple[float, ...] = ()
    reason: str = ""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != bool(self.samples_s):
            raise ValueError("expected samples_s exactly when status is ok")
        if not all(math.isfinite(s) and s > 0 for s in self.samples_s):
            raise ValueError("expected finite positive samples_s; use Outcome.from_samples")

    @property
    def ok(self) -> bool:
        """Whether the candidate ran and was measured."""
        return self.status is Status.OK

    @property
    def measured(self) -> bool:
        """Whether a measurement was tried, failed ones included."""
        return self.status is not Status.ILLEGAL

    @property
    def latency_s(self) -> float | None:
        """Median run time in seconds, ``None`` unless ``ok``."""
        return statistics.median(self.samples_s) if self.samples_s else None

    @classmethod
    def from_samples(cls, samples_s: Sequence[float], wall_s: float = 0.0) -> Outcome:
        """Turn raw timings into an outcome: NaN, infinite, zero or negative ones are failures."""
        samples = tuple(float(s) for s in samples_s)
        bad = [s for s in samples if not (math.isfinite(s) and s > 0)]
        if bad or not samples:
            return cls(Status.NON_FINITE, (), f"run time {bad[0] if bad else 'missing'}", wall_s)
        return cls(Status.OK, samples, "", wall_s)
