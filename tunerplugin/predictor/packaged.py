"""The weights that the package brings."""

from __future__ import annotations

from importlib import resources

from .predictor import Predictor


def load_packaged(name: str, seed: int = 0) -> Predictor | None:
    """The predictor of ``tunerplugin/weights/<name>.safetensors``; ``None`` where it is absent.

    Raises ``WeightsError`` when the file does not fit this version.
    """
    packaged = resources.files("tunerplugin") / "weights" / f"{name}.safetensors"
    if not packaged.is_file():
        return None
    with resources.as_file(packaged) as path:
        return Predictor.load(path, seed)
