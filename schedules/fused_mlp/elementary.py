"""exp, tanh, erf, sin and cos of a float32 expression, in two ways.

``native`` leaves them to the target's own functions: right for GPUs.  ``polynomial`` writes them
out in additions, multiplications, selections and a division, because LLVM turns a vector of ``exp``
into one library call per lane; so written, they vectorise on any CPU.  Largest errors against
float64, over all x unless said otherwise (tested), where u = 2**-24:

========  ======================================================================
exp       relative error 4 u (normal results), 0 below -104, inf where it overflows
tanh      relative error 8 u
erf       absolute error 16 u
sin, cos  absolute error 4 u for \\|x\\| <= 8192; beyond that only within [-1, 1]
========  ======================================================================

All of them hand NaN on.  The largest errors of the activations are in tests/schedules.  GPU source
that TVM writes as text has 7 digits of every constant, so there errors of some 8 u come on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from tunerplugin.integrations.compat import tirx

Expression = Any
"""A TIR expression of dtype float32 (the wheel has no types)."""

Unary = Callable[[Expression], Expression]
Intrinsics = Literal["native", "polynomial"]

# Cody and Waite: constants with so few bits that n times the first two is exact (as in Cephes).
_LN2 = (0.693359375, -2.12194440e-4)
_PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)

# Taylor series.  exp on |r| <= ln(2)/2: the rest is below r**8/8! = 5e-9.  sin on |r| <= pi/2:
# below r**13/13! = 6e-8, so one more term is taken.
_EXP = tuple(1 / math.factorial(k) for k in range(8))
_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(7))

# Odd rational minimax approximations in x, as in Eigen (generic_fast_tanh_float, and its erf).
_TANH_CLAMP = 7.90531110763549805
_TANH_LINEAR = 4e-4
_TANH_NUMERATOR = (
    4.89352455891786e-3,
    6.37261928875436e-4,
    1.48572235717979e-5,
    5.12229709037114e-8,
    -8.60467152213735e-11,
    2.00018790482477e-13,
    -2.76076847742355e-16,
)
_TANH_DENOMINATOR = (
    4.89352518554385e-3,
    2.26843463243900e-3,
    1.18534705686654e-4,
    1.19825839466702e-6,
)
_ERF_CLAMP = 4.0
_ERF_NUMERATOR = (
    -1.60960333262415e-2,
    -2.95459980854025e-3,
    -7.34990630326855e-4,
    -5.69250639462346e-5,
    -2.10102402082508e-6,
    2.77068142495902e-8,
    -2.72614225801306e-10,
)
_ERF_DENOMINATOR = (
    -1.42647390514189e-2,
    -7.37332916720468e-3,
    -1.68282697438203e-3,
    -2.13374055278905e-4,
    -1.45660718464996e-5,
)


@dataclass(frozen=True)
class Elementary:
    """The functions that the activations are made of, float32 to float32."""

    exp: Unary
    tanh: Unary
    erf: Unary
    sin: Unary
    cos: Unary


def elementary(intrinsics: Intrinsics) -> Elementary:
    """The functions in one of the two ways."""
    return _NATIVE if intrinsics == "native" else _POLYNOMIAL


def clamp(x: Expression, low: float, high: float) -> Expression:
    """x within [low, high]; NaN stays NaN, unlike with min and max."""
    small, large = tirx.const(low, "float32"), tirx.const(high, "float32")
    return tirx.Select(x < small, small, tirx.Select(x > large, large, x))


_BINDER: ContextVar[Callable[[Expression], Expression] | None] = ContextVar("binder", default=None)


@contextmanager
def bound_by(keep: Callable[[Expression], Expression]) -> Iterator[None]:
    """Within it, shared values are what ``keep`` makes of them, e.g. a store and a load.

    TVM's passes visit a Let's value more than once, so Lets nested in values cost exponential time:
    where statements can be emitted, a place in registers compiles faster.
    """
    token = _BINDER.set(keep)
    try:
        yield
    finally:
        _BINDER.reset(token)


def let(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """``body`` of ``value``, computed once: expressions are trees, so that reuse without it
    multiplies what the compiler has to read.  TVM's time grows exponentially with the depth of
    nested lets too, so they are for what is used often."""
    keep = _BINDER.get()
    if keep is not None:
        return body(keep(value))
    name = tirx.Var("shared", "float32")
    return tirx.Let(name, value, body(name))


def horner(coefficients: Sequence[float], x: Expression) -> Expression:
    """The polynomial with these coefficients, lowest order first."""
    value = tirx.const(coefficients[-1], "float32")
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + tirx.const(coefficient, "float32")
    return value


def _nearest(x: Expression) -> Expression:
    """The nearest whole number.  TVM's vectoriser knows floor; nearbyint it leaves scalar."""
    return tirx.floor(x + 0.5)


def _exp(x: Expression) -> Expression:
    """2**n exp(r) with x = n ln 2 + r."""
    bounded = clamp(x, -104.0, 104.0)

    def scaled(n: Expression) -> Expression:
        r = bounded - n * _LN2[0] - n * _LN2[1]
        return let(r, lambda r: horner(_EXP, r)) * _power_of_two(n.astype("int32"))

    return let(_nearest(bounded * math.log2(math.e)), scaled)


def _power_of_two(n: Expression) -> Expression:
    """2**n in two factors, so that the product with exp(r) may be subnormal or inf."""
    half = n >> 1
    return _normal_power_of_two(half) * _normal_power_of_two(n - half)


def _normal_power_of_two(n: Expression) -> Expression:
    return tirx.reinterpret("float32", (n + 127) << 23)


def _odd_rational(
    x: Expression, numerator: Sequence[float], denominator: Sequence[float]
) -> Expression:
    return let(x * x, lambda square: x * horner(numerator, square) / horner(denominator, square))


def _tanh(x: Expression) -> Expression:
    """Where x**2 would be subnormal tanh(x) is x."""
    bounded = clamp(x, -_TANH_CLAMP, _TANH_CLAMP)
    value = _odd_rational(bounded, _TANH_NUMERATOR, _TANH_DENOMINATOR)
    return tirx.Select(tirx.all(x > -_TANH_LINEAR, x < _TANH_LINEAR), x, value)


def _erf(x: Expression) -> Expression:
    return _odd_rational(clamp(x, -_ERF_CLAMP, _ERF_CLAMP), _ERF_NUMERATOR, _ERF_DENOMINATOR)


def _sin(x: Expression) -> Expression:
    """(-1)**n sin(r) with x = n pi + r."""
    n = _nearest(x * (1 / math.pi))
    return _signed_sin(x - n * _PI[0] - n * _PI[1] - n * _PI[2], n.astype("int32"))


def _cos(x: Expression) -> Expression:
    """(-1)**(n + 1) sin(r) with x = m pi + r, m = n + 1/2."""
    n = tirx.floor(x * (1 / math.pi))
    m = n + 0.5
    return _signed_sin(x - m * _PI[0] - m * _PI[1] - m * _PI[2], n.astype("int32") + 1)


def _signed_sin(r: Expression, n: Expression) -> Expression:
    def signed(r: Expression) -> Expression:
        value = r * let(r * r, lambda square: horner(_SIN, square))
        return tirx.reinterpret("float32", tirx.reinterpret("int32", value) ^ (n << 31))

    return let(r, lambda r: signed(clamp(r, -1.6, 1.6)))


_NATIVE = Elementary(tirx.exp, tirx.tanh, tirx.erf, tirx.sin, tirx.cos)
_POLYNOMIAL = Elementary(_exp, _tanh, _erf, _sin, _cos)
