"""The scorer that prefers nothing: uniform random search, the baseline of every comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..predictor import Example, TrainingReport
from ..space import Knob, Problem, Space, Value
from .scorer import FloatArray


class UniformScorer:
    """Every legal value of every knob is as good as any other.  Implements ``LearningScorer``."""

    def start(self, problem: Problem) -> None:
        """See ``Scorer``: there is no state."""

    def score(
        self, state: None, knobs: Sequence[Knob], legal: Sequence[tuple[Value, ...]]
    ) -> list[FloatArray]:
        """See ``Scorer``."""
        return [np.full(len(values), -np.log(len(values))) for values in legal]

    def extend(
        self, state: None, parents: Sequence[int], knobs: Sequence[Knob], values: Sequence[Value]
    ) -> None:
        """See ``Scorer``."""

    def rank(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """See ``Scorer``."""
        return np.zeros(len(candidates))

    def update(self, examples: Sequence[Example]) -> TrainingReport:
        """See ``LearningScorer``: there is nothing to learn."""
        return TrainingReport(0, 0.0, 0.0, 0)
