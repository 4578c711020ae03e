"""What a vector operator computes per element, in primitive operations.

A vector operator names its *function* ("gelu", "softmax_backward", "adam"); the tables here say
which primitives one element of it takes.  An estimator gives cycles to the primitives, not to the
hundreds of functions, so a new function needs no new cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Primitive(StrEnum):
    """An operation of one vector lane on one element."""

    ALU = "alu"  # add, subtract, multiply, fused multiply-add, maximum, compare, select
    MOVE = "move"  # copy, cast, fill: one pass over the element, no arithmetic
    DIVIDE = "divide"
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    TANH = "tanh"
    ERF = "erf"
    SINE = "sine"
    POWER = "power"
    RANDOM = "random"


def _counts(
    alu: int = 0, *, move: int = 0, divide: int = 0, **special: int
) -> Mapping[Primitive, int]:
    found = {Primitive.ALU: alu, Primitive.MOVE: move, Primitive.DIVIDE: divide}
    found |= {Primitive(name): count for name, count in special.items()}
    return MappingProxyType({primitive: count for primitive, count in found.items() if count})


#: Function -> primitives per element.  Elements are those of the output for elementwise functions,
#: those of the input for reductions, and output times window for pooling.
FUNCTIONS: Mapping[str, Mapping[Primitive, int]] = MappingProxyType(
    {
        "move": _counts(move=1),
        "alu": _counts(1),  # any one-operation function: add, mul, maximum, compare, where, relu
        "fma2": _counts(2),  # two dependent operations: addcmul, lerp, a masked multiply
        "divide": _counts(divide=1),
        "addcdiv": _counts(1, divide=1),
        "sqrt": _counts(sqrt=1),
        "rsqrt": _counts(sqrt=1, divide=1),
        "exp": _counts(exp=1),
        "log": _counts(log=1),
        "sine": _counts(sine=1),
        "power": _counts(power=1),
        "random": _counts(random=1),
        "erf": _counts(erf=1),
        "tanh": _counts(tanh=1),
        "tanh_backward": _counts(2),  # g * (1 - y*y)
        "sigmoid": _counts(1, divide=1, exp=1),
        "sigmoid_backward": _counts(3),  # g * y * (1 - y)
        "silu": _counts(2, divide=1, exp=1),
        "silu_backward": _counts(5, divide=1, exp=1),
        "gelu": _counts(4, erf=1),  # 0.5 x (1 + erf(x / sqrt 2))
        "gelu_tanh": _counts(6, tanh=1),
        "gelu_backward": _counts(7, erf=1, exp=1),
        "gelu_tanh_backward": _counts(12, tanh=1),
        "hardswish": _counts(5),  # x * clamp(x + 3, 0, 6) / 6
        "hardswish_backward": _counts(6),
        "hardsigmoid": _counts(4),
        "elu": _counts(2, exp=1),
        "softplus": _counts(1, exp=1, log=1),
        # Softmax: maximum, subtract, exponential, sum, divide.
        "softmax": _counts(3, divide=1, exp=1),
        "log_softmax": _counts(4, exp=1),  # the logarithm is one per row
        "softmax_backward": _counts(4),  # y * (g - sum(g * y))
        "log_softmax_backward": _counts(3, exp=1),  # g - exp(y) * sum(g)
        # Normalisation with statistics: mean 1, variance 2, then subtract, scale, gain and bias;
        # the square root and the division are one per group.
        "norm": _counts(7),
        "norm_inference": _counts(2),  # statistics fold to one multiply-add
        "norm_backward": _counts(10),
        "dropout": _counts(2, random=1),
        "batch_sum": _counts(1),  # reduction: one accumulation per input element
        "variance": _counts(3),
        "sort": _counts(16),  # comparisons per element of a short bitonic sort
    }
)


def flops_per_element(function: str) -> int:
    """Arithmetic operations per element: every primitive counts one, a move none."""
    return sum(n for primitive, n in FUNCTIONS[function].items() if primitive != Primitive.MOVE)
