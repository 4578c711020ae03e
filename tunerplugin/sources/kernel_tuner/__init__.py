"""Kernel Tuner: its space files (T1), its cache files, and their spaces as ours.

recording = read_cache("A100.json.gz")
space = space_of_recordings([recording])
problem = problem_of(recording.kernel, recording.device, space.names, recording.problem_size)
curve = replay(Tuner(problem, space, Predictor()), recording.outcomes, trials=50)
"""

from .cache import Recording, read_cache
from .conditions import Condition, Recorded
from .devices import GPUS, Gpu, device_words, find_gpu, likeness
from .expressions import Expression, parse_expression
from .space import (
    KernelTunerSpace,
    References,
    parameter_words,
    problem_of,
    space_of_file,
    space_of_recordings,
)
from .t1 import SpaceFile, read_space_file
from .training import examples_of, group_by_kernel, train
from .transfer import EnumeratedScorer, transfer_scorer

__all__ = [
    "GPUS",
    "Condition",
    "EnumeratedScorer",
    "Expression",
    "Gpu",
    "KernelTunerSpace",
    "Recorded",
    "Recording",
    "References",
    "SpaceFile",
    "device_words",
    "examples_of",
    "find_gpu",
    "group_by_kernel",
    "likeness",
    "parameter_words",
    "parse_expression",
    "problem_of",
    "read_cache",
    "read_space_file",
    "space_of_file",
    "space_of_recordings",
    "train",
    "transfer_scorer",
]
