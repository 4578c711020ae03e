"""Spaces of fixed fields under rules, walked without dead ends.

A solver's validity test is a conjunction of rules, each over a few fields.  Which values may come
next, and whether anything can still follow them, hangs only on the decided fields that a rule
still asks for (the *live* ones).  So the look-ahead is exact and remembered by these, and so are
the legal sets: walking a space costs one look-up per field once its states were met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from ...errors import SpaceError
from ...space import Constraint, ListSpace, Prefix, Step, Value, Word


class Rule(NamedTuple):
    """``holds(*values of fields)`` must be true.

    ``falling`` promises that a larger value of any field never makes a broken rule whole (register
    and memory budgets): the rule then judges prefixes too, by the least values of open fields.
    """

    name: str
    fields: tuple[str, ...]
    holds: Callable[..., bool]
    falling: bool = False


class RuleConstraint(Constraint):
    """A rule at its positions: silent until it can be judged.

    Exact on complete assignments.  ``least`` holds, for a falling rule, the least value of each
    field.
    """

    def __init__(self, rule: Rule, positions: Sequence[int], least: Sequence[Value] = ()) -> None:
        self.name = rule.name
        self.positions = tuple(positions)
        self.last = max(self.positions, default=-1)
        self._first = min(self.positions, default=-1)
        self._holds, self._least = rule.holds, tuple(least)
        #: a slice picks one value as a tuple, too
        one = slice(self.last, self.last + 1)
        self._pick = itemgetter(*self.positions) if len(self.positions) > 1 else itemgetter(one)

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        if len(prefix) > self.last:
            return self._holds(*self._pick(prefix)) if self.positions else self._holds()
        if not self._least or len(prefix) <= self._first:
            return True
        return self._holds(*self._filled_up(prefix))

    def _filled_up(self, prefix: Prefix) -> list[Value]:
        """The values of the fields, the least for open ones."""
        length = len(prefix)
        pairs = zip(self.positions, self._least, strict=True)
        return [prefix[p] if p < length else low for p, low in pairs]

    def speaks_at(self, position: int) -> bool:
        """Whether deciding this position may change the answer."""
        return position == self.last or (bool(self._least) and position in self.positions)


class _LookAhead(Constraint):
    """Refuses what the other rules leave no completion for."""

    name = "no completion"

    def __init__(self, space: RuledSpace) -> None:
        self._space = space

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        return self._space.completable(prefix)


@dataclass(frozen=True)
class _Fork:
    """What may follow at a state: the legal values as steps, and who refused the others."""

    legal: tuple[Value, ...]
    steps: dict[Value, Step]
    refused: tuple[tuple[str, int], ...]


class RuledSpace(ListSpace):
    """Fields with fixed ranges under rules; every legal prefix has a legal completion.

    ``words`` describe each field.  ``closed`` promises that the rules alone leave no dead ends in a
    space that is not empty, which spares the search for completions.  Raises ``SpaceError`` for a
    rule over a field that is not there.
    """

    #: states remembered per field; beyond that all of them are forgotten
    MEMORY = 1 << 16

    def __init__(
        self,
        fields: Sequence[str],
        ranges: Sequence[Sequence[int]],
        rules: Sequence[Rule],
        words: Sequence[tuple[Word, ...]] | None = None,
        closed: bool = False,
    ) -> None:
        super().__init__(fields, ranges, (), words)
        self.ranges = tuple(tuple(values) for values in ranges)
        self._depth = len(self.names)
        places = range(self._depth)
        #: the values that rules over one field leave
        self._usable = [self._unrefused(place, rules) for place in places]
        self.rules = tuple(self._constraint(rule) for rule in rules)
        self.constraints = (*self.rules, _LookAhead(self))
        joint = [rule for rule in self.rules if len(rule.positions) > 1]
        self._alone = [[r for r in self.rules if r.positions == (place,)] for place in places]
        self._due = [[r for r in joint if r.speaks_at(place)] for place in places]
        self._state = [self._picker(place) for place in range(self._depth + 1)]
        self._forks: list[dict[Any, _Fork]] = [{} for _ in places]
        self._open: list[dict[Any, bool]] = [{} for _ in places]
        self._closed = False  # until it is known that there is a legal tuple
        self._possible = all(r.allows(()) for r in self.rules) and self.completable(())
        self._closed = closed

    def _unrefused(self, place: int, rules: Sequence[Rule]) -> tuple[int, ...]:
        own = [rule for rule in rules if rule.fields == (self.names[place],)]
        return tuple(v for v in self.ranges[place] if all(rule.holds(v) for rule in own))

    def _constraint(self, rule: Rule) -> RuleConstraint:
        unknown = set(rule.fields).difference(self.names)
        if unknown:
            raise SpaceError(f"expected fields among {self.names} in {rule.name!r}, got {unknown}")
        positions = [self.names.index(field) for field in rule.fields]
        least = [min(self._usable[p], default=0) for p in positions] if rule.falling else ()
        return RuleConstraint(rule, positions, least)

    def _picker(self, length: int) -> Callable[[Prefix], Any]:
        """Picks, from a prefix of that length, what rules still ask for."""
        asking = [rule for rule in self.rules if rule.last >= length]
        live = sorted({p for rule in asking for p in rule.positions if p < length})
        return itemgetter(*live) if live else lambda prefix: ()

    def completable(self, prefix: Prefix) -> bool:
        """Whether rules that are not settled yet leave a completion."""
        place = len(prefix)
        if place >= self._depth:
            return True
        if self._closed:
            return self._possible
        known, state = self._open[place], self._state[place](prefix)
        answer = known.get(state)
        if answer is None:
            answer = self._leads_on(prefix)
            if len(known) >= self.MEMORY:
                known.clear()
            known[state] = answer
        return answer

    def _leads_on(self, prefix: Prefix) -> bool:
        """``completable`` without memory: plain loops, for it is where the time goes."""
        due = self._due[len(prefix)]
        for value in self._usable[len(prefix)]:
            longer = (*prefix, value)
            for rule in due:
                if not rule.allows(longer):
                    break
            else:
                if self.completable(longer):
                    return True
        return False

    def _fork(self, prefix: Prefix) -> _Fork:
        """What may follow a legal, incomplete prefix."""
        place = len(prefix)
        known, state = self._forks[place], self._state[place](prefix)
        fork = known.get(state)
        if fork is None:
            if len(known) >= self.MEMORY:
                known.clear()
            fork = known[state] = self._explore(prefix)
        return fork

    def _explore(self, prefix: Prefix) -> _Fork:
        knob = self.knob(prefix)
        assert knob is not None
        place = len(prefix)
        judges = (*self._alone[place], *self._due[place], self.constraints[-1])
        legal: list[Value] = []
        refused: Counter[str] = Counter()
        for value in knob.domain:
            longer = (*prefix, value)
            for judge in judges:
                if not judge.allows(longer):
                    refused[judge.name] += 1
                    break
            else:
                legal.append(value)
        options = tuple(legal)
        steps = {value: Step(knob, value, options) for value in options}
        return _Fork(options, steps, tuple(refused.items()))

    def allows(self, prefix: Prefix, refused: Counter[str] | None = None) -> bool:
        """See ``Space.allows``."""
        if self._possible and len(prefix) <= self._depth:
            if all(prefix[n] in self._fork(prefix[:n]).steps for n in range(len(prefix))):
                return True
        return super().allows(prefix, refused)

    def legal_values(
        self, prefix: Prefix, refused: Counter[str] | None = None
    ) -> tuple[Value, ...]:
        """See ``Space.legal_values``."""
        if len(prefix) >= self._depth or not self.allows(prefix):
            return super().legal_values(prefix, refused)
        fork = self._fork(prefix)
        if refused is not None:
            for name, count in fork.refused:
                refused[name] += count
        return fork.legal

    def steps(self, values: Sequence[Value]) -> tuple[Step, ...]:
        """See ``Space.steps``."""
        taken: list[Step] = []
        candidate = tuple(values)
        if len(candidate) == self._depth and self._possible:
            for n, value in enumerate(candidate):
                step = self._fork(candidate[:n]).steps.get(value)
                if step is None:
                    break
                taken.append(step)
            else:
                return tuple(taken)
        return super().steps(candidate)

    def _below(self, prefix: Prefix) -> Iterator[Prefix]:
        if len(prefix) == self._depth:
            yield prefix
            return
        for value in self._fork(prefix).legal:
            yield from self._below((*prefix, value))
