"""Spaces, scorers with known probabilities, and brute force for the search."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from tunerplugin.outcome import Outcome, Status
from tunerplugin.predictor import Example, TrainingReport
from tunerplugin.search import UniformScorer
from tunerplugin.search.scorer import FloatArray
from tunerplugin.space import Constraint, Domain, Knob, ListSpace, Prefix, Problem, Space, Value
from tunerplugin.space.constraints import AtMost, ProductRange, Term
from tunerplugin.space.tiles import Tile

PROBLEM = Problem((("op", "matmul"), ("m", 24), ("n", 24)))
FAILED = Outcome(Status.RUN_ERROR, reason="device lost")


class PrefixScorer(UniformScorer):
    """Prefers some values, differently after every prefix; its state holds the prefixes.

    Log-probabilities are those of ``log_p``, a fixed function of the prefix: ``sharpness`` times a
    number in [0, 1) for each value, normalised over the legal ones.
    """

    def __init__(self, sharpness: float = 4.0, salt: str = "") -> None:
        self.sharpness, self.salt = sharpness, salt

    def log_p(self, prefix: Prefix, legal: Sequence[Value]) -> FloatArray:
        """Normalised over ``legal``."""
        raw = np.array([self.sharpness * self._number((*prefix, value)) for value in legal])
        result: FloatArray = raw - np.log(np.exp(raw).sum())
        return result

    def _number(self, prefix: Prefix) -> float:
        digest = hashlib.sha256(f"{self.salt}{prefix!r}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def start(self, problem: Problem) -> list[Prefix]:  # type: ignore[override]
        return [()]

    def score(  # type: ignore[override]
        self, state: list[Prefix], knobs: Sequence[Knob], legal: Sequence[tuple[Value, ...]]
    ) -> list[FloatArray]:
        assert len(state) == len(knobs) == len(legal)
        return [self.log_p(prefix, values) for prefix, values in zip(state, legal, strict=True)]

    def extend(  # type: ignore[override]
        self,
        state: list[Prefix],
        parents: Sequence[int],
        knobs: Sequence[Knob],
        values: Sequence[Value],
    ) -> list[Prefix]:
        return [(*state[p], value) for p, value in zip(parents, values, strict=True)]


class Recorder(UniformScorer):
    """Keeps what it was taught."""

    def __init__(self) -> None:
        self.lessons: list[list[Example]] = []

    def update(self, examples: Sequence[Example]) -> TrainingReport:
        self.lessons.append(list(examples))
        return super().update(examples)


def log_probability(scorer: PrefixScorer, space: Space, values: Prefix) -> float:
    """Of a complete candidate, by the chain rule."""
    total = 0.0
    for n, value in enumerate(values):
        legal = space.legal_values(values[:n])
        total += float(scorer.log_p(values[:n], legal)[legal.index(value)])
    return total


class Trap(Constraint):
    """Refuses only complete assignments whose numbers fit no rule: dead ends everywhere.

    Of the candidates that start alike, all or none are legal, but that shows only at the end.
    """

    name = "trap"

    def __init__(self, length: int, keep: int) -> None:
        self._length, self._keep = length, keep

    def allows(self, prefix: Prefix) -> bool:
        if len(prefix) < self._length:
            return True
        digest = hashlib.sha256(repr(prefix[:-1]).encode()).digest()
        return digest[0] % self._keep == 0


def trap_space(knobs: int = 4, values: int = 4, keep: int = 5) -> ListSpace:
    """All but about one in ``keep`` of the prefixes before the last knob are dead ends."""
    names = [f"k{i}" for i in range(knobs)]
    return ListSpace(names, [tuple(range(values))] * knobs, [Trap(knobs, keep)])


def tile_space() -> ListSpace:
    """Two tiles of three factors under thread and inner limits, a vector width: 0 dead ends."""
    tiles = (Tile(24, (4, 2, 0), 8), Tile(12, (5, 3, 1), 6))
    owner = {p: tile for tile in tiles for p in tile.positions}
    domains: list[Domain] = [*(owner[p].domain for p in range(6)), (1, 2, 4, 8)]
    threads = ProductRange("threads", Term(frozenset({2, 3})), 4, 12, tiles)
    return ListSpace([f"k{p}" for p in range(7)], domains, [threads, AtMost("vector", 6, 4)])


def latency_s(values: Prefix) -> float:
    """A synthetic run time, different for every candidate of numbers below 13."""
    whole = [int(v) for v in values]
    bowl = math.fsum((math.log2(max(v, 1)) - 1.0) ** 2 for v in whole)
    return 1e-3 * (1 + bowl) + 1e-13 * sum(v * 13.0**i for i, v in enumerate(whole))


def measured(values: Prefix) -> Outcome:
    """The outcome of a device that never fails."""
    return Outcome.from_samples([latency_s(values)])
