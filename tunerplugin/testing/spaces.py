"""What every space and every constraint must do, checked against brute force.

class TestMySpace(SpaceConformance):
    def make_space(self):
        return MySpace(small=True)

    def is_legal(self, values):  # optional: what the space should hold, said in another way
        return values[0] * values[1] <= 64

class TestMyConstraint(ConstraintConformance):
    def make_space(self):
        return ListSpace(["a", "b"], [(1, 2, 4), (8, 16, 32)])

    def make_constraint(self):
        return MyConstraint(limit=64)

    def is_legal(self, values):
        return values[0] * values[1] <= 64

Spaces must be small (see ``max_assignments``): every assignment is looked at.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

import pytest

from ..errors import SpaceError
from ..space import Constraint, Knob, Prefix, Problem, Space


def _tree(space: Space, prefix: Prefix = ()) -> Iterator[tuple[Prefix, Knob | None]]:
    """Every prefix over the domains, legal or not, with its knob (``None``: complete)."""
    knob = space.knob(prefix)
    yield prefix, knob
    for value in knob.domain if knob else ():
        yield from _tree(space, (*prefix, value))


class _BruteForce(ABC):
    #: the largest number of complete assignments, legal or not, that a test is ready to walk
    max_assignments = 50_000
    #: set it to claim that every allowed prefix has a legal completion (no dead ends)
    exact_on_prefixes = False

    @abstractmethod
    def make_space(self) -> Space:
        """A new, small space, the same each time."""

    def walk(self, space: Space) -> Iterator[tuple[Prefix, Knob | None]]:
        """Every prefix over the domains with its knob; fails for a space that is too large."""
        complete = 0
        for prefix, knob in _tree(space):
            complete += knob is None
            assert complete <= self.max_assignments, (
                f"expected at most {self.max_assignments} assignments, got more: "
                "make a smaller space or raise max_assignments"
            )
            yield prefix, knob

    def assignments(self, space: Space) -> list[Prefix]:
        """Every complete assignment over the domains, legal or not."""
        return [prefix for prefix, knob in self.walk(space) if knob is None]


def _prefixes(assignments: Sequence[Prefix]) -> set[Prefix]:
    return {values[:n] for values in assignments for n in range(len(values) + 1)}


class SpaceConformance(_BruteForce):
    """Inherit, override ``make_space``, and let pytest collect the subclass."""

    def make_others(self) -> Sequence[Space]:
        """Spaces in which the same values would mean something else."""
        return ()

    def is_legal(self, values: Prefix) -> bool:
        """Whether a complete assignment should be legal; by default what the space says of it."""
        return self._judge.allows(values)

    @cached_property
    def _judge(self) -> Space:
        return self.make_space()

    @pytest.fixture
    def space(self) -> Space:
        """The space under test."""
        return self.make_space()

    def test_knobs_are_the_same_each_time(self, space: Space) -> None:
        """In another order and from another instance too."""
        first = list(self.walk(space))
        twin = self.make_space()
        assert [twin.knob(prefix) for prefix, _ in reversed(first)] == [
            knob for _, knob in reversed(first)
        ]
        assert list(self.walk(space)) == first

    def test_domains_are_distinct_finite_values(self, space: Space) -> None:
        """Numbers or text; equal numbers are one value; booleans are written 0 and 1."""
        for prefix, knob in self.walk(space):
            if knob is None:
                continue
            assert isinstance(knob.domain, tuple)
            assert len(set(knob.domain)) == len(knob.domain), (prefix, knob.domain)
            for value in knob.domain:
                assert isinstance(value, (int, float, str)) and not isinstance(value, bool)
                assert isinstance(value, str) or math.isfinite(value)

    def test_words_are_problem_words(self, space: Space) -> None:
        """Of knobs, of which there is at least one each, and of complete assignments."""
        for prefix, knob in self.walk(space):
            if knob is None:
                Problem(tuple(space.describe(prefix)))
                assert space.describe(prefix) == space.describe(prefix)
            else:
                assert knob.name and knob.words, prefix
                Problem(tuple(knob.words))

    def test_legal_values_are_some_of_the_domain(self, space: Space) -> None:
        """In its order; each value that is missing is counted once, for a constraint."""
        for prefix, knob in self.walk(space):
            if knob is None:
                continue
            refused: Counter[str] = Counter()
            legal = space.legal_values(prefix, refused)
            assert legal == tuple(value for value in knob.domain if value in legal)
            assert legal == space.legal_values(prefix)
            assert refused.total() == len(knob.domain) - len(legal)

    def test_the_legal_set_is_exact(self, space: Space) -> None:
        """No illegal assignment is enumerated and no legal one is cut off on the way."""
        expected = [values for values in self.assignments(space) if self.is_legal(values)]
        assert expected, "expected a space with a legal assignment, got none: nothing is tested"
        assert list(space.enumerate()) == expected

    def test_no_prefix_of_a_legal_assignment_is_refused(self, space: Space) -> None:
        """By any constraint that the space shows (soundness)."""
        legal = [values for values in self.assignments(space) if self.is_legal(values)]
        for prefix in _prefixes(legal):
            for constraint in space.constraints:
                assert constraint.allows(prefix), (constraint.name, prefix)

    def test_enumerate_starts_anywhere(self, space: Space) -> None:
        """Below each prefix lie the legal assignments that start with it."""
        legal = list(space.enumerate())
        for prefix, _ in self.walk(space):
            expected = [values for values in legal if values[: len(prefix)] == prefix]
            assert list(space.enumerate(prefix)) == expected

    def test_steps_retell_a_legal_assignment(self, space: Space) -> None:
        """With the knob and the legal values at each decision."""
        for values in space.enumerate():
            steps = space.steps(values)
            assert tuple(step.value for step in steps) == values
            for n, step in enumerate(steps):
                assert step.knob == space.knob(values[:n])
                assert step.legal == space.legal_values(values[:n])
            assert space.contains(values)

    def test_what_is_not_legal_is_not_contained(self, space: Space) -> None:
        """Neither illegal assignments, nor incomplete ones, nor too long ones."""
        legal = set(space.enumerate())
        for prefix, _ in self.walk(space):
            assert space.contains(prefix) == (prefix in legal)
        some = next(iter(legal))
        for wrong in ((*some, 1), (*some[:-1], "no such value")):
            assert not space.contains(wrong)
            with pytest.raises(SpaceError):
                space.steps(wrong)

    def test_nothing_follows_a_complete_assignment(self, space: Space) -> None:
        """Asking for its next values is an error, not an empty answer."""
        with pytest.raises(SpaceError):
            space.legal_values(next(space.enumerate()))

    def test_no_dead_ends_where_none_are_claimed(self, space: Space) -> None:
        """A legal prefix has a legal completion (only with ``exact_on_prefixes``)."""
        if not self.exact_on_prefixes:
            pytest.skip("the space does not claim to be free of dead ends")
        assert _reached(space) == _prefixes(list(space.enumerate()))

    def test_version_stands_for_the_space(self, space: Space) -> None:
        """The same for equal spaces, another one for each of ``make_others``."""
        versions = [space.version, *(other.version for other in self.make_others())]
        assert all(isinstance(version, str) and version for version in versions)
        assert len(set(versions)) == len(versions)
        assert self.make_space().version == space.version


def _reached(space: Space) -> set[Prefix]:
    """Every prefix that a walk along legal values comes to."""
    reached: set[Prefix] = set()
    pending: list[Prefix] = [()]
    while pending:
        prefix = pending.pop()
        reached.add(prefix)
        if space.knob(prefix) is not None:
            pending += [(*prefix, value) for value in space.legal_values(prefix)]
    return reached


class ConstraintConformance(_BruteForce):
    """Inherit, override the three ``make_space``, ``make_constraint`` and ``is_legal``.

    Only the domains of the space count, not its constraints.
    """

    @abstractmethod
    def make_constraint(self) -> Constraint:
        """A new constraint, the same each time."""

    @abstractmethod
    def is_legal(self, values: Prefix) -> bool:
        """What the constraint should say of a complete assignment, told in another way."""

    @pytest.fixture
    def space(self) -> Space:
        """The space whose domains the constraint works on."""
        return self.make_space()

    @pytest.fixture
    def constraint(self) -> Constraint:
        """The constraint under test."""
        return self.make_constraint()

    def test_it_has_a_name(self, constraint: Constraint) -> None:
        """For the messages that say which constraint left nothing."""
        assert isinstance(constraint.name, str) and constraint.name

    def test_exact_on_complete_assignments(self, space: Space, constraint: Constraint) -> None:
        """Legal is what ``is_legal`` says; both answers occur, or nothing would be tested."""
        answers = {True: 0, False: 0}
        for values in self.assignments(space):
            answers[self.is_legal(values)] += 1
            assert constraint.allows(values) == self.is_legal(values), values
        assert all(answers.values()), f"expected legal and illegal assignments, got {answers}"

    def test_sound_on_prefixes(self, space: Space, constraint: Constraint) -> None:
        """No prefix of a legal assignment is refused."""
        legal = [values for values in self.assignments(space) if self.is_legal(values)]
        for prefix in _prefixes(legal):
            assert constraint.allows(prefix), prefix

    def test_exact_on_prefixes_where_claimed(self, space: Space, constraint: Constraint) -> None:
        """Every other prefix is refused (only with ``exact_on_prefixes``)."""
        if not self.exact_on_prefixes:
            pytest.skip("the constraint does not claim to be exact on prefixes")
        legal = [values for values in self.assignments(space) if self.is_legal(values)]
        completable = _prefixes(legal)
        for prefix, _ in self.walk(space):
            assert constraint.allows(prefix) == (prefix in completable), prefix

    def test_answers_hang_on_the_prefix_alone(self, space: Space, constraint: Constraint) -> None:
        """Not on what was asked before, nor on the instance."""
        prefixes = [prefix for prefix, _ in self.walk(space)]
        answers = [constraint.allows(prefix) for prefix in prefixes]
        assert all(isinstance(answer, bool) for answer in answers)
        backwards = self.make_constraint()
        assert [backwards.allows(prefix) for prefix in reversed(prefixes)] == answers[::-1]
        assert [constraint.allows(prefix) for prefix in prefixes] == answers
