"""The tuner with the real predictor against uniform random search on a cost that is known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from tunerplugin.outcome import Outcome
from tunerplugin.predictor import Predictor
from tunerplugin.search import Candidate, LearningScorer, Tuner, TunerOptions, UniformScorer, run
from tunerplugin.space import ListSpace, Prefix, Problem
from tunerplugin.space.constraints import ProductRange, Term
from tunerplugin.space.tiles import Tile

PROBLEM = Problem((("op", "matmul"), ("m", 256), ("n", 256), ("dtype", "float32")))
BEST = (4, 8, 2, 4, 16, 1, 4, 4)
TRIALS = 48


def matmul_space() -> ListSpace:
    """Two axes of 256 in four factors each, 8 knobs; the third level is bound to threads."""
    tiles = [Tile(256, (3, 2, 1, 0)), Tile(256, (7, 6, 5, 4))]
    words = [
        (("kind", "tile"), ("axis", axis), ("level", level), ("extent", 256))
        for axis in ("m", "n")
        for level in (3, 2, 1, 0)
    ]
    threads = ProductRange("threads", Term(frozenset({1, 5})), 1, 64, tiles)
    domains = [tile.domain for tile in tiles for _ in range(4)]
    return ListSpace([f"k{i}" for i in range(8)], domains, [threads], words)


def latency_s(values: Prefix) -> float:
    """Smooth in the logarithm of each factor, with one optimum that lies in the space."""
    distance = sum(
        (math.log2(int(v)) - math.log2(b)) ** 2 for v, b in zip(values, BEST, strict=True)
    )
    return 1e-3 * 2 ** (0.1 * distance)


def measure(candidates: Sequence[Candidate]) -> dict[Prefix, Outcome]:
    return {c.values: Outcome.from_samples([latency_s(c.values)]) for c in candidates}


def tuned(make: Callable[[int], LearningScorer], seed: int) -> Tuner:
    scorer = make(seed)
    # without a ranking a larger pool draws from the same distribution and costs more
    options = TunerOptions(pool=1) if isinstance(scorer, UniformScorer) else None
    tuner = Tuner(PROBLEM, matmul_space(), scorer, seed=seed, options=options)
    run(tuner, measure, TRIALS)
    return tuner


def log2_regret(tuner: Tuner) -> float:
    """How much slower than the optimum, as a power of two."""
    best = tuner.history.best
    assert best is not None and best[1].latency_s is not None
    return math.log2(best[1].latency_s / latency_s(BEST))


def test_the_optimum_is_in_the_space() -> None:
    assert matmul_space().contains(BEST)
    assert latency_s(BEST) == 1e-3


def test_a_learning_tuner_beats_random_search_and_is_deterministic() -> None:
    random = [log2_regret(tuned(lambda seed: UniformScorer(), seed)) for seed in range(20)]
    tuners = [tuned(Predictor, seed) for seed in range(4)]
    learnt = [log2_regret(tuner) for tuner in tuners]
    assert statistics.mean(learnt) < 0.6 * statistics.mean(random), (learnt, random)
    again = tuned(Predictor, 0)
    assert list(again.history.outcomes.items()) == list(tuners[0].history.outcomes.items())
