"""Spaces and problems: messages, versions, keys, and what a space of several sketches passes on."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.space.cases import in_order
from tunerplugin.errors import SpaceError
from tunerplugin.space import Constraint, Knob, ListSpace, Prefix, Problem, Space, UnionSpace, Value
from tunerplugin.space.constraints import AtMost, ProductRange, Term


class Nothing(Constraint):
    name = "nothing"

    def allows(self, prefix: Prefix) -> bool:
        return False


def test_values_are_refused_by_name() -> None:
    space = ListSpace(["tile", "unroll"], [(1, 2, 4), (0, 16, 64)], [AtMost("steps", 1, 16)])
    with pytest.raises(SpaceError, match=r"expected unroll in \(0, 16\), got 64 after \(2,\)"):
        space.steps((2, 64))
    with pytest.raises(SpaceError, match="expected a value for unroll, got only 1 values"):
        space.steps((2,))
    with pytest.raises(SpaceError, match="expected 2 values, got 3"):
        space.steps((2, 0, 0))
    with pytest.raises(SpaceError, match="expected a prefix of a candidate"):
        space.legal_values((2, 0))


def test_steps_say_what_could_have_been_chosen() -> None:
    space = ListSpace(["tile", "unroll"], [(1, 2), (0, 16, 64)], [AtMost("steps", 1, 16)])
    first, second = space.steps((2, 16))
    assert (first.knob.name, first.value, first.legal) == ("tile", 2, (1, 2))
    assert (second.value, second.legal, second.knob.domain) == (16, (0, 16), (0, 16, 64))


def test_the_first_constraint_that_refuses_is_counted() -> None:
    space = ListSpace(["a"], [(1, 2, 3, 4)], [AtMost("first", 0, 3), AtMost("second", 0, 1)])
    refused: Counter[str] = Counter()
    assert space.legal_values((), refused) == (1,)
    assert refused == {"first": 1, "second": 2}


def test_a_space_that_refuses_everything_is_empty() -> None:
    space = ListSpace(["a"], [(1, 2)], [Nothing()])
    assert list(space.enumerate()) == [] and space.legal_values(()) == ()
    knobless = ListSpace([], [], [Nothing()])
    assert list(knobless.enumerate()) == [] and not knobless.contains(())
    assert list(ListSpace([], []).enumerate()) == [()] and ListSpace([], []).contains(())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", "b"], [(1,)]), "one domain for each distinct name"),
        ((["a", "a"], [(1,), (2,)]), "one domain for each distinct name"),
        ((["a"], [(1, 2, 1)]), r"distinct values in the domain of 'a', got \(1, 2, 1\)"),
        ((["a"], [(1, 1.0)]), "distinct values"),
        ((["a"], [(1,)], [], []), "expected words for 1 knobs, got them for 0"),
    ],
)
def test_malformed_lists_are_refused(arguments: tuple[list[object]], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        ListSpace(*arguments)  # type: ignore[arg-type,call-arg]


def test_domains_may_be_any_sequence() -> None:
    knob = ListSpace(["a"], [[1, 2]]).knob(())
    assert knob is not None and knob.domain == (1, 2)


def test_versions_are_the_same_in_every_process() -> None:
    code = (
        "from tunerplugin.space import ListSpace, Problem, UnionSpace; "
        "s = ListSpace(['a', 'b'], [(1, 2.5, 'x'), lambda p: (1,)]); "
        "print(UnionSpace([s, s]).version, s.version, Problem((('op', 'é'), ('n', 3))).key)"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(answers) == 1 and len(answers.pop().split()) == 3


class Own(Space):
    """A third party's space, which finds its legal values its own way."""

    version = "own"

    def knob(self, prefix: Prefix) -> Knob | None:
        return None if prefix else Knob("own", (("kind", "own"),), (1, 2, 3))

    def legal_values(
        self, prefix: Prefix, refused: Counter[str] | None = None
    ) -> tuple[Value, ...]:
        return super().legal_values(prefix, refused)[1:]

    def describe(self, values: Prefix) -> tuple[tuple[str, Value], ...]:
        return (("twice", 2 * int(values[0])),)


def test_a_union_leaves_legality_to_its_sketches() -> None:
    case = in_order((8, 2))
    tiled = case.space([ProductRange("inner", Term(frozenset({0})), 2, 4, case.tiles)])
    union = UnionSpace([Own(), tiled, ListSpace(["a"], [(1,)], [Nothing()])])
    refused: Counter[str] = Counter()
    assert union.legal_values((), refused) == (0, 1) and refused == {"nothing": 1}
    assert list(union.enumerate()) == [(0, 2), (0, 3), (1, 2, 4), (1, 4, 2)]
    refused.clear()
    assert union.legal_values((1,), refused) == (2, 4) and refused == {"inner": 2}
    assert union.describe((0, 3)) == (("twice", 6),) and union.describe((1, 2, 4)) == ()
    nested = UnionSpace([union, Own()])
    assert list(nested.enumerate((0, 1))) == [(0, 1, 2, 4), (0, 1, 4, 2)]
    for wrong in ((3, 1), ("x", 1), (-1, 1)):
        assert not union.contains(wrong)
        with pytest.raises(SpaceError, match=r"sketch in 0\.\.2"):
            union.knob(wrong)
    with pytest.raises(SpaceError, match="at least one space"):
        UnionSpace([])


def test_equal_problems_have_equal_keys() -> None:
    problem = Problem((("op", "dense"), ("m", 3), ("flag", 1), ("alpha", 0.5)))
    same = Problem((("op", "dense"), ("m", 3.0), ("flag", True), ("alpha", 0.5)))
    assert problem == same and problem.key == same.key and len(problem.key) == 16
    others = [
        problem.words[::-1],
        problem.words[:3],
        (("op", "dense"), ("m", "3"), ("flag", 1), ("alpha", 0.5)),
    ]
    assert len({problem.key, *(Problem(words).key for words in others)}) == 4
    assert problem.get("m") == 3 and problem.get("k") is None and problem.get("k", 7) == 7


def test_words_are_checked() -> None:
    with pytest.raises(TypeError, match=r"expected \(str, int\|float\|str\) words"):
        Problem((("m", None),))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="words"):
        Problem(((3, "m"),))  # type: ignore[arg-type]
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected finite numbers"):
            Problem((("m", bad),))
