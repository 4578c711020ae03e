"""What training on another tuner's records gives."""

from __future__ import annotations

from dataclasses import dataclass

from ..predictor import Predictor


@dataclass(frozen=True)
class Trained:
    """A predictor, how many ``examples`` it learnt from, and how many records were ``left_out``.

    ``loss`` is the mean of -log p of the recorded choices over the last epoch.
    """

    predictor: Predictor
    examples: int
    left_out: int
    loss: float
