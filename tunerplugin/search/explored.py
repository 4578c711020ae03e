"""Which parts of a space are used up: measured candidates and discovered dead ends."""

from __future__ import annotations

from ..space import Prefix, Space


class Explored:
    """A set of exhausted prefixes, closed upwards.

    A complete assignment is exhausted once it was measured; a prefix is exhausted when every
    legal continuation is.  A dead end (a prefix without legal continuation) is exhausted from the
    start, so once found it is never entered again.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._exhausted: set[Prefix] = set()
        self._used = False

    def __contains__(self, prefix: Prefix) -> bool:
        return prefix in self._exhausted

    @property
    def complete(self) -> bool:
        """Whether nothing is left to propose."""
        return () in self._exhausted

    @property
    def used(self) -> bool:
        """Whether a candidate was ever added: an empty space and one used up are two things."""
        return self._used

    def add(self, prefix: Prefix) -> None:
        """Mark a measured candidate or a dead end, and every ancestor that it uses up."""
        if prefix in self._exhausted:
            return
        self._exhausted.add(prefix)
        self._used = self._used or self._space.knob(prefix) is None
        while prefix:
            prefix = prefix[:-1]
            if prefix in self._exhausted:
                return
            values = self._space.legal_values(prefix)
            if not all((*prefix, value) in self._exhausted for value in values):
                return
            self._exhausted.add(prefix)

    def copy(self) -> Explored:
        """An independent copy."""
        twin = Explored(self._space)
        twin._exhausted, twin._used = set(self._exhausted), self._used
        return twin
