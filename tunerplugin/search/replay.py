"""Tuning against recorded measurements: the same loop as a live run, without a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..outcome import Outcome, Status
from ..space import Value
from .beam import Candidate
from .tuner import Tuner, run


def replay(
    tuner: Tuner,
    recorded: Mapping[tuple[Value, ...], Outcome],
    trials: int,
    batch: int = 8,
) -> list[float | None]:
    """Tune up to ``trials`` and return the best latency in seconds after each new one.

    What the tuner was told before counts, as trials and for the best.  ``None`` stands for nothing
    that ran yet; the curve is shorter where the space is used up before.  A candidate without a
    record counts as illegal: a recorded space holds what could be run.
    """
    order: list[tuple[Value, ...]] = []

    def measure(candidates: Sequence[Candidate]) -> dict[tuple[Value, ...], Outcome]:
        order.extend(candidate.values for candidate in candidates)
        missing = Outcome(Status.ILLEGAL, reason="not among the recorded measurements")
        return {c.values: recorded.get(c.values, missing) for c in candidates}

    earlier = tuner.history.best
    best = earlier[1].latency_s if earlier else None
    run(tuner, measure, trials, batch)
    curve: list[float | None] = []
    for values in order:
        latency = tuner.history.outcomes[values].latency_s
        if latency is not None and (best is None or latency < best):
            best = latency
        curve.append(best)
    return curve
