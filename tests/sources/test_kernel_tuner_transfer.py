"""Tuning with other devices' recordings: the prior, the residual process, scorer and replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.hub_cases import DOMAINS, HUB, NAMES, needs_hub, recorded
from tunerplugin.errors import EmptySpaceError
from tunerplugin.outcome import Status
from tunerplugin.predictor import Predictor
from tunerplugin.search import Tuner, TunerOptions, UniformScorer, replay
from tunerplugin.sources.kernel_tuner import (
    Condition,
    EnumeratedScorer,
    KernelTunerSpace,
    Recorded,
    Recording,
    References,
    examples_of,
    group_by_kernel,
    parse_expression,
    problem_of,
    read_cache,
    space_of_recordings,
    transfer_scorer,
)
from tunerplugin.sources.kernel_tuner.residual import ResidualProcess
from tunerplugin.sources.kernel_tuner.transfer import LEAST, SHARPNESS, speeds_elsewhere
from tunerplugin.space import Problem, Value


@pytest.fixture
def target(tmp_path: Path) -> Recording:
    """The device to tune for: its optimum is elsewhere."""
    return recorded(tmp_path, "NVIDIA RTX A4000", bias=1)


@pytest.fixture
def other(tmp_path: Path) -> Recording:
    return recorded(tmp_path, "NVIDIA RTX A6000")


def parts(
    target: Recording, others: list[Recording]
) -> tuple[Problem, KernelTunerSpace, References]:
    references = References(target.device, others)
    space = space_of_recordings([target], references)
    return problem_of(target.kernel, target.device, space.names), space, references


def test_replay_is_a_look_up(target: Recording) -> None:
    """Every outcome told is the recorded one; the curve is the best of them so far."""
    problem, space, _ = parts(target, [])
    tuner = Tuner(problem, space, UniformScorer(), seed=3)
    curve = replay(tuner, target.outcomes, trials=12, batch=5)
    assert len(curve) == 12
    best: float | None = None
    for found, (values, outcome) in zip(curve, tuner.history.outcomes.items(), strict=True):
        assert outcome == target.outcomes[values]
        if outcome.latency_s is not None:
            best = min(outcome.latency_s, best or outcome.latency_s)
        assert found == best


def test_a_replay_to_the_end_finds_the_optimum_and_every_failure(target: Recording) -> None:
    problem, space, references = parts(target, [])
    tuner = Tuner(problem, space, transfer_scorer(problem, space, references), seed=0)
    curve = replay(tuner, target.outcomes, trials=100, batch=4)
    assert len(curve) == len(target.outcomes)
    assert curve[-1] == target.best_s
    assert tuner.history.outcomes == target.outcomes
    kinds = [outcome.status for outcome in tuner.history.outcomes.values()]
    assert (kinds.count(Status.RUN_ERROR), kinds.count(Status.COMPILE_ERROR)) == (1, 1)


def test_speeds_elsewhere(target: Recording, other: Recording) -> None:
    _, _, references = parts(target, [other])
    found = speeds_elsewhere(references, [(32, 2, 0), (16, 2, 0), (64, 3, 0), (1, 1, 1)])
    assert found[:3] == pytest.approx([0.0, -1.0, LEAST])  # best, half as fast, failed
    assert found[3] == pytest.approx(-1.0)  # not recorded: the middle
    assert list(speeds_elsewhere(References("A100", []), [(32, 2, 0)])) == [LEAST]


def test_without_trials_the_order_is_that_of_the_other_device(
    target: Recording, other: Recording
) -> None:
    problem, space, references = parts(target, [other])
    found = transfer_scorer(problem, space, references).best(15)
    assert sorted(found) == sorted(target.outcomes)
    qualities = [other.quality(values) for values in found]
    assert qualities == sorted(qualities, reverse=True)


def test_trials_correct_the_other_device(target: Recording, other: Recording) -> None:
    """The optimum moved; a few trials tell, although the first are what the other one prefers."""
    problem, space, references = parts(target, [other])
    options = TunerOptions(pool=16, explore=0.0)
    scorer = transfer_scorer(problem, space, references)
    tuner = Tuner(problem, space, scorer, seed=0, options=options)
    curve = replay(tuner, target.outcomes, trials=8, batch=1)
    assert next(iter(tuner.history.outcomes)) == (32, 2, 0)
    assert curve[-1] == target.best_s
    assert target.quality((32, 2, 0)) < 1


def test_scorer_gives_prefixes_the_mass_below_them() -> None:
    """Against direct sums over the candidates."""
    space = KernelTunerSpace(NAMES, DOMAINS, [Recorded([(16, 1, 0), (16, 2, 1), (64, 2, 0)])])
    candidates = list(space.enumerate())
    prior = np.array([0.0, -0.02, -0.05])
    scorer = EnumeratedScorer(candidates, ResidualProcess(prior, np.eye(3)), exploration=0.0)
    weights = np.exp2(SHARPNESS * prior)
    state = scorer.start(Problem((("op", "x"),)))
    knob = space.knob(())
    assert knob is not None
    (first,) = scorer.score(state, [knob], [(16, 64)])
    assert np.exp(first) == pytest.approx(
        [weights[:2].sum() / weights.sum(), weights[2] / weights.sum()]
    )
    state = scorer.extend(state, [0, 0], [knob, knob], [16, 64])
    below = space.knob((16,))
    assert below is not None
    second = scorer.score(state, [below, below], [(1, 2), (2,)])
    assert np.exp(second[0]) == pytest.approx(weights[:2] / weights[:2].sum())
    assert np.exp(second[1]) == pytest.approx([1.0])
    assert list(scorer.rank(Problem(()), space, candidates[::-1])) == list(prior[::-1])


def test_dead_ends_are_left_alone() -> None:
    """a = 1 fulfils either condition alone and not both; the tuner still finds all there is."""
    names, domains = ("a", "b"), ((1, 2), (1, 2, 3))
    texts = ("a == 2 or b > 1", "a == 2 or b < 2")
    conditions = [Condition(parse_expression(text, names), names, domains) for text in texts]
    space = KernelTunerSpace(names, domains, conditions)
    assert space.legal_values(()) == (1, 2)
    problem = Problem((("op", "x"),))
    tuner = Tuner(problem, space, transfer_scorer(problem, space, References("A100", [])))
    found = [candidate.values for candidate in tuner.ask(5)]
    assert sorted(found) == [(2, 1), (2, 2), (2, 3)]


def test_an_empty_space_is_told() -> None:
    space = KernelTunerSpace(NAMES, DOMAINS, [Recorded([])])
    with pytest.raises(EmptySpaceError, match="got none"):
        transfer_scorer(Problem(()), space, References("A100", []))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_the_residual_process_is_a_gaussian_process(seed: int) -> None:
    """Against the textbook formula (Rasmussen and Williams, 2006, eq. 2.25 and 2.26)."""
    rng = np.random.default_rng(seed)
    count, deviation, noise, length = 12, 0.7, 0.1, 0.5
    features, prior = rng.normal(size=(count, 3)), rng.normal(size=count)
    process = ResidualProcess(prior, features, deviation, noise, length)
    seen = list(rng.permutation(count)[:5])
    speeds = rng.normal(size=5)
    for candidate, speed in zip(seen, speeds, strict=True):
        process.observe(int(candidate), 9.0)
        process.observe(int(candidate), float(speed))  # the later one counts
    apart = ((features[:, None] - features[None]) ** 2).sum(-1) / length**2
    kernel = deviation**2 * np.exp(-apart / 2)
    residuals = speeds - prior[seen]
    residuals -= np.median(residuals)
    inverse = np.linalg.inv(kernel[np.ix_(seen, seen)] + noise**2 * np.eye(5))
    across = kernel[:, seen]
    assert process.mean() == pytest.approx(prior + across @ inverse @ residuals)
    variance = deviation**2 - np.einsum("ij,jk,ik->i", across, inverse, across)
    assert process.variance == pytest.approx(variance, abs=1e-9)
    assert process.optimism(2.0) == pytest.approx(process.mean() + 2 * np.sqrt(process.variance))


def test_a_copy_learns_alone() -> None:
    process = ResidualProcess(np.zeros(3), np.eye(3))
    twin = process.copy()
    twin.observe(1, 1.0)
    twin.observe(2, -1.0)
    assert list(process.mean()) == [0, 0, 0]
    assert process.variance[1] > twin.variance[1]


def test_examples_know_the_other_devices_only(target: Recording, other: Recording) -> None:
    examples = examples_of([target, other], per_recording=15, seed=0)
    assert len(examples) == 30
    for number, (own, foreign) in enumerate([(target, other), (other, target)]):
        for example in examples[15 * number : 15 * number + 15]:
            values: tuple[Value, ...] = example.values
            assert (example.quality or 0.0) == own.quality(values)
            speeds = dict(example.describe)
            assert speeds["speed_elsewhere"] == pytest.approx(foreign.quality(values), abs=1e-3)
    assert {example.quality is None for example in examples} == {True, False}


def test_fewer_examples_keep_the_optimum_and_come_again(target: Recording) -> None:
    few = examples_of([target], per_recording=4, seed=1)
    assert 4 <= len(few) <= 5
    assert 1.0 in [example.quality for example in few]
    assert few == examples_of([target], per_recording=4, seed=1)
    assert few != examples_of([target], per_recording=4, seed=2)
    assert all("speed_elsewhere" not in dict(example.describe) for example in few)


def test_groups_are_kernels(target: Recording, other: Recording) -> None:
    lone = Recording("blur", "X", (), ("a",), ((1,),), {})
    assert group_by_kernel([target, lone, other]) == [[target, other], [lone]]


def test_a_trained_predictor_moves_the_order(
    tmp_path: Path, target: Recording, other: Recording
) -> None:
    """It has seen a device like the target, and how that one differs from the other."""
    twin = recorded(tmp_path, "NVIDIA GeForce RTX 3090", bias=1)
    problem, space, references = parts(target, [other])
    predictor = Predictor(seed=0)
    predictor.fit(examples_of([twin, other], per_recording=15, seed=0), epochs=60)
    with_it = transfer_scorer(problem, space, references, predictor).best(15)
    without = transfer_scorer(problem, space, references).best(15)
    assert sorted(with_it) == sorted(without)
    assert _discordance(target, with_it) < _discordance(target, without)


def _discordance(recording: Recording, order: list[tuple[Value, ...]]) -> int:
    """Pairs in the wrong order."""
    qualities = [recording.quality(values) for values in order]
    return sum(a < b for i, a in enumerate(qualities) for b in qualities[i + 1 :])


@needs_hub
def test_one_gpu_from_the_others() -> None:
    """The whole of it on the hub: a proposal near the optimum, and better with every trial."""
    folder = HUB / "convolution_milo"
    recordings = {gpu: read_cache(folder / f"{gpu}.json.gz") for gpu in ("A4000", "A6000", "A100")}
    target = recordings.pop("A4000")
    problem, space, references = parts(target, list(recordings.values()))
    scorer = transfer_scorer(problem, space, references)
    proposal = scorer.best(10)
    assert target.quality(proposal[0]) > 0.9
    tuner = Tuner(problem, space, scorer, options=TunerOptions(pool=16, explore=0.0))
    curve = replay(tuner, target.outcomes, trials=10, batch=1)
    assert curve[-1] is not None
    assert target.best_s / curve[-1] >= max(map(target.quality, proposal[:1]))
