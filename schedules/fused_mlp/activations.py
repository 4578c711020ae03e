"""The activations as TIR expressions, their derivatives, and float64 references in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tunerplugin.integrations.compat import tirx

from .description import Activation
from .elementary import Elementary, Expression, Intrinsics, clamp, elementary, horner, let

Array = npt.NDArray[Any]

_GELU_CUBIC = 0.044715
_GELU_SCALE = math.sqrt(2 / math.pi)

# log1p(t) = 2 atanh(t / (2 + t)); on 0 <= t <= 1 the series' rest is below (1/9)**7/15 = 1.4e-8.
_ATANH = tuple(1 / (2 * k + 1) for k in range(7))


def expression(
    activation: Activation, x: Expression, intrinsics: Intrinsics = "native"
) -> Expression:
    """The activation of ``x``, a float32 expression that may be used many times.

    ``intrinsics="polynomial"`` vectorises on CPUs (see ``elementary``).  Nothing overflows to NaN:
    x may be as large as float32 goes.  ``exponential`` may overflow to inf, as it does in torch.
    """
    f, parameter = elementary(intrinsics), _parameter(activation)
    return _EXPRESSIONS[activation.function](x, f, parameter)


def derivative(
    activation: Activation, x: Expression, intrinsics: Intrinsics = "native"
) -> Expression:
    """d activation / dx at the pre-activation ``x``, as in ``expression``; 0 at a ReLU's kink."""
    f, parameter = elementary(intrinsics), _parameter(activation)
    return _DERIVATIVES[activation.function](x, f, parameter)


def reference(activation: Activation, x: Array) -> Array:
    """The activation in float64, element by element."""
    return _REFERENCES[activation.function](_float64(x), _parameter(activation))


def reference_derivative(activation: Activation, x: Array) -> Array:
    """The derivative in float64 at the pre-activation ``x``, element by element."""
    return _REFERENCE_DERIVATIVES[activation.function](_float64(x), _parameter(activation))


def _parameter(activation: Activation) -> float:
    return 0.0 if activation.parameter is None else activation.parameter


# TIR, from here.


def _constant(value: float) -> Expression:
    return tirx.const(value, "float32")


def _negated(x: Expression) -> Expression:
    return _constant(0.0) - x


def _sigmoid(x: Expression, f: Elementary) -> Expression:
    """exp(-x) = inf gives 0."""
    return 1.0 / (1.0 + f.exp(_negated(x)))


def _with_sigmoid(
    x: Expression, f: Elementary, body: Callable[[Expression, Expression], Expression]
) -> Expression:
    """``body`` of sigmoid(x) and sigmoid(-x), for |x| <= 88; the second without cancellation."""
    return let(
        f.exp(_negated(x)),
        lambda e: let(1.0 / (1.0 + e), lambda s: let(e * s, lambda c: body(s, c))),
    )


def _softplus(x: Expression, f: Elementary) -> Expression:
    """max(x, 0) + log1p(exp(-|x|))."""

    def log1p(t: Expression) -> Expression:
        return let(t / (2.0 + t), lambda z: 2.0 * z * let(z * z, lambda s: horner(_ATANH, s)))

    small = f.exp(tirx.Select(x < 0.0, x, _negated(x)))
    return tirx.Select(x < 0.0, _constant(0.0), x) + let(small, log1p)


def _normal_cdf(x: Expression, f: Elementary) -> Expression:
    return 0.5 + 0.5 * f.erf(x * math.sqrt(0.5))


def _gelu_argument(x: Expression) -> Expression:
    """2 u, for 1/2 (1 + tanh(u)) = sigmoid(2 u)."""
    return x * (2 * _GELU_SCALE + 2 * _GELU_SCALE * _GELU_CUBIC * (x * x))


def _gelu_derivative(x: Expression, f: Elementary) -> Expression:
    density = (1 / math.sqrt(2 * math.pi)) * f.exp(-0.5 * (x * x))
    return _normal_cdf(x, f) + x * density


def _gelu_tanh_derivative(x: Expression, f: Elementary) -> Expression:
    """s + x s (1 - s) (2 u)'; beyond 10 it is 0 or 1 in float32, and x**2 would overflow."""

    def inner(x: Expression) -> Expression:
        slope = 2 * _GELU_SCALE + 6 * _GELU_SCALE * _GELU_CUBIC * (x * x)
        return _with_sigmoid(_gelu_argument(x), f, lambda s, c: s + x * slope * (s * c))

    return let(clamp(x, -10.0, 10.0), inner)


def _silu_derivative(x: Expression, f: Elementary) -> Expression:
    """s (1 + x (1 - s)); beyond 88 it is 0 or 1 in float32."""
    return let(
        clamp(x, -88.0, 88.0),
        lambda x: _with_sigmoid(x, f, lambda s, c: s + x * (s * c)),
    )


def _sigmoid_derivative(x: Expression, f: Elementary) -> Expression:
    return _with_sigmoid(clamp(x, -88.0, 88.0), f, lambda s, c: s * c)


def _tanh_derivative(x: Expression, f: Elementary) -> Expression:
    return let(f.tanh(x), lambda t: 1.0 - t * t)


# NaN must come through a ReLU as in torch: x is what is chosen where the comparison fails.
_EXPRESSIONS: dict[str, Callable[[Expression, Elementary, float], Expression]] = {
    "none": lambda x, f, p: x,
    "relu": lambda x, f, p: tirx.Select(x < 0.0, _constant(0.0), x),
    "leaky_relu": lambda x, f, p: tirx.Select(x < 0.0, x * p, x),
    "silu": lambda x, f, p: x * _sigmoid(x, f),
    "gelu": lambda x, f, p: x * _normal_cdf(x, f),
    "gelu_tanh": lambda x, f, p: x * _sigmoid(_gelu_argument(x), f),
    "tanh": lambda x, f, p: f.tanh(x),
    "sigmoid": lambda x, f, p: _sigmoid(x, f),
    "softplus": lambda x, f, p: _softplus(x, f),
    "exponential": lambda x, f, p: f.exp(x),
    "sine": lambda x, f, p: f.sin(x * p),
}
_DERIVATIVES: dict[str, Callable[[Expression, Elementary, float], Expression]] = {
    "none": lambda x, f, p: _constant(1.0),
    "relu": lambda x, f, p: tirx.Select(x > 0.0, _constant(1.0), _constant(0.0)),
    "leaky_relu": lambda x, f, p: tirx.Select(x > 0.0, _constant(1.0), _constant(p)),
    "silu": lambda x, f, p: _silu_derivative(x, f),
    "gelu": lambda x, f, p: _gelu_derivative(x, f),
    "gelu_tanh": lambda x, f, p: _gelu_tanh_derivative(x, f),
    "tanh": lambda x, f, p: _tanh_derivative(x, f),
    "sigmoid": lambda x, f, p: _sigmoid_derivative(x, f),
    "softplus": lambda x, f, p: _sigmoid(x, f),
    "exponential": lambda x, f, p: f.exp(x),
    "sine": lambda x, f, p: p * f.cos(x * p),
}


# References in numpy, from here.


def _float64(x: Array) -> Array:
    return np.asarray(x).astype(np.float64)


def _reference_sigmoid(x: Array) -> Array:
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, 1.0) / (1.0 + t)


def _reference_normal_cdf(x: Array) -> Array:
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    return np.asarray(0.5 * erfc(-x * math.sqrt(0.5)))


def _reference_gelu_tanh_derivative(x: Array) -> Array:
    bounded = np.clip(x, -20, 20)
    u = _GELU_SCALE * (bounded + _GELU_CUBIC * bounded**3)
    s = _reference_sigmoid(2 * u)
    slope = 2 * _GELU_SCALE * (1 + 3 * _GELU_CUBIC * bounded**2)
    return s + bounded * slope * s * _reference_sigmoid(-2 * u)


def _reference_silu_derivative(x: Array) -> Array:
    s = _reference_sigmoid(x)
    return np.asarray(s * (1 + x * _reference_sigmoid(-x)))


_REFERENCES: dict[str, Callable[[Array, float], Array]] = {
    "none": lambda x, p: x,
    "relu": lambda x, p: np.maximum(x, 0),
    "leaky_relu": lambda x, p: np.where(x < 0, p * x, x),
    "silu": lambda x, p: x * _reference_sigmoid(x),
    "gelu": lambda x, p: x * _reference_normal_cdf(x),
    "gelu_tanh": lambda x, p: x * _reference_sigmoid(2 * _GELU_SCALE * (x + _GELU_CUBIC * x**3)),
    "tanh": lambda x, p: np.tanh(x),
    "sigmoid": lambda x, p: _reference_sigmoid(x),
    "softplus": lambda x, p: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "exponential": lambda x, p: np.exp(x),
    "sine": lambda x, p: np.sin(p * x),
}
_REFERENCE_DERIVATIVES: dict[str, Callable[[Array, float], Array]] = {
    "none": lambda x, p: np.ones_like(x),
    "relu": lambda x, p: np.where(x > 0, 1.0, 0.0),
    "leaky_relu": lambda x, p: np.where(x > 0, 1.0, p),
    "silu": lambda x, p: _reference_silu_derivative(x),
    "gelu": lambda x, p: (
        _reference_normal_cdf(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    ),
    "gelu_tanh": lambda x, p: _reference_gelu_tanh_derivative(x),
    "tanh": lambda x, p: 1 - np.tanh(x) ** 2,
    "sigmoid": lambda x, p: _reference_sigmoid(x) * _reference_sigmoid(-x),
    "softplus": lambda x, p: _reference_sigmoid(x),
    "exponential": lambda x, p: np.exp(x),
    "sine": lambda x, p: p * np.cos(p * x),
}
