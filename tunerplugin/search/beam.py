"""Constrained beam search: from a problem to the candidates that the predictor prefers.

At every knob only the legal values are scored, so an illegal value has no probability.  Beams are
kept diverse by sampling them *without replacement* (stochastic beam search, Kool et al., arXiv
1903.06059): hypotheses carry Gumbel-perturbed log-probabilities, the top ``width`` of which are a
sample without replacement from the predictor's distribution.  ``temperature=0`` switches the
noise off and gives the ordinary, deterministic beam search.

Dead ends and measured candidates are kept in ``Explored`` and never entered again.  Where dead
ends cost the beam its width, it descends once more for what is missing, so it returns as many
candidates as asked for whenever that many are left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import EmptySpaceError
from ..space import Knob, Prefix, Problem, Space, Value
from .explored import Explored
from .scorer import FloatArray, Scorer

#: stands for log-probabilities of minus infinity and NaN: legal values stay possible, as the last
_LEAST = -1e6


@dataclass(frozen=True)
class Candidate:
    """A complete assignment with its log-probability under the predictor."""

    values: tuple[Value, ...]
    log_probability: float


@dataclass(frozen=True)
class _Marks:
    """Log-probability, the same at the search's temperature, and the perturbed score."""

    log_p: float = 0.0
    tempered: float = 0.0
    score: float = 0.0


@dataclass(frozen=True)
class _Hypothesis:
    """An open prefix, its next knob, the legal values there and those of them left to try.

    All legal values are scored, or else what a measured candidate leaves behind would go to its
    siblings and the log-probabilities would no longer be the predictor's.
    """

    prefix: Prefix
    knob: Knob
    legal: tuple[Value, ...]
    left: tuple[bool, ...]
    marks: _Marks


@dataclass(frozen=True)
class _Child:
    parent: int
    value: Value
    marks: _Marks


class _Finished:
    """Complete candidates with their scores."""

    def __init__(self) -> None:
        self._candidates: list[tuple[float, Candidate]] = []
        self._negated: list[float] = []

    def add(self, score: float, candidate: Candidate) -> None:
        self._candidates.append((score, candidate))
        insort(self._negated, -score)

    def better_than(self, score: float) -> int:
        """How many have a higher score."""
        return bisect_left(self._negated, -score)

    def best(self, width: int) -> list[Candidate]:
        """The highest scores first; equal ones in order of arrival."""
        ordered = sorted(self._candidates, key=lambda entry: -entry[0])
        return [candidate for _, candidate in ordered[:width]]


@dataclass
class SearchReport:
    """What all searches met: values refused, by constraint; dead ends; descents beyond the first.

    A value is counted each time that a search meets it.
    """

    refused: Counter[str] = field(default_factory=Counter)
    dead_ends: int = 0
    restarts: int = 0


class BeamSearch:
    """Beam search over one space for one problem.

    Candidates are not marked as explored by it: whoever has them measured adds them.
    """

    #: Descents in a row that find nothing (each learns at least one dead end, and with twice the
    #: breadth of the one before) after which what is left is not worth the wait.
    MAX_RESTARTS = 24
    MAX_BREADTH = 256

    def __init__(self, problem: Problem, space: Space, scorer: Scorer, explored: Explored) -> None:
        self._problem, self._space, self._scorer = problem, space, scorer
        self._explored = explored
        self.report = SearchReport()

    def search(
        self, width: int, rng: np.random.Generator, temperature: float = 1.0
    ) -> list[Candidate]:
        """``width`` distinct unexplored candidates, or all of them if fewer are left.

        In the order in which they were sampled; by log-probability for a temperature of 0.
        Raises ``EmptySpaceError`` when nothing legal is left, naming the constraints that refused
        values and how many, and ``ValueError`` for a width below 1.
        """
        if width < 1:
            raise ValueError(f"expected a width of at least 1, got {width}")
        found: list[Candidate] = []
        seen = self._explored.copy()
        breadth, fruitless = width, 0
        while not seen.complete and fruitless < self.MAX_RESTARTS:
            more = self._descend(max(breadth, width - len(found)), seen, rng, temperature)
            more = more[: width - len(found)]
            found += more
            if len(found) == width:
                break
            for candidate in more:
                seen.add(candidate.values)
            fruitless = 0 if more else fruitless + 1
            breadth = 1 if more else min(2 * breadth, self.MAX_BREADTH)
            self.report.restarts += not seen.complete
        if not found:
            raise EmptySpaceError(self._explain())
        if temperature <= 0:
            found.sort(key=lambda candidate: -candidate.log_probability)
        return found

    def _explain(self) -> str:
        if self._explored.used and self._explored.complete:
            return "expected a candidate that was not measured yet, got none: the space is used up"
        counts = self.report.refused.most_common()
        met = [f"{name} refused {n} values" for name, n in counts]
        met.append(f"{self.report.dead_ends} dead ends")
        if not self._explored.complete:
            met.append(f"gave up after {self.MAX_RESTARTS} descents")
        wanted = "another legal candidate" if self._explored.used else "a legal candidate"
        return (
            f"expected {wanted}, got none ({', '.join(met)}): "
            "relax the target's limits or enlarge the space"
        )

    def _descend(
        self, width: int, seen: Explored, rng: np.random.Generator, temperature: float
    ) -> list[Candidate]:
        """One pass from the first knob to the last, without what was seen."""
        finished = _Finished()
        root = self._open((), _Marks(), seen, finished)
        beam = [root] if root else []
        state = self._scorer.start(self._problem)
        while beam:
            children = self._expand(beam, state, rng, temperature)
            kept: list[_Child] = []
            opened: list[_Hypothesis] = []
            for child in children:
                if finished.better_than(child.marks.score) + len(kept) >= width:
                    break
                prefix = (*beam[child.parent].prefix, child.value)
                if hypothesis := self._open(prefix, child.marks, seen, finished):
                    kept.append(child)
                    opened.append(hypothesis)
            if kept:
                parents = [child.parent for child in kept]
                knobs = [beam[p].knob for p in parents]
                state = self._scorer.extend(state, parents, knobs, [c.value for c in kept])
            beam = opened
        return finished.best(width)

    def _open(
        self, prefix: Prefix, marks: _Marks, seen: Explored, finished: _Finished
    ) -> _Hypothesis | None:
        """The hypothesis at a prefix; ``None`` if it is complete (then it finishes) or dead."""
        knob = self._space.knob(prefix)
        if knob is None:
            finished.add(marks.score, Candidate(prefix, marks.log_p))
            return None
        legal = self._space.legal_values(prefix, self.report.refused)
        left = tuple((*prefix, value) not in seen for value in legal)
        if any(left):
            return _Hypothesis(prefix, knob, legal, left, marks)
        self.report.dead_ends += 1
        self._explored.add(prefix)
        seen.add(prefix)
        return None

    def _expand(
        self, beam: list[_Hypothesis], state: Any, rng: np.random.Generator, temperature: float
    ) -> list[_Child]:
        """Every child of the beam that is left to try, best score first."""
        scored = self._scorer.score(state, [h.knob for h in beam], [h.legal for h in beam])
        children: list[_Child] = []
        for parent, (hypothesis, raw) in enumerate(zip(beam, scored, strict=True)):
            above = hypothesis.marks
            log_p = np.fmax(raw, _LEAST)
            total = above.log_p + log_p
            tempered, score = total, total
            if temperature > 0:
                sharpened = log_p / temperature
                tempered = above.tempered + sharpened - _log_sum_exp(sharpened)
                score = _gumbel_below(above.score, tempered, rng)
            marks = zip(total.tolist(), tempered.tolist(), score.tolist(), strict=True)
            for value, left, mark in zip(hypothesis.legal, hypothesis.left, marks, strict=True):
                if left:
                    children.append(_Child(parent, value, _Marks(*mark)))
        children.sort(key=lambda child: -child.marks.score)
        return children


def _log_sum_exp(x: FloatArray) -> float:
    top = float(x.max())
    return top + float(np.log(np.exp(x - top).sum()))


def _gumbel_below(maximum: float, log_p: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Gumbel-perturbed ``log_p`` of children, conditioned on their largest being ``maximum``.

    Kool et al., appendix B.3 (the numerically stable form).
    """
    noisy = log_p + rng.gumbel(size=log_p.shape)
    gap = noisy - noisy.max()  # 0 at the largest
    v = maximum - noisy + np.log1p(-np.exp(np.minimum(gap, -1e-12)))
    below = maximum - np.maximum(v, 0) - np.log1p(np.exp(-np.abs(v)))
    result: FloatArray = np.where(gap == 0, maximum, below)
    return result
