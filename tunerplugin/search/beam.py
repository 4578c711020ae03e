"""Constrained beam search: from a problem to the candidates that the predictor prefers.

At every knob only the legal values are scored, so an illegal value has no probability.  Beams are
kept diverse by sampling them *without replacement* (stochastic beam search, Kool et al., arXiv
1903.06059): hypotheses carry Gumbel-perturbed log-probabilities, the top ``width`` of which are a
sample without replacement from the predictor's distribution.  ``temperature=0`` switches the
noise off and gives the ordinary, deterministic beam search.

Dead ends and measured candidates are kept in ``Explored`` and never entered again; when a beam
dies out, the search starts anew without them, so it returns something whenever something is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import EmptySpaceError
from ..space import Knob, Prefix, Problem, Space, Value
from .explored import Explored
from .scorer import FloatArray, Scorer


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
    """An open prefix, its next knob and the values left to try there."""

    prefix: Prefix
    knob: Knob
    values: tuple[Value, ...]
    marks: _Marks


@dataclass(frozen=True)
class _Child:
    parent: int
    value: Value
    marks: _Marks


@dataclass
class SearchReport:
    """What a search met on its way: values refused by constraint, dead ends, restarts."""

    refused: Counter[str] = field(default_factory=Counter)
    dead_ends: int = 0
    restarts: int = 0


class BeamSearch:
    """Beam search over one space for one problem."""

    #: Each restart has learnt at least one new dead end; a space that still yields nothing after
    #: this many is not worth the wait.
    MAX_RESTARTS = 256

    def __init__(self, problem: Problem, space: Space, scorer: Scorer, explored: Explored) -> None:
        self._problem, self._space, self._scorer = problem, space, scorer
        self._explored = explored
        self.report = SearchReport()

    def search(
        self, width: int, rng: np.random.Generator, temperature: float = 1.0
    ) -> list[Candidate]:
        """Up to ``width`` distinct unexplored candidates, highest (perturbed) score first.

        Raises ``EmptySpaceError`` when nothing legal is left, naming the constraints that refused
        values and how many.
        """
        for _ in range(self.MAX_RESTARTS):
            if self._explored.complete:
                break
            found = self._descend(width, rng, temperature)
            if found:
                return found
            self.report.restarts += 1
        raise EmptySpaceError(self._explain())

    def _explain(self) -> str:
        if not self.report.refused:
            return "expected a candidate that was not measured yet, got none: the space is used up"
        blame = ", ".join(f"{name} refused {n} values" for name, n in self.report.refused.items())
        return (
            f"expected a legal candidate, got none ({blame}, {self.report.dead_ends} dead ends): "
            "relax the target's limits or enlarge the space"
        )

    def _descend(
        self, width: int, rng: np.random.Generator, temperature: float
    ) -> list[Candidate]:
        finished: list[tuple[float, Candidate]] = []
        root = self._open((), _Marks())
        beam = [root] if root is not None else []
        state = self._scorer.start(self._problem)
        while beam:
            children = self._expand(beam, state, rng, temperature)
            kept: list[_Child] = []
            opened: list[_Hypothesis] = []
            for child in children:
                score = child.marks.score
                better = sum(other > score for other, _ in finished)
                if better + len(kept) >= width:
                    break
                prefix = (*beam[child.parent].prefix, child.value)
                if self._space.knob(prefix) is None:
                    finished.append((score, Candidate(prefix, child.marks.log_p)))
                elif (hypothesis := self._open(prefix, child.marks)) is not None:
                    kept.append(child)
                    opened.append(hypothesis)
            if kept:
                parents = [child.parent for child in kept]
                knobs = [beam[p].knob for p in parents]
                state = self._scorer.extend(state, parents, knobs, [c.value for c in kept])
            beam = opened
        finished.sort(key=lambda entry: -entry[0])
        return [candidate for _, candidate in finished[:width]]

    def _open(self, prefix: Prefix, marks: _Marks) -> _Hypothesis | None:
        """The hypothesis at an incomplete prefix, or ``None`` if nothing is left below it."""
        knob = self._space.knob(prefix)
        assert knob is not None, "complete prefixes are finished, not opened"
        legal = self._space.legal_values(prefix, self.report.refused)
        values = tuple(v for v in legal if (*prefix, v) not in self._explored)
        if values:
            return _Hypothesis(prefix, knob, values, marks)
        if not legal:
            self.report.dead_ends += 1
        self._explored.add(prefix)
        return None

    def _expand(
        self, beam: list[_Hypothesis], state: Any, rng: np.random.Generator, temperature: float
    ) -> Iterator[_Child]:
        """Every child of the beam, best score first."""
        scored = self._scorer.score(state, [h.knob for h in beam], [h.values for h in beam])
        children: list[_Child] = []
        for parent, (hypothesis, log_p) in enumerate(zip(beam, scored, strict=True)):
            above = hypothesis.marks
            total = above.log_p + log_p
            tempered, score = total, total
            if temperature > 0:
                sharpened = log_p / temperature
                tempered = above.tempered + sharpened - _log_sum_exp(sharpened)
                score = _gumbel_below(above.score, tempered, rng)
            for row in zip(hypothesis.values, total, tempered, score, strict=True):
                marks = _Marks(*(float(x) for x in row[1:]))
                children.append(_Child(parent, row[0], marks))
        children.sort(key=lambda child: -child.marks.score)
        return iter(children)


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
