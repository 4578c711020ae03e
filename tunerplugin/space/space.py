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

Domain = Sequence[Value] | Callable[[Prefix], tuple[Value, ...]]
"""The values of a knob, or a function that gives them at a prefix."""


@dataclass(frozen=True)
class Knob:
    """One decision of a space.

    ``words`` says what the knob is, in the problem language, e.g. ``("kind", "tile"),
    ("axis", "spatial"), ("level", 3), ("extent", 256)``; they may tell the predictor about the
    prefix too (what remains of an axis, the threads so far).  ``domain`` lists the values that
    exist at this prefix, before constraints, in a deterministic order; they are distinct as
    numbers too (1 and 1.0 are one value).  Raises ``SpaceError`` when they are not.
    """

    name: str
    words: tuple[Word, ...]
    domain: tuple[Value, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if len(set(self.domain)) != len(self.domain):
            raise SpaceError(
                f"expected distinct values in the domain of {self.name!r}, got {self.domain}"
            )


class Constraint(ABC):
    """Refuses prefixes that cannot be completed.

    ``allows`` must be *sound*: ``False`` only when no completion of the prefix is legal.  On a
    complete assignment it must be exact.  The closer it is to exact on prefixes, the fewer dead
    ends a search meets.  It is a pure function of the prefix, and is asked about any prefix whose
    values come from the knobs' domains, legal or not.  ``tunerplugin.testing`` holds an own
    constraint to all of this.
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

    Subclasses give ``knob`` and, optionally, ``constraints`` and ``describe``.  ``knob`` is a pure
    function, defined for every prefix whose values come from the domains.  ``tunerplugin.testing``
    holds an own space to the contract.
    """

    #: changes whenever the meaning of a value sequence changes (not with the constraints, which
    #: change only what is legal); part of every record's key
    version: str = "1"
    constraints: tuple[Constraint, ...] = ()

    @abstractmethod
    def knob(self, prefix: Prefix) -> Knob | None:
        """The next knob after ``prefix``, or ``None`` when the assignment is complete."""

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """Words that summarise a complete assignment for the value head (default: none)."""
        return ()

    def legal_values(
        self, prefix: Prefix, refused: Counter[str] | None = None
    ) -> tuple[Value, ...]:
        """Values of the next knob that no constraint refuses, in domain order.

        ``refused`` counts, by name of the first constraint that refuses it, the values taken away.
        Raises ``SpaceError`` when ``prefix`` is complete.
        """
        knob = self.knob(prefix)
        if knob is None:
            raise SpaceError(f"expected a prefix of a candidate, got the complete {prefix}")
        return tuple(v for v in knob.domain if self.allows((*prefix, v), refused))

    def allows(self, prefix: Prefix, refused: Counter[str] | None = None) -> bool:
        """Whether no constraint refuses ``prefix``; ``refused`` as in ``legal_values``."""
        for constraint in self.constraints:
            if not constraint.allows(prefix):
                if refused is not None:
                    refused[constraint.name] += 1
                return False
        return True

    def steps(self, values: Sequence[Value]) -> tuple[Step, ...]:
        """The decisions of a complete assignment, with what was legal at each.

        Raises ``SpaceError`` when a value is outside its domain or refused by a constraint, or the
        length is wrong.
        """
        taken: list[Step] = []
        prefix: Prefix = ()
        for value in values:
            knob = self.knob(prefix)
            if knob is None:
                raise SpaceError(f"expected {len(prefix)} values, got {len(values)}: {values}")
            legal = self.legal_values(prefix)
            if value not in legal:
                raise SpaceError(f"expected {knob.name} in {legal}, got {value!r} after {prefix}")
            taken.append(Step(knob, value, legal))
            prefix = (*prefix, value)
        if (missing := self.knob(prefix)) is not None:
            raise SpaceError(f"expected a value for {missing.name}, got only {len(values)} values")
        if not taken and not self.allows(()):
            raise SpaceError("expected a legal candidate, got a space that refuses its only one")
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
        if self.allows(prefix):
            yield from self._below(prefix)

    def _below(self, prefix: Prefix) -> Iterator[Prefix]:
        if self.knob(prefix) is None:
            yield prefix
            return
        for value in self.legal_values(prefix):
            yield from self._below((*prefix, value))


class ListSpace(Space):
    """A space whose knobs come in a fixed order.

    ``domains[i]`` is a sequence of values or a function of the prefix that returns a tuple of them.
    ``words[i]`` describes knob ``i`` (by default its name does).  The version follows from names,
    words and listed values; ``version`` is added to it and tells apart what functions change.
    Raises ``SpaceError`` when the lengths differ or a name comes twice.
    """

    def __init__(
        self,
        names: Sequence[str],
        domains: Sequence[Domain],
        constraints: Sequence[Constraint] = (),
        words: Sequence[tuple[Word, ...]] | None = None,
        version: str = "",
    ) -> None:
        if len(names) != len(domains) or len(set(names)) != len(names):
            raise SpaceError(
                f"expected one domain for each distinct name, got {names} and {len(domains)}"
            )
        if words is not None and len(words) != len(names):
            raise SpaceError(f"expected words for {len(names)} knobs, got them for {len(words)}")
        self.names = tuple(names)
        self.constraints = tuple(constraints)
        self._words = tuple(words or ((("knob", name),) for name in names))
        self._domains = tuple(d if callable(d) else tuple(d) for d in domains)
        self._fixed = tuple(
            None if callable(d) else Knob(n, w, d)
            for n, w, d in zip(self.names, self._words, self._domains, strict=True)
        )
        listed = [None if callable(d) else d for d in self._domains]
        text = json.dumps([self.names, self._words, listed, version])
        self.version = hashlib.sha256(text.encode()).hexdigest()[:16]

    def knob(self, prefix: Prefix) -> Knob | None:
        """See ``Space.knob``."""
        index = len(prefix)
        if index >= len(self.names):
            return None
        domain = self._domains[index]
        if callable(domain):
            return Knob(self.names[index], self._words[index], domain(prefix))
        return self._fixed[index]


class UnionSpace(Space):
    """Several spaces as one: the first knob, *sketch*, says which.

    TVM's post-order-apply generator returns several design spaces for one task; they are the
    sketches of one space here.  A sketch is legal when its constraints allow the empty prefix.
    """

    def __init__(self, spaces: Sequence[Space], sketch_words: Sequence[Word] = ()) -> None:
        if not spaces:
            raise SpaceError("expected at least one space, got none")
        self.spaces = tuple(spaces)
        words = (("kind", "sketch"), *sketch_words)
        self._sketch = Knob("sketch", words, tuple(range(len(spaces))))
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

    def legal_values(
        self, prefix: Prefix, refused: Counter[str] | None = None
    ) -> tuple[Value, ...]:
        """See ``Space.legal_values``: that of the chosen sketch, whatever it makes of it."""
        if prefix:
            return self._inner(prefix).legal_values(prefix[1:], refused)
        return super().legal_values(prefix, refused)

    def allows(self, prefix: Prefix, refused: Counter[str] | None = None) -> bool:
        """See ``Space.allows``."""
        return not prefix or self._inner(prefix).allows(prefix[1:], refused)
