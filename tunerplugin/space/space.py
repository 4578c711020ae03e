"""The knob language: Knobs, Constraints and Spaces.

A **Space** asks one question again and again: given the values chosen so far (the *prefix*), which
**Knob** comes next and which values may it take?  A knob's *domain* says what exists; the
**Constraints** say what the hardware or the space forbids.  Everything that is tuned here (a TVM
design space, another tuner's parameter list, a schedule template) is a Space, so one predictor
and one beam search serve them all.

Start reading at ``Space.legal_values``.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import SpaceError
from .problem import Value, Word

Prefix = tuple[Value, ...]
"""The values chosen so far, in knob order."""


@dataclass(frozen=True)
class Knob:
    """One decision of a space.

    ``words`` says what the knob is, in the problem language, e.g. ``("kind", "tile"),
    ("axis", "spatial"), ("level", 3), ("extent", 256)``; they may tell the predictor about the
    prefix too (what remains of an axis, the threads so far).  ``domain`` lists the values that
    exist at this prefix, before constraints, in a deterministic order.
    """

    name: str
    words: tuple[Word, ...]
    domain: tuple[Value, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if len(set(self.domain)) != len(self.domain):
            raise SpaceError(f"expected distinct values in the domain of {self.name!r}, got {self.domain}")


class Constraint(ABC):
    """Refuses prefixes that cannot be completed.

    ``allows`` must be *sound*: ``False`` only when no completion of the prefix is legal.  On a
    complete assignment it must be exact.  The closer it is to exact on prefixes, the fewer dead
    ends a search meets.
    """

    name: str = "constraint"

    @abstractmethod
    def allows(self, prefix: Prefix) -> bool:
        """``False``: impossible.  ``True``: maybe (or, for a complete assignment, legal)."""


@dataclass(frozen=True)
class Step:
    """One decision taken: the knob, the value, and what could have been chosen instead."""

    knob: Knob
    value: Value
    legal: tuple[Value, ...]


class Space(ABC):
    """A finite design space, walked one knob at a time.

    Subclasses give ``knob`` and, optionally, ``constraints`` and ``describe``.
    """

    #: changes whenever the meaning of a value sequence changes; part of every record's key
    version: str = "1"
    constraints: tuple[Constraint, ...] = ()

    @abstractmethod
    def knob(self, prefix: Prefix) -> Knob | None:
        """The next knob after ``prefix``, or ``None`` when the assignment is complete."""

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """Words that summarise a complete assignment for the value head (default: none)."""
        return ()

    def legal_values(self, prefix: Prefix, refused: Counter[str] | None = None) -> tuple[Value, ...]:
        """Values of the next knob that no constraint refuses, in domain order.

        ``refused`` counts, by constraint name, the values taken away.
        """
        knob = self.knob(prefix)
        if knob is None:
            raise SpaceError(f"expected a prefix of a candidate, got the complete {prefix}")
        return tuple(v for v in knob.domain if self._allowed((*prefix, v), refused))

    def _allowed(self, prefix: Prefix, refused: Counter[str] | None = None) -> bool:
        for constraint in self.constraints:
            if not constraint.allows(prefix):
                if refused is not None:
                    refused[constraint.name] += 1
                return False
        return True

    def steps(self, values: Sequence[Value]) -> tuple[Step, ...]:
        """The decisions of a complete assignment, with what was legal at each.

        Raises ``SpaceError`` when a value is outside its domain or the length is wrong.
        """
        taken: list[Step] = []
        prefix: Prefix = ()
        for value in values:
            knob = self.knob(prefix)
            if knob is None:
                raise SpaceError(f"expected {len(prefix)} values, got {len(values)}")
            legal = self.legal_values(prefix)
            if value not in legal:
                raise SpaceError(f"expected {knob.name} in {legal}, got {value!r} after {prefix}")
            taken.append(Step(knob, value, legal))
            prefix = (*prefix, value)
        if (missing := self.knob(prefix)) is not None:
            raise SpaceError(f"expected a value for {missing.name}, got only {len(values)} values")
        return tuple(taken)

    def contains(self, values: Sequence[Value]) -> bool:
        """Whether this is a complete, legal assignment."""
        try:
            self.steps(values)
        except SpaceError:
            return False
        return True

    def enumerate(self, prefix: Prefix = ()) -> Iterator[Prefix]:
        """Every legal complete assignment that starts with ``prefix``, in domain order."""
        if self.knob(prefix) is None:
            yield prefix
            return
        for value in self.legal_values(prefix):
            yield from self.enumerate((*prefix, value))


class ListSpace(Space):
    """A space whose knobs come in a fixed order.

    ``domains[i]`` is a tuple of values or a function of the prefix that returns one.
    """

    def __init__(
        self,
        names: Sequence[str],
        domains: Sequence[tuple[Value, ...] | Callable[[Prefix], tuple[Value, ...]]],
        constraints: Sequence[Constraint] = (),
        words: Sequence[tuple[Word, ...]] | None = None,
    ) -> None:
        if len(names) != len(domains) or len(set(names)) != len(names):
            raise SpaceError(f"expected one domain for each distinct name, got {names} and {len(domains)}")
        self.names = tuple(names)
        self._domains = tuple(domains)
        self.constraints = tuple(constraints)
        self._words = tuple(words) if words else tuple((("knob", name),) for name in names)
        fixed = [d if isinstance(d, tuple) else None for d in domains]
        self.version = hashlib.sha256(json.dumps([names, fixed]).encode()).hexdigest()[:16]

    def knob(self, prefix: Prefix) -> Knob | None:
        """See ``Space.knob``."""
        index = len(prefix)
        if index >= len(self.names):
            return None
        domain = self._domains[index]
        values = domain if isinstance(domain, tuple) else domain(prefix)
        return Knob(self.names[index], self._words[index], values)


class UnionSpace(Space):
    """Several spaces as one: the first knob, *sketch*, says which.

    TVM's post-order-apply generator returns several design spaces for one task; they are the
    sketches of one space here.
    """

    def __init__(self, spaces: Sequence[Space], sketch_words: Sequence[Word] = ()) -> None:
        if not spaces:
            raise SpaceError("expected at least one space, got none")
        self.spaces = tuple(spaces)
        self._sketch = Knob("sketch", (("kind", "sketch"), *sketch_words), tuple(range(len(spaces))))
        text = "|".join(space.version for space in spaces)
        self.version = hashlib.sha256(text.encode()).hexdigest()[:16]

    def knob(self, prefix: Prefix) -> Knob | None:
        """See ``Space.knob``."""
        return self._sketch if not prefix else self._inner(prefix).knob(prefix[1:])

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """See ``Space.describe``."""
        return self._inner(values).describe(values[1:])

    def _inner(self, prefix: Prefix) -> Space:
        index = prefix[0]
        if not isinstance(index, int) or not 0 <= index < len(self.spaces):
            raise SpaceError(f"expected a sketch in 0..{len(self.spaces) - 1}, got {index!r}")
        return self.spaces[index]

    def _allowed(self, prefix: Prefix, refused: Counter[str] | None = None) -> bool:
        return self._inner(prefix)._allowed(prefix[1:], refused)
