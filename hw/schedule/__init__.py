"""Critical paths, list schedules and exact schedules of an operator graph.

``problem.py`` says what is scheduled, ``critical.py`` holds ASAP, ALAP and slack, ``lists.py`` the
list scheduler with its conflicts, ``justify.py`` makes its schedules shorter, ``bounds.py`` says
what no schedule can beat, and ``exact.py`` holds the constraint solver, which needs the extra
``[exact]``.
"""

from .bounds import Bounds, lower_bounds
from .critical import Levels, levels
from .exact import ExactSchedule, solve
from .justify import justified
from .lists import Conflict, Schedule, list_schedule
from .problem import MEMORY_UNITS, Capacity, Precedence, Problem, Resource

__all__ = [
    "MEMORY_UNITS",
    "Bounds",
    "Capacity",
    "Conflict",
    "ExactSchedule",
    "Levels",
    "Precedence",
    "Problem",
    "Resource",
    "Schedule",
    "justified",
    "levels",
    "list_schedule",
    "lower_bounds",
    "solve",
]
