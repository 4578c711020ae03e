"""The predictor: an attention encoder-decoder from the problem language to the knob language.

Start reading at ``Predictor``.  Imports torch, never tvm.
"""

from .batching import Example
from .encoding import ENCODING_VERSION
from .layers import ModelConfig
from .predictor import Predictor
from .training import OnlineTrainer, TrainingConfig, TrainingReport, fit
from .weights import WeightsInfo, load_weights, save_weights

__all__ = [
    "ENCODING_VERSION",
    "Example",
    "ModelConfig",
    "OnlineTrainer",
    "Predictor",
    "TrainingConfig",
    "TrainingReport",
    "WeightsInfo",
    "fit",
    "load_weights",
    "save_weights",
]
