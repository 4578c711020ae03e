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
    """Tune for ``trials`` and return the best latency in seconds after each of them.

    A candidate without a record counts as illegal: a recorded space holds what could be run.
    """
    order: list[tuple[Value, ...]] = []

    def measure(candidates: Sequence[Candidate]) -> dict[tuple[Value, ...], Outcome]:
        order.extend(candidate.values for candidate in candidates)
        missing = Outcome(Status.ILLEGAL, reason="not among the recorded measurements")
        return {c.values: recorded.get(c.values, missing) for c in candidates}

    run(tuner, measure, trials, batch)
    curve: list[float | None] = []
    best: float | None = None
    for values in order:
        latency = tuner.history.outcomes[values].latency_s
        if latency is not None and (best is None or latency < best):
            best = latency
        curve.append(best)
    return curve
