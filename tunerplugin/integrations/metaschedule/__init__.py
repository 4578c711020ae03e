"""The plugin inside TVM's MetaSchedule: strategy, cost model, ``tune`` and ``predict``."""

from .api import export_database, predict, tune
from .builder import local_builder
from .cost_model import Seq2SeqModel
from .database import TaskCoverage, TunedDatabase
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
    "local_builder",
    "predict",
    "register",
    "tune",
]
