"""Ask/measure/tell: who drives the loop owns it; the tuner only proposes and learns.

    candidates = tuner.ask(8)
    for candidate in candidates:
        tuner.tell(candidate.values, measure(candidate))

``ask`` never repeats a candidate, ``tell`` accepts results in any order and also those of earlier
runs, so resuming is telling what the record store holds.  The random numbers of an ``ask`` follow
from the seed, the problem and how many candidates are known, not from the calls before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import EmptySpaceError, MeasureError
from ..outcome import Outcome
from ..predictor import Example, TrainingReport
from ..space import Prefix, Problem, Space, Value
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
        self._seed = (seed, int(problem.key, 16) % 2**32)
        self._known: set[Prefix] = set()
        self._explored = Explored(space)
        self._beam = BeamSearch(problem, space, predictor, self._explored)

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed, told or discarded.

        Dead ends that no search met yet hide that; an ``ask`` that returns fewer than it was
        asked for has met them all.
        """
        return self._explored.complete

    def ask(self, n: int) -> list[Candidate]:
        """``n`` new candidates, the re-ranked ones first; fewer (none) as the space is used up.

        Raises ``EmptySpaceError`` when the space never held a legal candidate, and ``ValueError``
        when ``n`` is below 1.
        """
        rng = np.random.default_rng([*self._seed, len(self._known)])
        try:
            pool = self._beam.search(n * self.options.pool, rng, self.options.temperature)
        except EmptySpaceError:
            if self._known:
                return []
            raise
        chosen = self._choose(pool, n, self._explored_count(n, rng))
        for candidate in chosen:
            self._mark(candidate.values)
        return chosen

    def rank_beam(self, width: int) -> list[tuple[Value, ...]]:
        """The beam's candidates by predicted speed, without asking for any.

        A quarter of ``width`` comes from the deterministic beam, the rest is sampled, so that the
        value head may overrule a decoder that is sure of itself.  Raises ``EmptySpaceError`` when
        nothing legal is left.
        """
        rng = np.random.default_rng(self._seed)
        pool = self._beam.search(max(1, width // 4), rng, temperature=0.0)
        pool += self._beam.search(width, rng, self.options.temperature)
        distinct = list(dict.fromkeys(candidate.values for candidate in pool))[:width]
        scores = self._predictor.rank(self.problem, self.space, distinct)
        return [distinct[i] for i in np.argsort(-scores, kind="stable")]

    def _explored_count(self, n: int, rng: np.random.Generator) -> int:
        """How many of a batch are not re-ranked; a batch too small for its share has one at times.

        Without that, a caller that asks for one or two at a time would never explore.
        """
        share = n * self.options.explore
        return round(share) or int(rng.random() < share)

    def _choose(self, pool: list[Candidate], n: int, explore: int) -> list[Candidate]:
        if len(pool) <= n:
            return pool
        explored = pool[:explore]
        rest = pool[len(explored) :]
        scores = self._predictor.rank(self.problem, self.space, [c.values for c in rest])
        order = np.argsort(-scores, kind="stable")
        return [rest[i] for i in order[: n - len(explored)]] + explored

    def tell(self, values: tuple[Value, ...], outcome: Outcome) -> None:
        """Record one outcome; it is learnt from at the next ``learn``.

        A candidate measured again is told again: the later outcome counts.
        Raises ``SpaceError`` when ``values`` do not lie in the space.
        """
        self.history.tell(values, outcome)
        self._mark(values)

    def discard(self, values: tuple[Value, ...]) -> None:
        """Never propose ``values``: they stand for a program that another candidate stands for.

        Values outside the space are ignored, as they would never be proposed.
        """
        if self.space.contains(values):
            self._mark(values)

    def _mark(self, values: Prefix) -> None:
        self._known.add(values)
        self._explored.add(values)

    def learn(self) -> None:
        """Update the predictor from this task's outcomes; nothing happens if there are no new."""
        if examples := self.history.examples():
            self._predictor.update(examples)


def run(
    tuner: Tuner,
    measure: Callable[[Sequence[Candidate]], Mapping[tuple[Value, ...], Outcome]],
    trials: int,
    batch: int = 8,
) -> None:
    """The loop, for callers that have nothing else to do: ask, measure, tell, learn.

    A live measurer and a replay of recorded measurements run through it alike.  ``trials`` is the
    total, what was told before included.  Raises ``MeasureError`` when ``measure`` leaves out a
    candidate: what vanishes would be asked for no more and counted by nobody.
    """
    while len(tuner.history.outcomes) < trials:
        candidates = tuner.ask(min(batch, trials - len(tuner.history.outcomes)))
        if not candidates:
            return
        outcomes = measure(candidates)
        for candidate in candidates:
            if candidate.values not in outcomes:
                raise MeasureError(
                    f"expected an outcome for each of {len(candidates)} candidates, got none for "
                    f"{candidate.values}: report a failure as an outcome too"
                )
            tuner.tell(candidate.values, outcomes[candidate.values])
        tuner.learn()
