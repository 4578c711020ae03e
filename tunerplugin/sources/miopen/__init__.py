"""MIOpen: performance databases of AMD GPUs, and the spaces of its convolution solvers.

for record in read_records(Path("gfx900_64.cd.pdb.txt.xz")):
    problem = describe(record.problem, record.device)
    steps = training_steps(record.problem, record.solver, record.values, full=True)
"""

from .coverage import Coverage, coverage
from .devices import Device, describe, parse_device
from .learning import Chooser, train
from .problem import Conv3dError, ConvProblem, check_sizes, format_key, parse_key
from .records import PerfRecord, read_records
from .rules import Rule, RuledSpace
from .solver import Solver
from .solvers import SOLVERS, solver_of, solvers_for, space_of, training_steps
from .writer import Entry, write_user_db

__all__ = [
    "SOLVERS",
    "Chooser",
    "Conv3dError",
    "ConvProblem",
    "Coverage",
    "Device",
    "Entry",
    "PerfRecord",
    "Rule",
    "RuledSpace",
    "Solver",
    "check_sizes",
    "coverage",
    "describe",
    "format_key",
    "parse_device",
    "parse_key",
    "read_records",
    "solver_of",
    "solvers_for",
    "space_of",
    "train",
    "training_steps",
    "write_user_db",
]
