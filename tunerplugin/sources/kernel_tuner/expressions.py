"""Conditions and value lists of Kernel Tuner, parsed and never executed as Python.

Kernel Tuner itself hands these strings to ``eval``.  Here the text is parsed to a syntax tree and
each node of a short list of kinds is turned into a function; everything else (attributes, lambdas,
subscripts, other calls, ..) is refused by name.  What is accepted means what it means in Python.

A file of a stranger must not be able to hang the reader either, so powers and shifts, lists, and
the text's own length and depth are bounded.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .operations import BINARY, CALLS, COMPARISONS, UNARY

MAX_TEXT = 10_000

Names = Mapping[str, Any]
_Function = Callable[[Names], Any]


@dataclass(frozen=True)
class Expression:
    """A parsed expression over ``names``, in the order of their first use."""

    text: str
    names: tuple[str, ...]
    _function: _Function

    def evaluate(self, names: Names) -> Any:
        """The value where each name has the value given.

        Raises ``InputError`` where Python would raise an error of type or arithmetic
        (``ZeroDivisionError`` and overflow among them), or where a bound of this module is passed.
        """
        try:
            return self._function(names)
        except (ArithmeticError, TypeError, ValueError, KeyError) as error:
            raise InputError(
                f"expected {self.text!r} to have a value at {dict(names)}, got "
                f"{type(error).__name__}: {error}; correct the expression"
            ) from error


def parse_expression(text: str, known: Sequence[str] = ()) -> Expression:
    """Parse one expression whose names are among ``known``.

    Raises ``InputError``, which names the construct, for what is no expression, for a kind of
    expression that is not supported and for an unknown name.
    """
    if len(text) > MAX_TEXT:
        raise InputError(
            f"expected an expression of at most {MAX_TEXT} characters, got {len(text)}: split it"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
        parser = _Parser(text, frozenset(known))
        function = parser.node(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise InputError(
            f"expected an expression, got {_short(text)}: {reason}; correct it"
        ) from error
    return Expression(text, tuple(parser.used), function)


class _Parser:
    """Turns syntax nodes into functions of the names' values."""

    def __init__(self, text: str, known: frozenset[str]) -> None:
        self._text, self._known = text, known
        self._bound: list[str] = []
        self.used: dict[str, None] = {}

    def node(self, node: ast.expr) -> _Function:
        """The function of one node; raises ``InputError`` for an unsupported kind."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self._unsupported(type(node).__name__)
        function: _Function = method(node)
        return function

    def _unsupported(self, construct: str) -> InputError:
        return InputError(
            f"expected arithmetic, comparisons, 'and', 'or', 'not', lists and {', '.join(CALLS)} "
            f"in {_short(self._text)}, got {construct}: rewrite it without"
        )

    def _constant(self, node: ast.Constant) -> _Function:
        value = node.value
        if not isinstance(value, (int, float, str)):
            raise self._unsupported(f"the constant {value!r}")
        return lambda names: value

    def _name(self, node: ast.Name) -> _Function:
        name = node.id
        if name not in self._bound:
            if name not in self._known:
                known = ", ".join(sorted(self._known)) or "none"
                raise InputError(
                    f"expected one of the parameters ({known}) in {_short(self._text)}, "
                    f"got {name!r}: correct the name"
                )
            self.used[name] = None
        return operator.itemgetter(name)

    def _unaryop(self, node: ast.UnaryOp) -> _Function:
        apply, operand = UNARY[type(node.op)], self.node(node.operand)
        return lambda names: apply(operand(names))

    def _binop(self, node: ast.BinOp) -> _Function:
        apply = BINARY.get(type(node.op))
        if apply is None:
            raise self._unsupported(f"the operator {type(node.op).__name__}")
        known, left, right = apply, self.node(node.left), self.node(node.right)
        return lambda names: known(left(names), right(names))

    def _boolop(self, node: ast.BoolOp) -> _Function:
        parts = [self.node(value) for value in node.values]
        stop = isinstance(node.op, ast.Or)

        def evaluate(names: Names) -> Any:
            for part in parts:
                value = part(names)
                if bool(value) is stop:
                    break
            return value

        return evaluate

    def _compare(self, node: ast.Compare) -> _Function:
        for op in node.ops:
            if type(op) not in COMPARISONS:
                raise self._unsupported(f"the comparison {type(op).__name__}")
        first = self.node(node.left)
        rest = [
            (COMPARISONS[type(op)], self.node(operand))
            for op, operand in zip(node.ops, node.comparators, strict=True)
        ]

        def evaluate(names: Names) -> Any:
            left = first(names)
            for compare, operand in rest:
                right = operand(names)
                holds = compare(left, right)
                if not holds:
                    break
                left = right
            return holds

        return evaluate

    def _ifexp(self, node: ast.IfExp) -> _Function:
        test, body, other = self.node(node.test), self.node(node.body), self.node(node.orelse)
        return lambda names: body(names) if test(names) else other(names)

    def _list(self, node: ast.List) -> _Function:
        items = [self.node(item) for item in node.elts]
        return lambda names: [item(names) for item in items]

    def _tuple(self, node: ast.Tuple) -> _Function:
        items = [self.node(item) for item in node.elts]
        return lambda names: tuple(item(names) for item in items)

    def _call(self, node: ast.Call) -> _Function:
        name = node.func.id if isinstance(node.func, ast.Name) else type(node.func).__name__
        if not isinstance(node.func, ast.Name) or name not in CALLS:
            raise self._unsupported(f"a call of {name}")
        if node.keywords:
            raise self._unsupported(f"a keyword in a call of {name}")
        call, arguments = CALLS[name], [self.node(argument) for argument in node.args]
        return lambda names: call(*(argument(names) for argument in arguments))

    def _listcomp(self, node: ast.ListComp) -> _Function:
        if len(node.generators) != 1 or self._bound:
            raise self._unsupported("a loop within a loop")
        loop = node.generators[0]
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise self._unsupported("a comprehension that unpacks")
        items = self.node(loop.iter)
        name = loop.target.id
        self._bound.append(name)
        tests, body = [self.node(test) for test in loop.ifs], self.node(node.elt)
        self._bound.pop()

        def evaluate(names: Names) -> list[Any]:
            scopes = ({**names, name: item} for item in items(names))
            return [body(scope) for scope in scopes if all(test(scope) for test in tests)]

        return evaluate


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
