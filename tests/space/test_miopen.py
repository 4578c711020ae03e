"""Another tuner's rules as constraints: the beam finds exactly what enumeration leaves."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from tests.space.miopen import RANGES, Conv, space, valid
from tunerplugin.search import BeamSearch, Explored, UniformScorer
from tunerplugin.space import Prefix, Problem, Space
from tunerplugin.testing import SpaceConformance

PROBLEM = Problem((("op", "conv1x1"),))
FORWARD = {"c": 60, "k": 240, "pixels": 14 * 14, "n": 128, "backward": False}
# 30 channels in portions of four: whichever way the waves share them, a dead end
BACKWARD = {"c": 30, "k": 80, "pixels": 7 * 7, "n": 4, "backward": True}
CASES = [
    Conv(**shape, packed=packed)  # type: ignore[arg-type]
    for shape in (FORWARD, BACKWARD)
    for packed in (1, 2)
]


@cache
def legal_tuples(conv: Conv) -> frozenset[Prefix]:
    """Brute force."""
    tuples = list(itertools.product(*RANGES))
    assert len(tuples) == 41_472
    return frozenset(values for values in tuples if valid(conv, values))


@pytest.mark.parametrize("conv", CASES, ids=str)
def test_enumeration_is_the_filtered_product(conv: Conv) -> None:
    assert 0 < len(legal_tuples(conv)) < 41_472 / 4
    assert list(space(conv).enumerate()) == sorted(legal_tuples(conv))


@pytest.mark.parametrize("conv", CASES, ids=str)
def test_beam_search_finds_the_legal_set(conv: Conv) -> None:
    legal, solver = legal_tuples(conv), space(conv)
    beam = BeamSearch(PROBLEM, solver, UniformScorer(), Explored(solver))
    found = [c.values for c in beam.search(len(legal), np.random.default_rng(0))]
    assert len(found) == len(legal)
    assert set(found) == legal


def test_a_narrow_beam_backs_out_of_dead_ends() -> None:
    conv = CASES[2]
    solver = space(conv)
    dead = [
        prefix
        for prefix in itertools.product(*RANGES[:6])
        if solver.allows(prefix) and prefix[5] == 4 and not solver.legal_values(prefix)
    ]
    assert dead, "expected prefixes that MIOpen's greedy mask cannot complete"
    explored = Explored(solver)
    beam = BeamSearch(PROBLEM, solver, UniformScorer(), explored)
    rng = np.random.default_rng(1)
    for _ in range(50):
        (candidate,) = beam.search(1, rng)
        assert candidate.values in legal_tuples(conv)
        assert candidate.values not in explored
        explored.add(candidate.values)
    assert beam.report.dead_ends > 0


class TestSmallSolver(SpaceConformance):
    """The same rules over fewer values keep the contract of a space."""

    conv = CASES[3]

    def make_space(self) -> Space:
        few = ((1, 2), (8, 32), (2, 3, 8), (16, 64), (1, 4), (1, 2, 4), (1, 4), (1, 8))
        return space(self.conv, few)

    def is_legal(self, values: Prefix) -> bool:
        return valid(self.conv, values)
