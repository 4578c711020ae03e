"""The predictor as a Scorer: constrained, incremental, unbiased untrained, safe when broken."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from tests.predictor.cases import (
    MATMUL,
    decode,
    draw,
    examples_of,
    knob_at,
    matmul_cost,
    matmul_space,
    sample,
    sample_distinct,
)
from tunerplugin.errors import SpaceError
from tunerplugin.predictor import Example, Predictor
from tunerplugin.predictor.batching import Corpus, collate
from tunerplugin.search.scorer import Scorer
from tunerplugin.space import Knob, ListSpace, Prefix, Problem, Step, UnionSpace


@pytest.fixture(scope="module")
def trained() -> Predictor:
    """A predictor whose weights are far from their start."""
    predictor, space = Predictor(seed=3), matmul_space()
    candidates = sample_distinct(space, 48, np.random.default_rng(0))
    costs = [matmul_cost(v) if v[5] != 16 else None for v in candidates]
    predictor.update(examples_of(MATMUL, space, candidates, costs))
    return predictor


def test_it_is_a_scorer() -> None:
    scorer: Scorer = Predictor()
    assert callable(scorer.rank)


def test_untrained_scores_are_uniform_and_ranks_zero() -> None:
    predictor, space = Predictor(seed=1), matmul_space()
    candidate = sample(space, np.random.default_rng(0))
    for step, scores in zip(
        space.steps(candidate), decode(predictor, MATMUL, space, candidate), strict=True
    ):
        assert scores == pytest.approx(np.full(len(step.legal), -math.log(len(step.legal))))
    assert not predictor.rank(MATMUL, space, [candidate] * 3).any()
    assert not predictor.uncertainty(MATMUL, space, [candidate]).any()
    assert predictor.rank(MATMUL, space, []).shape == (0,)


def test_probabilities_sum_to_one_over_the_legal_values(trained: Predictor) -> None:
    """Also with values and knobs that were never seen, one legal value, and very many."""
    state = trained.start(Problem((("op", "never seen"), ("x", 1e-9), ("y", -(10**25)))))
    knob = Knob("k", (("new", "word"),), tuple(range(500)))
    state = trained.extend(state, [0, 0, 0], [knob] * 3, [3, "text", 0.25])
    legal = [(7,), tuple(range(500)), ("a", "b", -1, 2.5, 10**20)]
    scores = trained.score(state, [knob] * 3, legal)
    assert [len(s) for s in scores] == [1, 500, 5]
    assert [float(np.exp(s).sum()) for s in scores] == pytest.approx([1.0] * 3, abs=1e-12)
    assert scores[0][0] == 0.0


def test_a_trained_predictor_is_not_uniform(trained: Predictor) -> None:
    knob = knob_at(matmul_space(), ())
    scores = trained.score(trained.start(MATMUL), [knob], [knob.domain])[0]
    assert np.ptp(scores) > 0.1


def test_incremental_decoding_equals_the_whole_pass(trained: Predictor) -> None:
    """One batch of hypotheses with reordered parents against the training-time forward pass."""
    space = matmul_space()
    rng = np.random.default_rng(5)
    finals = draw(trained, MATMUL, space, 6, rng)
    corpus = Corpus(trained.model.config.buckets)
    corpus.add(Example(MATMUL, space.steps(v), (), 1.0) for v in finals)
    corpus.add([Example(MATMUL, space.steps(sample(space, rng))[:5], (), 1.0)])  # a shorter one
    with torch.no_grad():
        whole, _ = trained.model(collate(corpus.table, corpus.problems, corpus.items))
    for row, values in zip(whole, dict.fromkeys(finals), strict=False):
        for at, scores in zip(row, decode(trained, MATMUL, space, values), strict=True):
            assert at[: len(scores)].numpy() == pytest.approx(scores, abs=1e-5)


def test_extend_follows_its_parents(trained: Predictor) -> None:
    """Shuffled, repeated and dropped hypotheses score as each would alone."""
    space, rng = matmul_space(), np.random.default_rng(2)
    prefixes = [sample(space, rng)[:4] for _ in range(5)]
    alone = [decode(trained, MATMUL, space, p)[3] for p in prefixes]
    state, order = trained.start(MATMUL), [0] * 5
    for length in range(3):
        knobs = [knob_at(space, p[:length]) for p in prefixes]
        if length:  # a new order at every step
            order = [4, 2, 0, 1, 3]
            prefixes, alone = [prefixes[i] for i in order], [alone[i] for i in order]
        knobs = [knob_at(space, p[:length]) for p in prefixes]
        values = [p[length] for p in prefixes]
        state = trained.extend(state, order, knobs, values)
    kept = [1, 1, 3]
    # the state after three values, narrowed by scoring only what is kept
    knobs = [knob_at(space, p[:3]) for p in prefixes]
    scores = trained.score(state, knobs, [space.legal_values(p[:3]) for p in prefixes])
    for i in range(5):
        assert scores[i] == pytest.approx(alone[i], abs=1e-5)
    after = trained.extend(state, kept, [knobs[i] for i in kept], [prefixes[i][3] for i in kept])
    following = [knob_at(space, prefixes[i]) for i in kept]
    again = trained.score(after, following, [space.legal_values(prefixes[i]) for i in kept])
    assert again[0] == pytest.approx(again[1], abs=1e-6)
    assert np.abs(again[0] - again[2]).max() > 1e-4


def test_extend_with_another_knob_than_was_scored(trained: Predictor) -> None:
    space = matmul_space()
    knob, other = knob_at(space, ()), Knob("o", (("other", 5),), (1, 2))
    follow = knob_at(space, (1,))
    state = trained.start(MATMUL)
    trained.score(state, [other], [(1, 2)])
    wrong_first = trained.extend(state, [0], [knob], [1])
    direct = trained.extend(trained.start(MATMUL), [0], [knob], [1])
    legal = [follow.domain]
    assert trained.score(wrong_first, [follow], legal)[0] == pytest.approx(
        trained.score(direct, [follow], legal)[0], abs=1e-6
    )


def test_quality_that_is_asked_for_changes_the_answer(trained: Predictor) -> None:
    """The untiled "none" schedules cost four times as much: asking for poor ones finds them."""
    space = matmul_space()
    prefix: Prefix = (8, 8, 8, 32, 16, 8, 64)
    state = trained.start(MATMUL)
    for length, value in enumerate(prefix):
        state = trained.extend(state, [0], [knob_at(space, prefix[:length])], [value])
    knob = knob_at(space, prefix)
    fast = trained.score(state, [knob], [knob.domain], quality=1.0)[0]
    slow = trained.score(state, [knob], [knob.domain], quality=0.05)[0]
    none = knob.domain.index("none")
    assert slow[none] > fast[none] + 0.5


def test_empty_problems_spaces_and_batches(trained: Predictor) -> None:
    nothing = ListSpace([], [])
    assert trained.rank(Problem(()), nothing, [()]).shape == (1,)
    assert trained.score(trained.start(MATMUL), [], []) == []
    knob = Knob("k", (), (1, 2))
    scores = trained.score(trained.start(Problem(())), [knob], [(1, 2)])
    assert np.isfinite(scores[0]).all()
    fresh = Predictor()
    fresh.update([Example(Problem(()), (), (), 1.0), Example(Problem(()), (), (), None)])
    assert np.isfinite(fresh.rank(Problem(()), nothing, [()])).all()


def test_sketches_of_different_length_rank_together(trained: Predictor) -> None:
    space = UnionSpace([matmul_space(), ListSpace(["a"], [(1, 2)])])
    candidates = [(0, *sample(matmul_space(), np.random.default_rng(0))), (1, 2), (1, 1)]
    together = trained.rank(MATMUL, space, candidates)
    alone = [trained.rank(MATMUL, space, [c])[0] for c in candidates]
    assert together == pytest.approx(alone, abs=1e-5)


def test_candidates_that_are_too_long_are_refused(trained: Predictor) -> None:
    with pytest.raises(SpaceError, match="expected a candidate of 1 values"):
        trained.rank(MATMUL, ListSpace(["a"], [(1, 2)]), [(1, 2)])


@pytest.mark.parametrize("name", ["knob.weight", "query_out.bias", "value_heads.last"])
def test_diverged_weights_fall_back_with_one_warning(name: str) -> None:
    predictor, space = Predictor(), matmul_space()
    dict(predictor.model.named_parameters())[name].data.fill_(math.nan)
    candidate = sample(space, np.random.default_rng(0))
    knob = knob_at(space, ())
    with pytest.warns(RuntimeWarning, match="weights have diverged") as seen:
        scores = predictor.score(predictor.start(MATMUL), [knob], [knob.domain])[0]
        ranks = predictor.rank(MATMUL, space, [candidate, candidate])
        predictor.score(predictor.start(MATMUL), [knob], [knob.domain])
    assert len(seen) == 1
    assert scores == pytest.approx(np.full(len(knob.domain), -math.log(len(knob.domain))))
    assert ranks.tolist() == [0.0, 0.0]


def test_training_skips_steps_without_a_finite_gradient() -> None:
    predictor, space = Predictor(), matmul_space()
    predictor.model.knob.weight.data.fill_(math.nan)
    before = predictor.model.value_heads.first.detach().clone()
    candidates = sample_distinct(space, 8, np.random.default_rng(0))
    costs = [matmul_cost(v) for v in candidates]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = predictor.update(examples_of(MATMUL, space, candidates, costs))
    assert report.skipped == report.steps > 0
    assert torch.equal(before, predictor.model.value_heads.first)


def test_states_from_before_an_update_are_refused() -> None:
    predictor, space = Predictor(), matmul_space()
    state, knob = predictor.start(MATMUL), knob_at(space, ())
    predictor.update([Example(MATMUL, (Step(knob, 1, (1, 2)),), (), 1.0)])
    with pytest.raises(ValueError, match="call start again"):
        predictor.score(state, [knob], [knob.domain])


def test_threads_and_global_random_state_are_left_alone() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    predictor, space = Predictor(seed=5), matmul_space()
    candidates = sample_distinct(space, 8, np.random.default_rng(0))
    costs = [matmul_cost(v) for v in candidates]
    predictor.update(examples_of(MATMUL, space, candidates, costs))
    predictor.rank(MATMUL, space, candidates)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
