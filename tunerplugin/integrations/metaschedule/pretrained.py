"""The predictor that a run starts from."""

from __future__ import annotations

import os
from pathlib import Path

from ...predictor import Predictor, load_packaged


def load_predictor(weights: str | os.PathLike[str] | None, seed: int) -> Predictor:
    """The predictor with the given weights, else with those in the package, else untrained.

    Raises ``WeightsError`` when a file does not fit.
    """
    if weights is not None:
        return Predictor.load(Path(weights), seed)
    return load_packaged("metaschedule", seed) or Predictor(seed)
