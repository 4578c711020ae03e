"""Constraints of Kernel Tuner spaces: parsed conditions, and the set of recorded configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ...errors import InputError
from ...space import Constraint, Prefix, Value
from ...space.reach import Memo
from .expressions import Expression


class Condition(Constraint):
    """A condition over the parameters that its expression names.

    Checked as soon as the last of them is decided.  Before that it looks ahead: while what is open
    has at most ``MAX_LOOKAHEAD`` combinations, a prefix is refused when none of them fulfils the
    condition, which is exact.  A division by zero leaves a configuration legal, as in Kernel Tuner
    (``util.check_restrictions``, version 1.5).
    """

    MAX_LOOKAHEAD = 4096

    def __init__(
        self, expression: Expression, names: Sequence[str], domains: Sequence[Sequence[Value]]
    ) -> None:
        self.name = expression.text
        self._expression = expression
        self._used = sorted((names.index(name), name) for name in expression.names)
        self._domains = [tuple(domains[position]) for position, _ in self._used]
        self._answer = Memo([position for position, _ in self._used], self._decide)

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``.  Raises ``InputError`` where the expression has no value."""
        return self._answer(prefix)

    def _decide(self, prefix: Prefix) -> bool:
        decided = [(name, prefix[place]) for place, name in self._used if place < len(prefix)]
        open_domains = self._domains[len(decided) :]
        if prod(len(domain) for domain in open_domains) > self.MAX_LOOKAHEAD:
            return True
        return self._reachable(dict(decided), len(decided))

    def _reachable(self, values: dict[str, Value], known: int) -> bool:
        if known == len(self._used):
            return self._holds(values)
        name = self._used[known][1]
        return any(
            self._reachable({**values, name: value}, known + 1) for value in self._domains[known]
        )

    def _holds(self, values: dict[str, Any]) -> bool:
        try:
            return bool(self._expression.evaluate(values))
        except InputError as error:
            if isinstance(error.__cause__, ZeroDivisionError):
                return True
            raise


class Recorded(Constraint):
    """Legal is what was recorded.  Exact on prefixes."""

    name = "recorded configurations"

    def __init__(self, configurations: Iterable[tuple[Value, ...]]) -> None:
        self._prefixes: set[Prefix] = set()
        for values in configurations:
            for length in range(len(values), -1, -1):
                if values[:length] in self._prefixes:
                    break
                self._prefixes.add(values[:length])

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        return prefix in self._prefixes
