"""Recognizing activations, whole or decomposed by an importer."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..description import Activation, Function
from .values import Value, Values

# Constants come rounded to the model's dtype; float16 has 11 bits.
TOLERANCE = 5e-4
# Beyond it log(1 + exp(x)) and x are the same float32.
SOFTPLUS_THRESHOLD = 15.0

WHOLE: dict[str, Function] = {
    "nn.relu": "relu",
    "nn.silu": "silu",
    "nn.gelu": "gelu",
    "nn.gelu_tanh": "gelu_tanh",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "exp": "exponential",
}
ELEMENTWISE = {
    *WHOLE,
    *("add", "multiply", "divide", "maximum", "negative", "abs", "power", "erf", "log", "sin"),
    *("greater", "where", "nn.leakyrelu", "nn.softplus", "reshape", "astype"),
    "full_like",
}
"""Operators that a dense layer may hold behind its product."""

Match = tuple[Activation, Value]
"""An activation and the value that it is applied to."""


def match_activation(values: Values, result: Value) -> list[Match]:
    """What ``result`` may be the activation of; more than one where forms overlap."""
    result = values.root(result)
    name = values.op(result)
    matches: list[Match] = []
    if name in WHOLE:
        matches.append((Activation(WHOLE[name]), values.args(result)[0]))
    for form in _FORMS.get(name, ()):
        match = form(values, result)
        if match is not None:
            matches.append(match)
    return matches


def _close(got: float | None, expected: float) -> bool:
    return got is not None and math.isclose(got, expected, rel_tol=TOLERANCE)


def _product(values: Values, value: Value, depth: int = 6) -> tuple[float, list[Value]]:
    """A value as a number times factors: ``0.5 * x * y`` and ``x / 2 * y`` are (0.5, [x, y])."""
    value = values.root(value)
    number = values.scalar(value)
    if number is not None:
        return number, []
    name = values.op(value)
    if depth == 0 or name not in {"multiply", "divide", "negative", "power"}:
        return 1.0, [value]
    left, *rest = values.args(value)
    coefficient, factors = _product(values, left, depth - 1)
    if name == "negative":
        return -coefficient, factors
    if name == "power":
        exponent = values.scalar(rest[0])
        if exponent in {2.0, 3.0}:
            return coefficient ** int(exponent), factors * int(exponent)
        return 1.0, [value]
    other, others = _product(values, rest[0], depth - 1)
    if name == "multiply":
        return coefficient * other, factors + others
    return (coefficient / other, factors) if other and not others else (1.0, [value])


def _other(values: Values, name: str, value: Value | None, number: float) -> Value | None:
    """x of ``name(x, number)`` or ``name(number, x)``."""
    if value is None:
        return None
    value = values.root(value)
    if values.op(value) == name:
        left, right = values.args(value)
        if values.scalar(right) == number:
            return left
        if values.scalar(left) == number:
            return right
    return None


def _argument(values: Values, name: str, value: Value | None) -> Value | None:
    """x of ``name(x)``."""
    if value is None:
        return None
    value = values.root(value)
    return values.args(value)[0] if values.op(value) == name else None


def _gated(values: Values, result: Value) -> Match | None:
    """SiLU as x sigmoid(x), GELU as x (1 + erf(x / sqrt 2)) / 2 or with its tanh."""
    coefficient, factors = _product(values, result)
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        if _close(coefficient, 1.0) and _is(_argument(values, "sigmoid", gate), x):
            return Activation("silu"), x
        odd = _half_plus_half(values, coefficient, gate)
        if _is_scaled(values, _argument(values, "erf", odd), math.sqrt(0.5), [x]):
            return Activation("gelu"), x
        if _is_gelu_cubic(values, _argument(values, "tanh", odd), x):
            return Activation("gelu_tanh"), x
    return None


def _half_plus_half(values: Values, coefficient: float, gate: Value) -> Value | None:
    """y where ``coefficient * gate`` is 1/2 + 1/2 y, however the halves are shared out."""
    if values.op(gate) != "add":
        return None
    left, right = values.args(gate)
    for number, product in ((values.scalar(left), right), (values.scalar(right), left)):
        scale, factors = _product(values, product)
        if number is not None and len(factors) == 1:
            if _close(coefficient * number, 0.5) and _close(coefficient * scale, 0.5):
                return factors[0]
    return None


def _is(left: Value | None, right: Value) -> bool:
    return left is not None and left.same_as(right)


def _is_scaled(values: Values, value: Value | None, by: float, factors: list[Value]) -> bool:
    if value is None:
        return False
    coefficient, found = _product(values, value)
    same = len(found) == len(factors) and all(map(_is, found, factors))
    return same and _close(coefficient, by)


def _is_gelu_cubic(values: Values, value: Value | None, x: Value) -> bool:
    """sqrt(2 / pi) (x + 0.044715 x^3)."""
    if value is None:
        return False
    coefficient, factors = _product(values, value)
    if len(factors) != 1 or not _close(coefficient, math.sqrt(2 / math.pi)):
        return False
    if values.op(factors[0]) != "add":
        return False
    left, right = values.args(factors[0])
    return any(
        _is(linear, x) and _is_scaled(values, cubic, 0.044715, [x, x, x])
        for linear, cubic in ((left, right), (right, left))
    )


def _sine(values: Values, result: Value) -> Match | None:
    omega, factors = _product(values, values.args(result)[0])
    return (Activation("sine", omega), factors[0]) if len(factors) == 1 else None


def _leaky_relu(values: Values, result: Value) -> Match | None:
    alpha = float(values.attributes(result).alpha)
    return Activation("leaky_relu", alpha), values.args(result)[0]


def _relu(values: Values, result: Value) -> Match | None:
    x = _other(values, "maximum", result, 0.0)
    return None if x is None else (Activation("relu"), x)


def _softplus(values: Values, result: Value) -> Match | None:
    attributes = values.attributes(result)
    whole = attributes.beta == 1.0 and attributes.threshold >= SOFTPLUS_THRESHOLD
    return (Activation("softplus"), values.args(result)[0]) if whole else None


def _log_softplus(values: Values, result: Value) -> Match | None:
    """log(1 + exp(x))."""
    exponential = _other(values, "add", values.args(result)[0], 1.0)
    x = _argument(values, "exp", exponential)
    return None if x is None else (Activation("softplus"), x)


def _where_softplus(values: Values, result: Value) -> Match | None:
    """where(x > threshold, x, log(1 + exp(x))): torch's, which overflows nowhere."""
    condition, x, logarithm = values.args(result)
    if values.op(condition) != "greater" or values.op(logarithm) != "log":
        return None
    compared, threshold = values.args(condition)
    limit, match = values.scalar(threshold), _log_softplus(values, logarithm)
    same = _is(compared, x) and match is not None and _is(match[1], x)
    return match if same and limit is not None and limit >= SOFTPLUS_THRESHOLD else None


def _stable_softplus(values: Values, result: Value) -> Match | None:
    """max(x, 0) + log(1 + exp(-abs(x))): the ONNX importer's."""
    left, right = values.args(result)
    for positive, logarithm in ((left, right), (right, left)):
        x = _other(values, "maximum", positive, 0.0)
        magnitude: Value | None = _other(values, "add", _argument(values, "log", logarithm), 1.0)
        for name in ("exp", "negative", "abs"):
            magnitude = _argument(values, name, magnitude)
        if x is not None and _is(magnitude, x):
            return Activation("softplus"), x
    return None


_FORMS: dict[str, tuple[Callable[[Values, Value], Match | None], ...]] = {
    "multiply": (_gated,),
    "divide": (_gated,),
    "maximum": (_relu,),
    "sin": (_sine,),
    "nn.leakyrelu": (_leaky_relu,),
    "nn.softplus": (_softplus,),
    "log": (_log_softplus,),
    "where": (_where_softplus,),
    "add": (_stable_softplus,),
}
