"""The plugin inside TVM's MetaSchedule: strategy, cost model, ``tune`` and ``predict``."""

from .api import predict, tune
from .builder import local_builder
from .cost_model import Seq2SeqModel
from .database import TaskCoverage, TunedDatabase
from .export import export_database, knob_names
from .names import register
from .session import Progress
from .strategy import BeamSearch

__all__ = [
    "BeamSearch",
    "Progress",
    "Seq2SeqModel",
    "TaskCoverage",
    "TunedDatabase",
    "export_database",
    "knob_names",
    "local_builder",
    "predict",
    "register",
    "tune",
]
