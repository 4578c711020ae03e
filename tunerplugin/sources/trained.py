"""What training on another tuner's records gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..predictor import Predictor


@dataclass(frozen=True)
class Trained:
    """A predictor, how many ``examples`` it learnt from, and what was ``left_out``, by reason.

    ``loss`` is the mean of -log p of the recorded choices over the last epoch.
    """

    predictor: Predictor
    examples: int
    left_out: Counter[str]
    loss: float
