"""Tuning a kernel for a new device with what was measured on others.

    references = References(device, recordings_of_other_devices)
    space = space_of_recordings(recordings_of_other_devices, references)
    scorer = transfer_scorer(problem, space, references, predictor)
    best_first = scorer.best(10)                                # no measurement yet
    tuner = Tuner(problem, space, scorer)                       # ask, measure, tell

Spaces of Kernel Tuner are small enough to be enumerated, so every configuration is ranked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from ...errors import EmptySpaceError
from ...predictor import Example, Predictor, TrainingReport
from ...search.scorer import FloatArray
from ...space import Knob, Prefix, Problem, Space, Value
from .residual import ResidualProcess
from .space import KernelTunerSpace, References

LEAST = -4.0
"""log2 of the relative speed that failures and very slow configurations count with."""

#: weight of the predictor against the mean of the other devices, both log2 speeds.  Small: with a
#: handful of devices to learn from it goes astray on an architecture of which it saw none (found
#: with examples/benchmarks/hub.py: from 0.2 up, MI250X loses more than the others gain)
PREDICTOR_WEIGHT = 0.1
#: standard deviations that an unexplored configuration is credited with
EXPLORATION = 1.0
#: log-probability per doubling of speed, with which the beam samples
SHARPNESS = 32.0
#: how far speeds elsewhere count for the likeness of two configurations, against parameters
_SPEED_SCALE = 0.25


class EnumeratedScorer:
    """Scores the candidates of a space whole; a prefix is worth what lies below it.

    Implements ``LearningScorer``.  ``candidates`` are all of the space, in its order of
    enumeration; ``process`` holds what is believed of them.
    """

    def __init__(
        self,
        candidates: Sequence[tuple[Value, ...]],
        process: ResidualProcess,
        exploration: float = EXPLORATION,
    ) -> None:
        self.candidates = tuple(candidates)
        self._process, self._exploration = process, exploration
        self._index = {values: i for i, values in enumerate(self.candidates)}
        self._ranges = _ranges(self.candidates)
        self._measured: set[int] = set()
        self._refresh()

    def copy(self) -> EnumeratedScorer:
        """An independent scorer in the same state."""
        twin = copy.copy(self)
        twin._process, twin._measured = self._process.copy(), set(self._measured)
        return twin

    def best(self, count: int) -> list[tuple[Value, ...]]:
        """The candidates that are believed to be the fastest, best first."""
        order = np.argsort(-self._process.mean(), kind="stable")[:count]
        return [self.candidates[i] for i in order]

    def start(self, problem: Problem) -> list[Prefix]:
        """See ``Scorer``: the state holds the prefixes."""
        return [()]

    def score(
        self, state: list[Prefix], knobs: Sequence[Knob], legal: Sequence[tuple[Value, ...]]
    ) -> list[FloatArray]:
        """See ``Scorer``."""
        scored = []
        for prefix, values in zip(state, legal, strict=True):
            # what look-ahead has not refused may still be a dead end, with nothing below it
            ends = np.array([self._ranges.get((*prefix, value), (0, 0)) for value in values])
            mass = np.maximum(self._mass[ends[:, 1]] - self._mass[ends[:, 0]], 1e-300)
            scored.append(np.log(mass / mass.sum()))
        return scored

    def extend(
        self,
        state: list[Prefix],
        parents: Sequence[int],
        knobs: Sequence[Knob],
        values: Sequence[Value],
    ) -> list[Prefix]:
        """See ``Scorer``."""
        return [(*state[p], value) for p, value in zip(parents, values, strict=True)]

    def rank(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """See ``Scorer``."""
        ranked: FloatArray = self._scores[[self._index[values] for values in candidates]]
        return ranked

    def update(self, examples: Sequence[Example]) -> TrainingReport:
        """See ``LearningScorer``: the process observes, the predictor behind it stays."""
        for example in examples:
            place = self._index[example.values]
            speed = np.log2(example.quality) if example.quality else LEAST
            self._process.observe(place, max(LEAST, float(speed)))
            self._measured.add(place)
        self._refresh()
        return TrainingReport(0, 0.0, 0.0, 0)

    def _refresh(self) -> None:
        self._scores = self._process.optimism(self._exploration)
        left = self._scores.copy()
        left[list(self._measured)] = -np.inf
        weights = np.exp2(SHARPNESS * (left - left.max(initial=LEAST)))
        self._mass = np.concatenate([[0.0], np.cumsum(weights)])


def transfer_scorer(
    problem: Problem,
    space: KernelTunerSpace,
    references: References,
    predictor: Predictor | None = None,
    exploration: float = EXPLORATION,
) -> EnumeratedScorer:
    """A scorer for a device with the speeds on others, and a predictor trained on them, as prior.

    Raises ``EmptySpaceError`` for a space without a legal configuration.
    """
    candidates = list(space.enumerate())
    if not candidates:
        raise EmptySpaceError("expected a legal configuration, got none: check the conditions")
    prior = speeds_elsewhere(references, candidates)
    if predictor is not None:
        learnt = predictor.rank(problem, space, candidates)
        learnt = learnt - np.median(learnt - prior)
        prior = (1 - PREDICTOR_WEIGHT) * prior + PREDICTOR_WEIGHT * learnt
    process = ResidualProcess(prior, _features(space, references, candidates))
    return EnumeratedScorer(candidates, process, exploration)


def speeds_elsewhere(references: References, candidates: Sequence[tuple[Value, ...]]) -> FloatArray:
    """log2 of the weighted mean quality on other devices, at least ``LEAST``.

    Candidates that none recorded get the median of the others.
    """
    speeds = [references.speed(values) for values in candidates]
    known = [_log2(speed) for speed in speeds if speed is not None]
    middle = float(np.median(known)) if known else LEAST
    return np.array([middle if speed is None else _log2(speed) for speed in speeds])


def _log2(speed: float) -> float:
    return max(LEAST, float(np.log2(speed))) if speed > 0 else LEAST


def _features(
    space: KernelTunerSpace, references: References, candidates: Sequence[tuple[Value, ...]]
) -> FloatArray:
    """The place of each value in its parameter's list, in [0, 1], and the speeds elsewhere."""
    columns = []
    for position in range(len(space.names)):
        knob = space.knob(candidates[0][:position])
        places = {value: i for i, value in enumerate(knob.domain)} if knob else {}
        if len(places) > 1:
            column = [places[values[position]] / (len(places) - 1) for values in candidates]
            columns.append(np.array(column))
    elsewhere = speeds_elsewhere(references, candidates)
    for _, recording in references.weighted:
        speeds = [
            _log2(recording.quality(values)) if values in recording.outcomes else mean
            for values, mean in zip(candidates, elsewhere.tolist(), strict=True)
        ]
        columns.append(_SPEED_SCALE * np.array(speeds))
    return np.column_stack(columns) if columns else np.zeros((len(candidates), 1))


def _ranges(candidates: Sequence[tuple[Value, ...]]) -> dict[Prefix, tuple[int, int]]:
    """The first candidate and the one after the last below each prefix."""
    ranges: dict[Prefix, tuple[int, int]] = {}
    for place, values in enumerate(candidates):
        for length in range(len(values) + 1):
            start, _ = ranges.get(values[:length], (place, place))
            ranges[values[:length]] = (start, place + 1)
    return ranges
