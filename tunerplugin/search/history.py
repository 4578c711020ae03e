"""What was measured of one task, and what a predictor can learn from it."""

from __future__ import annotations

from ..outcome import Outcome
from ..predictor import Example
from ..space import Problem, Space, Step, Value


class History:
    """The outcomes of one task's candidates."""

    def __init__(self, problem: Problem, space: Space) -> None:
        self.problem, self.space = problem, space
        self.outcomes: dict[tuple[Value, ...], Outcome] = {}
        self._steps: dict[tuple[Value, ...], tuple[Step, ...]] = {}
        self._fresh: dict[tuple[Value, ...], None] = {}
        self._fastest_learnt: float | None = None

    @property
    def best(self) -> tuple[tuple[Value, ...], Outcome] | None:
        """The fastest measured candidate."""
        timed = [(o.latency_s, v) for v, o in self.outcomes.items() if o.latency_s is not None]
        if not timed:
            return None
        values = min(timed, key=lambda pair: pair[0])[1]
        return values, self.outcomes[values]

    def tell(self, values: tuple[Value, ...], outcome: Outcome) -> None:
        """Take in one outcome; a later one of the same candidate replaces it.

        Raises ``SpaceError`` when ``values`` do not lie in the space.
        """
        self._steps[values] = self.space.steps(values)
        self.outcomes[values] = outcome
        self._fresh[values] = None

    def examples(self) -> list[Example]:
        """What is to be learnt since the last call, with qualities relative to the fastest.

        A new fastest candidate changes every quality, so then all examples come again.
        """
        best = self.best
        fastest = best[1].latency_s if best else None
        fresh = self._fresh if fastest == self._fastest_learnt else self.outcomes
        examples = [self._example(values, fastest) for values in fresh]
        self._fresh, self._fastest_learnt = {}, fastest
        return examples

    def _example(self, values: tuple[Value, ...], fastest: float | None) -> Example:
        latency = self.outcomes[values].latency_s
        quality = fastest / latency if fastest and latency else None
        return Example(self.problem, self._steps[values], self.space.describe(values), quality)
