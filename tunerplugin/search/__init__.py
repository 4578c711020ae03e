"""Constrained beam search and the ask/measure/tell loop.  Never imports tvm."""

from .beam import BeamSearch, Candidate, SearchReport
from .explored import Explored
from .history import History
from .replay import replay
from .scorer import Scorer
from .tuner import LearningScorer, Tuner, TunerOptions, run
from .uniform import UniformScorer

__all__ = [
    "BeamSearch",
    "Candidate",
    "Explored",
    "History",
    "LearningScorer",
    "Scorer",
    "SearchReport",
    "Tuner",
    "TunerOptions",
    "UniformScorer",
    "replay",
    "run",
]
