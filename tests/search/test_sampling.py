"""The noise of the beam is sampling without replacement from the scorer's distribution."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tests.search.cases import PROBLEM, PrefixScorer, log_probability, tile_space
from tunerplugin.search import BeamSearch, Explored
from tunerplugin.space import ListSpace, Prefix, UnionSpace

DRAWS = 3000
SCORER = PrefixScorer(sharpness=2.0)


def tiny() -> UnionSpace:
    """Five candidates of two lengths."""
    return UnionSpace([ListSpace(["a", "b"], [(1, 2), (1, 2)]), ListSpace(["c"], [(7,)])])


def probabilities(space: UnionSpace, temperature: float = 1.0) -> dict[Prefix, float]:
    """Of every candidate, with the temperature applied at each decision."""
    result = {}
    for values in space.enumerate():
        p = 1.0
        for n, value in enumerate(values):
            legal = space.legal_values(values[:n])
            weights = np.exp(SCORER.log_p(values[:n], legal) / temperature)
            p *= float(weights[legal.index(value)] / weights.sum())
        result[values] = p
    return result


def draw(space: UnionSpace, width: int, temperature: float = 1.0) -> Counter[tuple[Prefix, ...]]:
    """How often each sequence of ``width`` candidates was sampled."""
    rng = np.random.default_rng(11)
    search = BeamSearch(PROBLEM, space, SCORER, Explored(space))
    return Counter(
        tuple(c.values for c in search.search(width, rng, temperature)) for _ in range(DRAWS)
    )


Drawn = tuple[Prefix, ...]


def fits(counts: Counter[Drawn], expected: dict[Drawn, float]) -> bool:
    """Pearson's chi-square test at 0.1 %; what is expected fewer than five times counts as one.

    The critical value is the Wilson-Hilferty approximation (within 1 % from four degrees on).
    """
    assert set(counts) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1.0)
    cells = [(counts[k], DRAWS * p) for k, p in expected.items() if DRAWS * p >= 5]
    rest = DRAWS - sum(n for n, _ in cells), DRAWS - sum(e for _, e in cells)
    if rest[1] >= 5:
        cells.append(rest)
    degrees = len(cells) - 1
    assert degrees >= 3
    spread = 2 / (9 * degrees)
    critical = degrees * (1 - spread + 3.09 * spread**0.5) ** 3
    return bool(sum((n - e) ** 2 / e for n, e in cells) < critical)


def without_replacement(p: dict[Prefix, float], width: int) -> dict[tuple[Prefix, ...], float]:
    """Probability of each sequence: draw, take out, renormalise, draw again."""
    result = {}
    for sequence in itertools.permutations(p, width):
        left, probability = 1.0, 1.0
        for values in sequence:
            probability *= p[values] / left
            left -= p[values]
        result[sequence] = probability
    return result


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_one_sample_follows_the_model(temperature: float) -> None:
    space = tiny()
    expected: dict[Drawn, float] = {(k,): p for k, p in probabilities(space, temperature).items()}
    assert len(expected) == 5
    assert fits(draw(space, 1, temperature), expected)


@pytest.mark.parametrize("width", [2, 3])
def test_several_samples_follow_sequential_drawing(width: int) -> None:
    """As sequences: not only who is in, but in which order."""
    space = tiny()
    expected = without_replacement(probabilities(space), width)
    assert len(expected) == {2: 20, 3: 60}[width]
    assert fits(draw(space, width), expected)


def test_another_distribution_would_be_noticed() -> None:
    space = tiny()
    uniform: dict[Drawn, float] = {(k,): 0.2 for k in probabilities(space)}
    assert not fits(draw(space, 1), uniform)


def test_a_measured_candidate_leaves_the_odds_of_the_others() -> None:
    """What it held is not handed to its siblings: a wide beam draws from what is left."""
    space = tiny()
    p = probabilities(space)
    gone = max(p, key=lambda values: p[values])
    explored = Explored(space)
    explored.add(gone)
    search = BeamSearch(PROBLEM, space, SCORER, explored)
    rng = np.random.default_rng(2)
    first: Counter[Drawn] = Counter((search.search(4, rng)[0].values,) for _ in range(DRAWS))
    left: dict[Drawn, float] = {(k,): v / (1 - p[gone]) for k, v in p.items() if k != gone}
    assert fits(first, left)


def test_log_probabilities_are_the_scorers() -> None:
    space = tile_space()
    search = BeamSearch(PROBLEM, space, SCORER, Explored(space))
    for candidate in search.search(20, np.random.default_rng(0), temperature=2.0):
        expected = log_probability(SCORER, space, candidate.values)
        assert candidate.log_probability == pytest.approx(expected)
