"""Kernel Tuner's expressions: the parser agrees with Python, and refuses what it should not run."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import InputError
from tunerplugin.sources.kernel_tuner import parse_expression

NAMES = ("a", "b", "block_size_x")
FUNCTIONS = {"min": min, "max": max, "abs": abs, "round": round, "int": int, "float": float}
NUMBERS = st.one_of(st.integers(-8, 64), st.floats(-8, 64).map(lambda x: round(x, 2)))


def _joined(parts: list[str], operators: list[str]) -> str:
    text = parts[0]
    for operator, part in zip(operators, parts[1:], strict=False):
        text += f" {operator} {part}"
    return f"({text})"


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=2, max_size=3)
    arithmetic = st.lists(
        st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"]),
        min_size=2,
        max_size=2,
    )
    comparisons = st.lists(
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), min_size=2, max_size=2
    )
    logic = st.lists(st.sampled_from(["and", "or"]), min_size=2, max_size=2)
    return st.one_of(
        st.builds(_joined, several, arithmetic),
        st.builds(_joined, several, comparisons),
        st.builds(_joined, several, logic),
        inner.map(lambda x: f"(not {x})"),
        inner.map(lambda x: f"(-{x})"),
        st.tuples(inner, inner, inner).map(lambda x: f"({x[0]} if {x[1]} else {x[2]})"),
        st.tuples(inner, several).map(lambda x: f"({x[0]} in [{', '.join(x[1])}])"),
        st.tuples(inner, several).map(lambda x: f"({x[0]} not in ({', '.join(x[1])}))"),
        st.tuples(st.sampled_from(["min", "max"]), several).map(
            lambda x: f"{x[0]}({', '.join(x[1])})"
        ),
        st.tuples(st.sampled_from(["abs", "round", "int", "float"]), inner).map(
            lambda x: f"{x[0]}({x[1]})"
        ),
    )


EXPRESSIONS = st.recursive(
    st.one_of(NUMBERS.map(lambda x: f"({x!r})"), st.sampled_from(NAMES)), _more, max_leaves=8
)


def _python(text: str, values: dict[str, Any]) -> tuple[str, Any]:
    scope = {"__builtins__": {}, **FUNCTIONS, **values}
    try:
        value = eval(compile(text, "expression", "eval"), scope)  # noqa: S307 - the reference
    except (ArithmeticError, TypeError, ValueError) as error:
        return "error", type(error)
    return ("complex", None) if isinstance(value, complex) else ("value", value)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, st.tuples(*[NUMBERS] * len(NAMES)))
def test_agrees_with_python(text: str, numbers: tuple[float, ...]) -> None:
    """On value and on type; what Python refuses is refused, and so are numbers beyond bounds."""
    if _too_large(text):
        return
    values = dict(zip(NAMES, numbers, strict=True))
    kind, expected = _python(text, values)
    try:
        found = parse_expression(text, NAMES).evaluate(values)
    except InputError as error:
        bounded = isinstance(error.__cause__, OverflowError)
        assert kind in ("error", "complex") or bounded, (text, values, expected, error)
        return
    assert kind == "value", (text, values, found)
    assert type(found) is type(expected), (text, values)
    assert found == expected or (math.isnan(found) and math.isnan(expected)), (text, values)


def _too_large(text: str) -> bool:
    """Towers of powers and shifts, which Python itself would not survive."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    heavy = (ast.Pow, ast.LShift)
    return sum(isinstance(node, heavy) for node in nodes) > 1


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("32 <= a * b <= 1024", {"a": 8, "b": 4}, True),
        ("32 <= a * b <= 1024", {"a": 8, "b": 3}, False),
        ("a % ((b * 8) / 16) == 0", {"a": 32, "b": 8}, True),
        ("not (a == 128 and b == 8)", {"a": 128, "b": 8}, False),
        ("a in [1, 2, 4] and b not in (3, 5)", {"a": 2, "b": 4}, True),
        ("'fast' == a or b", {"a": "fast", "b": 0}, True),
        ("a and b", {"a": 0, "b": 7}, 0),
        ("a or b", {"a": 0, "b": 7}, 7),
    ],
)
def test_known_conditions(text: str, values: dict[str, Any], expected: Any) -> None:
    assert parse_expression(text, list(values)).evaluate(values) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2, 4] + list(range(32, 97, 32))", [1, 2, 4, 32, 64, 96]),
        ("[2**i for i in range(0, 4)]", [1, 2, 4, 8]),
        ("[i for i in range(10) if i % 3 == 0]", [0, 3, 6, 9]),
        ("range(3)", range(3)),
    ],
)
def test_value_lists(text: str, expected: Any) -> None:
    assert parse_expression(text).evaluate({}) == expected


def test_names_come_in_order_of_use() -> None:
    assert parse_expression("b + a > b", ("a", "b", "c")).names == ("b", "a")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("__import__('os').system('true')", "a call of Attribute"),
        ("a.__class__", "Attribute"),
        ("(lambda: 1)()", "a call of Lambda"),
        ("open('x')", "a call of open"),
        ("eval('1')", "a call of eval"),
        ("[x for x in range(3) for y in range(3)]", "a loop within a loop"),
        ("[[y for y in range(3)] for x in range(3)]", "a loop within a loop"),
        ("a[0]", "Subscript"),
        ("f'{a}'", "JoinedStr"),
        ("{1: 2}", "Dict"),
        ("(b := 3)", "NamedExpr"),
        ("a @ b", "MatMult"),
        ("a is b", "comparison Is"),
        ("max(a, key=b)", "keyword"),
        ("max(*a)", "Starred"),
        ("b'x'", "constant b'x'"),
        ("None", "constant None"),
        ("...", "constant Ellipsis"),
        ("c + 1", "'c'"),
        ("a +", "invalid syntax"),
        ("a; b", "invalid syntax"),
        ("", "invalid syntax"),
        ("(" * 5000 + ")" * 5000, "expected an expression"),
        ("a" + "+a" * 6000, "at most 10000 characters"),
        ("a\0", "null"),
    ],
)
def test_refuses_by_name(text: str, named: str) -> None:
    with pytest.raises(InputError, match="expected") as caught:
        parse_expression(text, ("a", "b"))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "1 << 10**9",
        "list(range(10**9))",
        "[1] * 10**9",
        "'x' * 10**9",
        "round(5, -10**9)",
        "'%s' % 3",
        "1 / 0",
        "(-8)**0.5",
        "1 + 'x'",
        "min([])",
        "int('x')",
        "sum(1)",
    ],
)
def test_no_value_is_an_error_at_once(text: str) -> None:
    with pytest.raises(InputError, match="expected .* to have a value"):
        parse_expression(text).evaluate({})
