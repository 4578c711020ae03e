"""What the beam search and the tuner need from a predictor (an interface of four methods)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..space import Knob, Problem, Space, Value

FloatArray = NDArray[np.float64]


class Scorer(Protocol):
    """Scores legal values step by step, and complete candidates as a whole.

    A *state* is opaque and stands for a batch of hypotheses (all of one problem).
    """

    def start(self, problem: Problem) -> Any:
        """The state of one empty hypothesis."""

    def score(
        self, state: Any, knobs: Sequence[Knob], legal: Sequence[tuple[Value, ...]]
    ) -> list[FloatArray]:
        """Log-probabilities of each hypothesis' legal values (they sum to 1 over ``legal[i]``)."""

    def extend(
        self, state: Any, parents: Sequence[int], knobs: Sequence[Knob], values: Sequence[Value]
    ) -> Any:
        """The state of the hypotheses ``parents[i]`` followed by ``knobs[i] = values[i]``."""

    def rank(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """Predicted relative speed of complete candidates (higher is faster; any scale)."""
