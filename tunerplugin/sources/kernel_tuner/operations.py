"""What a Kernel Tuner expression may compute: the operators and functions, each of bounded cost.

They do what Python's do, or raise ``ArithmeticError``, ``TypeError`` or ``ValueError``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_ITEMS = 10_000
"""Items of a list."""

_MAX_BITS = 4096
_MAX_DIGITS = 1000

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def _plus(left: Any, right: Any) -> Any:
    total = left + right
    if isinstance(total, list):
        _check_length(len(total))
    return total


def _times(left: Any, right: Any) -> Any:
    _numbers("*", left, right)
    _check_bits(_bits(left) + _bits(right))
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    _numbers("%", left, right)  # of text it would format
    return left % right


def _power(left: Any, right: Any) -> Any:
    _numbers("**", left, right)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(_bits(left) * abs(right))
    power = left**right
    if isinstance(power, complex):
        raise ArithmeticError("a negative number has no real root")
    return power


def _shift_left(left: Any, right: Any) -> Any:
    _check_bits(_bits(left) + max(0, int(right)))
    return left << right


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _plus,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    _check_length(len(numbers))
    return numbers


def _round(number: Any, *digits: int) -> Any:
    if digits and abs(digits[0]) > _MAX_DIGITS:
        raise OverflowError(f"more than {_MAX_DIGITS} digits")
    return round(number, *digits)


CALLS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "range": _range,
    "round": _round,
    "sum": sum,
}


def _numbers(symbol: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, (int, float)):
            raise TypeError(f"expected numbers around {symbol!r}, got {value!r}")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise OverflowError(f"a number of more than {_MAX_BITS} bits")


def _check_length(length: int) -> None:
    if length > MAX_ITEMS:
        raise ValueError(f"a list of more than {MAX_ITEMS} items")
