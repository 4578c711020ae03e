"""The shipped suites fail for spaces and constraints that break the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tunerplugin.errors import SpaceError
from tunerplugin.space import Constraint, Knob, ListSpace, Prefix, Space, Value
from tunerplugin.testing import ConstraintConformance, SpaceConformance

COUNTER = itertools.count()


class SumAtMost(Constraint):
    """Right, and exact: the knobs' least values are known."""

    name = "sum"

    def allows(self, prefix: Prefix) -> bool:
        return sum(int(v) for v in prefix) + 2 - len(prefix) <= 5


class Unsound(SumAtMost):
    def allows(self, prefix: Prefix) -> bool:
        return super().allows(prefix) and prefix != (1,)


class Late(SumAtMost):
    """Says maybe until all is decided."""

    def allows(self, prefix: Prefix) -> bool:
        return len(prefix) < 2 or super().allows(prefix)


class Loose(SumAtMost):
    def allows(self, prefix: Prefix) -> bool:
        return super().allows(prefix) or prefix == (4, 4)


class Forgetful(SumAtMost):
    """Answers by what it was asked before."""

    def __init__(self) -> None:
        self._asked = 0

    def allows(self, prefix: Prefix) -> bool:
        self._asked += 1
        return self._asked % 2 == 0 or super().allows(prefix)


def two_knobs(*constraints: Constraint) -> ListSpace:
    return ListSpace(["a", "b"], [(1, 2, 4), (1, 2, 4)], constraints)


class Changing(ListSpace):
    def __init__(self) -> None:
        super().__init__(["a"], [lambda prefix: (next(COUNTER), -1)])


class Wordless(ListSpace):
    def __init__(self, words: Any) -> None:
        super().__init__(["a"], [(1, 2)], words=[words])


class Repeating(ListSpace):
    """Hands out the same value twice."""

    def knob(self, prefix: Prefix) -> Knob | None:
        knob = super().knob(prefix)
        if knob is not None:
            object.__setattr__(knob, "domain", (1, 2, 2))
        return knob


class Reordered(ListSpace):
    def legal_values(self, prefix: Prefix, refused: Any = None) -> tuple[Value, ...]:
        return super().legal_values(prefix, refused)[::-1]


class Lossy(ListSpace):
    """Loses an assignment on the way."""

    def legal_values(self, prefix: Prefix, refused: Any = None) -> tuple[Value, ...]:
        legal = super().legal_values(prefix, refused)
        return legal[1:] if prefix == (2,) else legal


class Lenient(ListSpace):
    def contains(self, values: Any) -> bool:
        return len(values) == 2


class Restless(ListSpace):
    def __init__(self) -> None:
        super().__init__(["a"], [(1, 2)], version=str(next(COUNTER)))


SOME = (["a", "b"], [(1, 2, 4), (1, 2, 4)], [SumAtMost()])


def failures(suite: Any) -> set[str]:
    """The tests of a suite that fail, skipped ones left out."""
    failed = set()
    for name in dir(suite):
        if name.startswith("test_"):
            fixtures = {"space": suite.make_space()}
            if isinstance(suite, ConstraintConformance):
                fixtures["constraint"] = suite.make_constraint()
            wanted = getattr(suite, name).__code__.co_varnames
            try:
                getattr(suite, name)(**{k: v for k, v in fixtures.items() if k in wanted})
            except (AssertionError, TypeError, ValueError, SpaceError, pytest.fail.Exception):
                failed.add(name)
            except pytest.skip.Exception:
                continue
    return failed


def space_suite(make: Callable[[], Space], exact: bool = False, legal: Any = None) -> Any:
    class Suite(SpaceConformance):
        exact_on_prefixes = exact

        def make_space(self) -> Space:
            return make()

        def is_legal(self, values: Prefix) -> bool:
            return bool(legal(values)) if legal else super().is_legal(values)

    return Suite()


def constraint_suite(make: Callable[[], Constraint]) -> Any:
    class Suite(ConstraintConformance):
        exact_on_prefixes = True

        def make_space(self) -> Space:
            return two_knobs()

        def make_constraint(self) -> Constraint:
            return make()

        def is_legal(self, values: Prefix) -> bool:
            return sum(int(v) for v in values) <= 5

    return Suite()


def test_good_ones_pass() -> None:
    assert failures(space_suite(lambda: two_knobs(SumAtMost()), exact=True)) == set()
    assert failures(constraint_suite(SumAtMost)) == set()


@pytest.mark.parametrize(
    ("make", "caught"),
    [
        (Changing, "test_knobs_are_the_same_each_time"),
        (lambda: Repeating(["a"], [(1, 2)]), "test_domains_are_distinct_finite_values"),
        (lambda: ListSpace(["a"], [(True, 2)]), "test_domains_are_distinct_finite_values"),
        (lambda: ListSpace(["a"], [(float("inf"),)]), "test_domains_are_distinct_finite_values"),
        (lambda: Wordless(()), "test_words_are_problem_words"),
        (lambda: Wordless((("kind", None),)), "test_words_are_problem_words"),
        (lambda: Reordered(*SOME), "test_legal_values_are_some_of_the_domain"),
        (lambda: Lossy(*SOME), "test_the_legal_set_is_exact"),
        (lambda: two_knobs(Unsound()), "test_no_prefix_of_a_legal_assignment_is_refused"),
        (lambda: two_knobs(Unsound()), "test_the_legal_set_is_exact"),
        (lambda: Lenient(*SOME), "test_what_is_not_legal_is_not_contained"),
        (Restless, "test_version_stands_for_the_space"),
    ],
)
def test_broken_spaces_are_caught(make: Callable[[], Space], caught: str) -> None:
    assert caught in failures(space_suite(make))


def test_dead_ends_are_caught_where_none_are_claimed() -> None:
    def dead() -> Space:
        return ListSpace(["a", "b"], [(1, 9), (1, 2)], [Late()])

    assert failures(space_suite(dead, exact=True)) == {"test_no_dead_ends_where_none_are_claimed"}
    assert failures(space_suite(dead)) == set()


def test_another_legal_set_is_caught() -> None:
    made = space_suite(lambda: two_knobs(SumAtMost()), legal=lambda values: values != (1, 1))
    assert "test_the_legal_set_is_exact" in failures(made)


def test_too_large_spaces_are_named() -> None:
    suite = space_suite(two_knobs)
    suite.max_assignments = 8
    with pytest.raises(AssertionError, match="expected at most 8 assignments"):
        suite.assignments(two_knobs())


@pytest.mark.parametrize(
    ("make", "caught"),
    [
        (Unsound, {"test_sound_on_prefixes", "test_exact_on_prefixes_where_claimed"}),
        (Late, {"test_exact_on_prefixes_where_claimed"}),
        (Loose, {"test_exact_on_complete_assignments", "test_exact_on_prefixes_where_claimed"}),
    ],
)
def test_broken_constraints_are_caught(make: Callable[[], Constraint], caught: set[str]) -> None:
    if make is Late:
        # nothing but (4, ) could tell: make one value hopeless
        suite = constraint_suite(Late)
        suite.make_space = lambda: ListSpace(["a", "b"], [(1, 2, 9), (1, 2, 4)])
        assert failures(suite) == caught
    else:
        assert failures(constraint_suite(make)) == caught


def test_answers_by_history_are_caught() -> None:
    assert "test_answers_hang_on_the_prefix_alone" in failures(constraint_suite(Forgetful))


def test_a_nameless_constraint_is_caught() -> None:
    nameless = SumAtMost()
    nameless.name = ""
    assert failures(constraint_suite(lambda: nameless)) == {"test_it_has_a_name"}
