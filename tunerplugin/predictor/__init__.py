"""The predictor: an attention encoder-decoder from the problem language to the knob language.

Start reading at ``Predictor``.  Imports torch, never tvm.
"""

from .batching import Example
from .encoding import ENCODING_VERSION
from .layers import ModelConfig
from .metric import learn_metric
from .packaged import load_packaged
from .predictor import Predictor
from .training import OnlineTrainer, OnStep, TrainingConfig, TrainingReport, fit
from .weights import Table, WeightsInfo, load_weights, save_weights

__all__ = [
    "ENCODING_VERSION",
    "Example",
    "ModelConfig",
    "OnStep",
    "OnlineTrainer",
    "Predictor",
    "Table",
    "TrainingConfig",
    "TrainingReport",
    "WeightsInfo",
    "fit",
    "learn_metric",
    "load_packaged",
    "load_weights",
    "save_weights",
]
