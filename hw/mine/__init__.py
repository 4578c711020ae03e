"""The search for the best design of a workload under area and power.

``mine`` is the way in; ``search.py`` holds the heuristic and ``evaluate.py`` what it maximises.
"""

from .chips import scaled
from .evaluate import Evaluator
from .evaluation import Evaluation, Metric, Run
from .mining import Result, mine
from .pareto import pareto_front, write_csv, write_plot
from .search import Search
from .space import Budget, DesignSpace, Point
from .steps import Effort, Step
from .workload import Workload

__all__ = [
    "Budget",
    "DesignSpace",
    "Effort",
    "Evaluation",
    "Evaluator",
    "Metric",
    "Point",
    "Result",
    "Run",
    "Search",
    "Step",
    "Workload",
    "mine",
    "pareto_front",
    "scaled",
    "write_csv",
    "write_plot",
]
