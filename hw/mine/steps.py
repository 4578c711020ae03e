"""What a search did, step by step, and how hard it may try."""

from __future__ import annotations

from dataclasses import dataclass

from .space import Point


@dataclass(frozen=True)
class Step:
    """One step of a search and why it was taken; ``value`` is the metric after it."""

    action: str
    reason: str
    point: Point
    value: float
    scheduled: bool


@dataclass(frozen=True)
class Effort:
    """How hard a search tries.

    ``hysteresis`` is how many halvings in a row may fail to help, ``tries`` how many sizes of array
    and ``patience`` how many neighbours are scheduled in a row without a better one.  At the end,
    ``shapes`` of vector cores that promise more are scheduled with every size of array.
    """

    hysteresis: int = 2
    tries: int = 2
    patience: int = 12
    shapes: int = 1
