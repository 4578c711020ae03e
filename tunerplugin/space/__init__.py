"""The two languages: problems and knobs.  Imports neither torch nor tvm."""

from .problem import Problem, Value, Word
from .space import Constraint, Domain, Knob, ListSpace, Prefix, Space, Step, UnionSpace

__all__ = [
    "Constraint",
    "Domain",
    "Knob",
    "ListSpace",
    "Prefix",
    "Problem",
    "Space",
    "Step",
    "UnionSpace",
    "Value",
    "Word",
]
