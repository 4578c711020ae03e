"""It learns: offline across problems, online from a few dozen measurements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tests.predictor.cases import (
    MATMUL,
    decode,
    divisors,
    draw,
    examples_of,
    matmul_cost,
    matmul_space,
    sample_distinct,
    spearman,
    tile_case,
)
from tunerplugin.predictor import Example, Predictor, TrainingConfig
from tunerplugin.predictor.batching import FAILED, relative_speed
from tunerplugin.space import Knob, ListSpace, Problem, Step


def tile_problems(count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Distinct (extent, limit) with at least four divisors."""
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        powers = [int(rng.integers(n)) for n in (7, 3, 2, 2)]
        extent = 2 ** powers[0] * 3 ** powers[1] * 5 ** powers[2] * 7 ** powers[3]
        if len(divisors(extent)) >= 4:
            found[extent, int(rng.integers(4, 200))] = None
    return list(found)


def test_offline_it_learns_the_tile_as_a_function_of_the_problem() -> None:
    """Largest divisor within the limit, on held-out problems, against the best constant rule."""
    problems = tile_problems(700, np.random.default_rng(0))
    train, held_out = problems[:550], problems[550:]
    cases = [tile_case(*p) for p in train]
    predictor = Predictor(seed=0)
    predictor.fit([Example(p, s.steps(v), (), 1.0) for p, s, v in cases], epochs=24)
    places = Counter(
        divisors(n).index(v[0]) - len(divisors(n))
        for (n, _), (_, _, v) in zip(train, cases, strict=True)
    )
    usual = places.most_common(1)[0][0]
    hits, baseline = [], []
    for extent, limit in held_out:
        problem, space, best = tile_case(extent, limit)
        steps = space.steps(best)
        found = [
            step.legal[int(scores.argmax())] == step.value
            for step, scores in zip(steps, decode(predictor, problem, space, best), strict=True)
        ]
        hits.append(found)
        baseline.append(steps[0].legal[max(usual, -len(steps[0].legal))] == best[0])
    tile, vector = np.mean(hits, axis=0)
    assert tile > np.mean(baseline) + 0.25
    assert tile > 0.7
    assert vector > 0.9


@pytest.mark.parametrize("chunks", [1, 4])
def test_online_64_measurements_rank_unseen_candidates(chunks: int) -> None:
    space, rng = matmul_space(), np.random.default_rng(1)
    candidates = sample_distinct(space, 264, rng)
    costs = np.array([matmul_cost(v) for v in candidates])
    examples = examples_of(MATMUL, space, candidates[:64], costs[:64].tolist())
    predictor = Predictor(seed=1)
    for part in np.array_split(np.arange(64), chunks):
        predictor.update([examples[i] for i in part])
    ranks = predictor.rank(MATMUL, space, candidates[64:])
    assert spearman(ranks, -costs[64:]) > 0.6
    assert (predictor.uncertainty(MATMUL, space, candidates[64:]) > 0).all()
    drawn = [matmul_cost(v) for v in draw(predictor, MATMUL, space, 64, rng)]
    assert np.median(drawn) < np.quantile(costs, 0.2)  # a random draw's median is the 0.5 quantile


def test_very_slow_candidates_still_teach_an_order() -> None:
    """Twenty knobs, each up to four times slower: most of what is measured is below 1/256."""
    space = ListSpace(
        [f"k{i}" for i in range(20)],
        [(1, 2, 4, 8, 16)] * 20,
        words=[(("kind", "tile"), ("index", i)) for i in range(20)],
    )
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.2, 0.5, 20)
    candidates = sample_distinct(space, 256, rng)
    costs = 12 + np.log2(np.array(candidates, dtype=float)) @ weights
    costs[0] = 0.0  # one lucky candidate
    predictor = Predictor(seed=0)
    examples = examples_of(MATMUL, space, candidates[:96], costs[:96].tolist())
    predictor.update(examples[:48])
    predictor.update(examples[48:])
    ranks = predictor.rank(MATMUL, space, candidates[96:])
    assert spearman(ranks, -costs[96:]) > 0.6


def test_failures_rank_below_successes() -> None:
    """Everything with a vector of 16 fails; what fails would be fast if it ran."""
    space, rng = matmul_space(), np.random.default_rng(4)
    candidates = sample_distinct(space, 300, rng)
    costs = [matmul_cost(v) - 3 * (v[5] == 16) for v in candidates]
    outcomes = [None if v[5] == 16 else c for v, c in zip(candidates, costs, strict=True)]
    predictor = Predictor(seed=0)
    predictor.update(examples_of(MATMUL, space, candidates[:80], outcomes[:80]))
    ranks = predictor.rank(MATMUL, space, candidates[80:])
    failed = np.array([outcome is None for outcome in outcomes[80:]])
    wins = np.mean(ranks[~failed][:, None] > ranks[failed][None, :])
    assert wins > 0.85  # 0.5 is chance
    drawn = draw(predictor, MATMUL, space, 64, rng)
    assert np.mean([v[5] == 16 for v in drawn]) < 0.1  # a random draw: 0.2


def test_all_failures_and_single_examples_do_no_harm() -> None:
    space = matmul_space()
    candidates = sample_distinct(space, 5, np.random.default_rng(0))
    predictor = Predictor()
    predictor.update([Example(MATMUL, space.steps(candidates[0]), (), None)])
    predictor.update([Example(MATMUL, space.steps(v), (), None) for v in candidates[1:4]])
    predictor.update([Example(MATMUL, space.steps(candidates[4]), (), 1.0)])
    ranks = predictor.rank(MATMUL, space, candidates)
    assert np.isfinite(ranks).all() and ranks.argmax() == 4


def test_several_good_answers_are_all_right() -> None:
    problem = Problem((("op", "p"),))
    knob = Knob("k", (("kind", "tile"),), (1, 2, 4, 8))
    good = [Example(problem, (Step(knob, v, knob.domain),), (), 1.0) for v in (2, 8)]
    poor = [Example(problem, (Step(knob, v, knob.domain),), (), 0.1) for v in (1, 4)]
    predictor = Predictor()
    for _ in range(4):
        predictor.update([*good, *poor])
    chances = np.exp(predictor.score(predictor.start(problem), [knob], [knob.domain])[0])
    assert chances[1] > 0.3 and chances[3] > 0.3


def test_value_head_transfers_to_a_problem_never_measured() -> None:
    """Offline on other matmuls, rank one of another size without a measurement."""
    rng = np.random.default_rng(0)
    examples: list[Example] = []
    sizes = [(a, b, c) for a in (128, 384, 1024) for b in (256, 640) for c in (64, 512)]

    def problem_of(m: int, n: int, k: int) -> Problem:
        return Problem((("op", "matmul"), ("m", m), ("n", n), ("k", k), ("dtype", "float32")))

    for size in sizes:
        space = matmul_space(*size)
        candidates = sample_distinct(space, 24, rng)
        known = [matmul_cost(v) for v in candidates]
        examples += examples_of(problem_of(*size), space, candidates, known)
    predictor = Predictor(seed=0)
    predictor.fit(examples, epochs=12)
    space, target = matmul_space(512, 768, 256), problem_of(512, 768, 256)
    candidates = sample_distinct(space, 150, rng)
    costs = np.array([matmul_cost(v) for v in candidates])
    unseen = candidates[8:]
    assert spearman(predictor.rank(target, space, unseen), -costs[8:]) > 0.7
    # eight measurements of one problem must not undo what was learnt, nor can they replace it
    first = examples_of(target, space, candidates[:8], costs[:8].tolist())
    predictor.update(first)
    after = spearman(predictor.rank(target, space, unseen), -costs[8:])
    untrained = Predictor(seed=0)
    untrained.update(first)
    alone = spearman(untrained.rank(target, space, unseen), -costs[8:])
    assert after > max(0.7, alone + 0.1)


def test_description_reaches_the_value_head() -> None:
    """The cost is visible only in the words that describe the candidate."""

    class Described(ListSpace):
        def describe(self, values: tuple[object, ...]) -> tuple[tuple[str, int], ...]:
            return (("work", (int(str(values[0])) * 37) % 101),)

    space = Described(["a"], [tuple(range(101))])
    costs = np.array([space.describe((v,))[0][1] / 25 for v in range(101)])
    order = np.random.default_rng(0).permutation(101)
    train, test = order[:70], order[70:]
    predictor = Predictor(seed=0)
    examples = examples_of(MATMUL, space, [(int(v),) for v in train], costs[train].tolist())
    for _ in range(3):
        predictor.update(examples)
    ranks = predictor.rank(MATMUL, space, [(int(v),) for v in test])
    assert spearman(ranks, -costs[test]) > 0.8


def test_a_measurement_sent_again_replaces_the_old_one() -> None:
    problem, knob = Problem((("op", "p"),)), Knob("k", (("kind", "x"),), (1, 2))
    predictor = Predictor()
    steps = [(Step(knob, v, knob.domain),) for v in (1, 2)]
    predictor.update([Example(problem, steps[0], (), 1.0)])
    predictor.update([Example(problem, steps[0], (), 0.25), Example(problem, steps[1], (), 1.0)])
    items = predictor._trainer.corpus.items
    assert [item.quality for item in items] == [0.25, 1.0]


def test_numpy_numbers_are_as_good_as_plain_ones() -> None:
    knob = Knob("k", (("kind", "x"),), (1, 2))
    ranks = []
    numbers: list[tuple[Any, Any, Any]] = [
        (1, 2, 0.25),
        (np.int64(1), np.int64(2), np.float64(0.25)),
    ]
    for one, two, quality in numbers:
        predictor, problem = Predictor(), Problem((("op", "p"),))
        first = Example(problem, (Step(knob, one, (one, two)),), (), 1.0)
        predictor.update([first, Example(problem, (Step(knob, two, (one, two)),), (), quality)])
        ranks.append(predictor.rank(problem, ListSpace(["k"], [(1, 2)]), [(1,), (2,)]))
    assert np.array_equal(ranks[0], ranks[1]) and ranks[0][0] > ranks[0][1]


def test_targets_order_failures_last() -> None:
    quality = torch.tensor([1.0, 0.5, 0.01, 1e-6, 1e-30, 0.0])
    targets = relative_speed(quality, torch.tensor([True] * 5 + [False])).tolist()
    assert targets[:2] == [0.0, -1.0] and targets[-1] == FAILED
    assert targets == sorted(targets, reverse=True) and len(set(targets)) == 6


def test_examples_and_fit_refuse_nonsense() -> None:
    knob = Knob("tile", (), (1, 2))
    for quality in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"expected a quality in \(0, 1\]"):
            Example(MATMUL, (), (), quality)
    with pytest.raises(ValueError, match="expected the value of tile among"):
        Example(MATMUL, (Step(knob, 3, (1, 2)),), (), 1.0)
    with pytest.raises(ValueError, match="at least one example"):
        Predictor(training=TrainingConfig()).fit([], epochs=1)
