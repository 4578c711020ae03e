"""Derivatives of the activations up to the third, as the chain rules of training need them.

Backward-data needs the first; carrying first and second derivatives with respect to the input
through the layers (Taylor mode, see ``training_streams``) needs one more in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tunerplugin.integrations.compat import tirx

from ..activations import derivative
from ..description import Activation
from ..elementary import Expression, clamp, elementary

_F = elementary("polynomial")
_GELU_SCALE = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_SCALE

#: Functions whose slope follows from their value alone, so that the sum need not be kept.
_SLOPE_OF_VALUE: dict[str, Callable[[Expression, float], Expression]] = {
    "none": lambda y, p: _const(1.0),
    "relu": lambda y, p: tirx.Select(y > 0.0, _const(1.0), _const(0.0)),
    "leaky_relu": lambda y, p: tirx.Select(y > 0.0, _const(1.0), _const(p)),
    "tanh": lambda y, p: 1.0 - y * y,
    "sigmoid": lambda y, p: y * (1.0 - y),
    "softplus": lambda y, p: 1.0 - _F.exp(_const(0.0) - y),
    "exponential": lambda y, p: y,
}


#: Functions, and slopes from the value, of so few instructions that they may stand in an unrolled
#: register block.  The others would multiply what TVM and LLVM have to read.
_SHORT = {"none", "relu", "leaky_relu"}
_SHORT_SLOPE = _SHORT | {"tanh", "sigmoid", "exponential"}


def is_short(activation: Activation) -> bool:
    """Whether the activation takes few instructions."""
    return activation.function in _SHORT


def has_short_slope(activation: Activation) -> bool:
    """Whether ``slope_of_value`` takes few instructions."""
    return activation.function in _SHORT_SLOPE


def slope_follows_from_value(activation: Activation) -> bool:
    """Whether ``slope_of_value`` knows the function.

    A leaky ReLU of negative slope maps two sums to one value.
    """
    if activation.function == "leaky_relu" and (activation.parameter or 0.0) < 0.0:
        return False
    return activation.function in _SLOPE_OF_VALUE


def slope_of_value(activation: Activation, value: Expression) -> Expression:
    """The first derivative from the activation's value."""
    return _SLOPE_OF_VALUE[activation.function](value, activation.parameter or 0.0)


def slope_of_sum(activation: Activation, x: Expression) -> Expression:
    """The first derivative from the pre-activation ``x``."""
    return derivative(activation, x, "polynomial")


def derivatives(
    activation: Activation, x: Expression, order: int, keep: Callable[[Expression], Expression]
) -> list[Expression]:
    """The first ``order`` (1 to 3) derivatives at the pre-activation ``x``.

    ``keep`` gives an expression a name, so that what several derivatives share is computed once.
    """
    rule = _RULES[activation.function]
    return rule(x, activation.parameter or 0.0, keep)[:order]


def _const(value: float) -> Expression:
    return tirx.const(value, "float32")


Keep = Callable[[Expression], Expression]


def _linear(x: Expression, p: float, keep: Keep) -> list[Expression]:
    return [_const(1.0), _const(0.0), _const(0.0)]


def _relu(x: Expression, p: float, keep: Keep) -> list[Expression]:
    slope = tirx.Select(x > 0.0, _const(1.0), _const(p))
    return [slope, _const(0.0), _const(0.0)]


def _logistic(x: Expression, keep: Keep) -> list[Expression]:
    """s and its derivatives s', s'', s'''."""
    s = keep(1.0 / (1.0 + _F.exp(_const(0.0) - x)))
    first = keep(s * (1.0 - s))
    second = keep(first * (1.0 - 2.0 * s))
    return [s, first, second, first * (1.0 - 6.0 * first)]


def _sigmoid(x: Expression, p: float, keep: Keep) -> list[Expression]:
    return _logistic(x, keep)[1:]


def _softplus(x: Expression, p: float, keep: Keep) -> list[Expression]:
    return _logistic(x, keep)[:3]


def _silu(x: Expression, p: float, keep: Keep) -> list[Expression]:
    """(x s)^(n) = x s^(n) + n s^(n - 1)."""
    s = _logistic(x, keep)
    return [x * s[n] + n * s[n - 1] for n in (1, 2, 3)]


def _tanh(x: Expression, p: float, keep: Keep) -> list[Expression]:
    t = keep(_F.tanh(x))
    first = keep(1.0 - t * t)
    return [first, -2.0 * t * first, first * (4.0 - 6.0 * first)]


def _gelu(x: Expression, p: float, keep: Keep) -> list[Expression]:
    """Phi + x phi, and phi' = -x phi; beyond 20 phi is 0 and x**2 must not overflow."""
    bounded = keep(clamp(x, -20.0, 20.0))
    square = keep(bounded * bounded)
    density = keep((1 / math.sqrt(2 * math.pi)) * _F.exp(-0.5 * square))
    cdf = 0.5 + 0.5 * _F.erf(x * math.sqrt(0.5))
    return [
        cdf + bounded * density,
        density * (2.0 - square),
        density * bounded * (square - 4.0),
    ]


def _gelu_tanh(x: Expression, p: float, keep: Keep) -> list[Expression]:
    """x s(q(x)) by the chain rule; beyond 10 s is 0 or 1 in float32."""
    b = keep(clamp(x, -10.0, 10.0))
    square = keep(b * b)
    q1 = keep(_GELU_SCALE + 3 * _GELU_CUBIC * square)
    q2, q3 = 6 * _GELU_CUBIC * b, 6 * _GELU_CUBIC
    s = _logistic(keep(b * (_GELU_SCALE + _GELU_CUBIC * square)), keep)
    g1 = keep(s[1] * q1)
    g2 = keep(s[2] * q1 * q1 + s[1] * q2)
    g3 = s[3] * q1 * q1 * q1 + 3.0 * s[2] * q1 * q2 + s[1] * q3
    return [s[0] + b * g1, 2.0 * g1 + b * g2, 3.0 * g2 + b * g3]


def _exponential(x: Expression, p: float, keep: Keep) -> list[Expression]:
    return [keep(_F.exp(x))] * 3


def _sine(x: Expression, p: float, keep: Keep) -> list[Expression]:
    angle = keep(x * p)
    sine, cosine = keep(_F.sin(angle)), keep(_F.cos(angle))
    return [p * cosine, -(p**2) * sine, -(p**3) * cosine]


_RULES: dict[str, Callable[[Expression, float, Keep], list[Expression]]] = {
    "none": _linear,
    "relu": _relu,
    "leaky_relu": _relu,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "exponential": _exponential,
    "sine": _sine,
}
