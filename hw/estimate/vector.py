"""Cycles of vector operators, by the primitives that one element takes.

A lane takes one element per cycle through an addition, a multiplication or a comparison; the
special functions take the cycles of WHAM's vector core (msr-fiddle/phaze,
third_party_for_phaze/wham: exponential by look-up 1, division 10, power and square root 15, error
function 15, hyperbolic tangent 27, dropout's random number 1).  Its sigmoid of 12 is then the sum
of its parts.  Logarithm and sine are not in that table: the logarithm is a look-up as the
exponential, the sine takes what the error function takes (estimated).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ..graph.functions import FUNCTIONS, Primitive
from .systolic import ceil_div

CYCLES: dict[Primitive, int] = {
    Primitive.ALU: 1,
    Primitive.MOVE: 1,
    Primitive.EXP: 1,
    Primitive.LOG: 1,
    Primitive.RANDOM: 1,
    Primitive.DIVIDE: 10,
    Primitive.SQRT: 15,
    Primitive.POWER: 15,
    Primitive.ERF: 15,
    Primitive.SINE: 15,
    Primitive.TANH: 27,
}


@cache
def cycles_per_element(function: str) -> int:
    """Cycles of one lane for one element of a function of ``graph.functions.FUNCTIONS``."""
    return sum(CYCLES[primitive] * count for primitive, count in FUNCTIONS[function].items())


def vector_cycles(work: Iterable[tuple[str, int]], lanes: int, cores: int = 1) -> int:
    """Cycles of (function, elements) pairs, one after another, on ``cores`` of ``lanes`` each."""
    return sum(
        int(ceil_div(elements, lanes * cores)) * cycles_per_element(function)
        for function, elements in work
    )


def lane_cycles(work: Iterable[tuple[str, int]]) -> int:
    """Cycles that all lanes together are busy: what the energy goes with."""
    return sum(elements * cycles_per_element(function) for function, elements in work)
