"""The predictor that a run starts from."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from ...predictor import Predictor

_PACKAGED = "metaschedule.safetensors"


def load_predictor(weights: str | os.PathLike[str] | None, seed: int) -> Predictor:
    """The predictor with the given weights, else with those in the package, else untrained.

    Raises ``WeightsError`` when a file does not fit.
    """
    if weights is not None:
        return Predictor.load(Path(weights), seed)
    packaged = resources.files("tunerplugin") / "weights" / _PACKAGED
    if packaged.is_file():
        with resources.as_file(packaged) as path:
            return Predictor.load(path, seed)
    return Predictor(seed)
