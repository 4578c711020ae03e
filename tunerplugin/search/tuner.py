"""Ask/measure/tell: who drives the loop owns it; the tuner only proposes and learns.

    candidates = tuner.ask(8)
    for candidate in candidates:
        tuner.tell(candidate.values, measure(candidate))

``ask`` never repeats a candidate, ``tell`` accepts results in any order and also those of earlier
runs, so resuming is telling what the record store holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import EmptySpaceError
from ..outcome import Outcome
from ..predictor import Example, TrainingReport
from ..space import Problem, Space, Value
from .beam import BeamSearch, Candidate
from .explored import Explored
from .history import History
from .scorer import Scorer


class LearningScorer(Scorer, Protocol):
    """A scorer that learns from examples (``tunerplugin.predictor.Predictor`` is one)."""

    def update(self, examples: Sequence[Example]) -> TrainingReport:
        """Learn from new examples, and from old ones whose quality has changed."""


@dataclass(frozen=True)
class TunerOptions:
    """How a tuner balances what it believes against what it does not know.

    ``pool`` candidates are decoded for each one asked for, then re-ranked by the value head;
    ``explore`` is the share of a batch taken from the beam as it comes, without re-ranking.
    """

    pool: int = 8
    explore: float = 0.2
    temperature: float = 1.0


class Tuner:
    """Tunes one problem over one space."""

    def __init__(
        self,
        problem: Problem,
        space: Space,
        predictor: LearningScorer,
        *,
        seed: int = 0,
        options: TunerOptions | None = None,
    ) -> None:
        self.problem, self.space = problem, space
        self.history = History(problem, space)
        self.options = options or TunerOptions()
        self._predictor = predictor
        self._rng = np.random.default_rng([seed, int(problem.key, 16) % 2**32])
        self._explored = Explored(space)
        self._beam = BeamSearch(problem, space, predictor, self._explored)

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed."""
        return self._explored.complete

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, most promising first; empty when the space is used up.

        Raises ``EmptySpaceError`` when the space never held a legal candidate.
        """
        wanted = n * self.options.pool if self.history.outcomes else n
        try:
            pool = self._beam.search(wanted, self._rng, self.options.temperature)
        except EmptySpaceError:
            if self.history.outcomes:
                return []
            raise
        chosen = self._choose(pool, n)
        for candidate in chosen:
            self._explored.add(candidate.values)
        return chosen

    def rank_beam(self, width: int) -> list[tuple[Value, ...]]:
        """A deterministic beam's candidates, by predicted speed, without asking for any.

        Raises ``EmptySpaceError`` when nothing legal is left.
        """
        pool = self._beam.search(width, self._rng, temperature=0.0)
        scores = self._predictor.rank(self.problem, self.space, [c.values for c in pool])
        return [pool[i].values for i in np.argsort(-scores, kind="stable")]

    def _choose(self, pool: list[Candidate], n: int) -> list[Candidate]:
        if len(pool) <= n:
            return pool
        explored = pool[: round(n * self.options.explore)]
        rest = pool[len(explored) :]
        scores = self._predictor.rank(self.problem, self.space, [c.values for c in rest])
        order = np.argsort(-scores, kind="stable")
        return [rest[i] for i in order[: n - len(explored)]] + explored

    def tell(self, values: tuple[Value, ...], outcome: Outcome) -> None:
        """Record one outcome; it is learnt from at the next ``learn``.

        Raises ``SpaceError`` when ``values`` do not lie in the space.
        """
        self.history.tell(values, outcome)
        self._explored.add(values)

    def discard(self, values: tuple[Value, ...]) -> None:
        """Never propose ``values``: they stand for a program that another candidate stands for."""
        self._explored.add(values)

    def learn(self) -> None:
        """Update the predictor from this task's outcomes."""
        self._predictor.update(self.history.examples())


def run(
    tuner: Tuner,
    measure: Callable[[Sequence[Candidate]], Mapping[tuple[Value, ...], Outcome]],
    trials: int,
    batch: int = 8,
) -> None:
    """The loop, for callers that have nothing else to do: ask, measure, tell, learn.

    A live measurer and a replay of recorded measurements run through it alike.
    """
    while len(tuner.history.outcomes) < trials:
        candidates = tuner.ask(min(batch, trials - len(tuner.history.outcomes)))
        if not candidates:
            return
        for values, outcome in measure(candidates).items():
            tuner.tell(values, outcome)
        tuner.learn()
