"""The plugin inside TVM's MetaSchedule: strategy, cost model, ``tune`` and ``predict``."""

from .api import export_database, predict, tune
from .database import TaskCoverage, TunedDatabase
from .session import Progress

__all__ = [
    "Progress",
    "TaskCoverage",
    "TunedDatabase",
    "export_database",
    "predict",
    "tune",
]
