"""The contract of spaces and constraints, kept by the solvers' own."""

from __future__ import annotations

from tests.sources.miopen_cases import numbers, reference
from tunerplugin.sources.miopen import SOLVERS, Rule, RuledSpace, parse_key
from tunerplugin.space import Constraint, Prefix, Space, Value
from tunerplugin.testing import ConstraintConformance, SpaceConformance


class _SmallSolver(SpaceConformance):
    """A solver under its own rules over few values."""

    exact_on_prefixes = True
    name: str
    key: str
    few: tuple[tuple[int, ...], ...]

    def make_space(self) -> Space:
        solver, problem = SOLVERS[self.name], parse_key(self.key)
        rules = solver.rules(problem, "gfx906", True)
        return RuledSpace(solver.fields, self.few, rules, closed=solver.closed)

    def is_legal(self, values: Prefix) -> bool:
        return reference(parse_key(self.key), SOLVERS[self.name], "gfx906")(numbers(values))


class TestAsm1x1U(_SmallSolver):
    name = "ConvAsm1x1U"
    key = "24-7-7-1x1-80-7-7-4-0x0-1x1-1x1-0-NCHW-FP16-B"
    few = ((1, 2, 4), (1, 8, 32), (2, 4, 8), (16, 64), (1, 4), (1, 2, 4), (1, 5), (1, 8))


class TestAsm3x3U(_SmallSolver):
    name = "ConvAsm3x3U"
    key = "24-9-70-3x3-24-9-70-4-1x1-1x1-1x1-0-NCHW-FP32-F_g3"
    few = ((0, 9), tuple(range(1, 9)), (1, 4, 8))


class TestBwdWrW1x1(_SmallSolver):
    name = "ConvAsmBwdWrW1x1"
    key = "24-9-70-1x1-24-9-70-4-0x0-1x1-1x1-0-NCHW-FP16-W"
    few = ((1, 4), (2, 4, 16), (1, 8), (1, 4), (8,), (1, 4), (1, 3, 8), (4,), (0, 1), (0, 3))


class TestBwdWrW3x3(_SmallSolver):
    name = "ConvAsmBwdWrW3x3"
    key = "24-9-70-3x3-16-9-70-4-1x1-1x1-1x1-0-NCHW-FP16-W"
    few = ((0, 1), (0, 1), (8, 16), (1, 4, 8), (1, 3, 7, 10), (1, 4, 8))


class TestDirectFwd(_SmallSolver):
    name = "ConvOclDirectFwd"
    key = "24-9-70-5x5-16-18-140-4-2x2-2x2-1x1-0-NCHW-FP32-B"
    few = ((8, 32), (8, 16), (8, 32), (16, 64), (1, 2), (1, 2, 4), (1, 8), (1, 4), (2,))


class TestBwdWrW2(_SmallSolver):
    name = "ConvOclBwdWrW2<4>"
    key = "6-9-70-5x5-16-9-140-4-2x2-1x2-1x1-0-NCHW-FP32-W"
    few = ((1, 8), (6, 9, 12), (1, 3, 8), (1, 3), (2, 5, 9, 11))


class TestV4R4(_SmallSolver):
    name = "ConvHipImplicitGemmV4R4WrW"
    key = "64-8-8-3x3-32-8-8-4-1x1-1x1-1x1-0-NCHW-FP32-W"
    few = ((64, 256), (32, 64, 128), (32, 64), (4, 16), (2, 4), (2, 4))


def _vgprs(a: int, b: int) -> bool:
    return 3 + 2 * a * b <= 20


class TestFallingRule(ConstraintConformance):
    """Judged by the least values of what is open."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return RuledSpace(["a", "x", "b"], [(1, 2, 4, 9), (0, 1), (2, 3, 8)], [])

    def make_constraint(self) -> Constraint:
        rule = Rule("vgprs", ("a", "b"), _vgprs, falling=True)
        return RuledSpace(["a", "x", "b"], [(1, 2, 4, 9), (0, 1), (2, 3, 8)], [rule]).rules[0]

    def is_legal(self, values: Prefix) -> bool:
        a, _, b = numbers(values)
        return a * b <= 8


class TestPlainRule(ConstraintConformance):
    """Silent until its last field."""

    def make_space(self) -> Space:
        return RuledSpace(["a", "x", "b"], [(1, 2, 4), (0, 1), (2, 3, 8)], [])

    def make_constraint(self) -> Constraint:
        rule = Rule("divides", ("b", "a"), lambda b, a: b % a == 0)
        return RuledSpace(["a", "x", "b"], [(1, 2, 4), (0, 1), (2, 3, 8)], [rule]).rules[0]

    def is_legal(self, values: Prefix) -> bool:
        a, _, b = numbers(values)
        return b % a == 0


class TestLookAhead(ConstraintConformance):
    """Refuses exactly the prefixes that unsettled rules leave nothing for."""

    ranges = [(1, 2, 3), (0, 1), (2, 4, 8)]
    rules = [
        Rule("third", ("a", "c"), lambda a, c: c % a == 0),
        Rule("sum", ("b", "c"), lambda b, c: not (b == 1 and c == 8)),
    ]

    def make_space(self) -> Space:
        return RuledSpace(["a", "b", "c"], self.ranges, [])

    def make_constraint(self) -> Constraint:
        space = RuledSpace(["a", "b", "c"], self.ranges, self.rules)

        class Whole(Constraint):
            name = "all rules"

            def allows(self, prefix: tuple[Value, ...]) -> bool:
                return all(constraint.allows(prefix) for constraint in space.constraints)

        return Whole()

    exact_on_prefixes = True

    def is_legal(self, values: Prefix) -> bool:
        a, b, c = numbers(values)
        return c % a == 0 and not (b == 1 and c == 8)
