"""Seed and calls fix every number, in every process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.predictor.cases import (
    MATMUL,
    decode,
    examples_of,
    matmul_cost,
    matmul_space,
    sample_distinct,
)
from tunerplugin.predictor import Example, Predictor
from tunerplugin.predictor.weights import tensors_sha256


def measured(seed: int = 0) -> list[Example]:
    space = matmul_space()
    candidates = sample_distinct(space, 16, np.random.default_rng(seed))
    return examples_of(MATMUL, space, candidates, [matmul_cost(v) for v in candidates])


def fingerprint(seed: int = 0) -> str:
    """Of the weights, scores and ranks after a few updates."""
    predictor, space, examples = Predictor(seed=seed), matmul_space(), measured()
    predictor.update(examples[:8])
    predictor.update(examples[8:])
    digest = hashlib.sha256(tensors_sha256(predictor.model.state_dict()).encode())
    digest.update(predictor.rank(MATMUL, space, [e.values for e in examples]).tobytes())
    for scores in decode(predictor, MATMUL, space, examples[3].values):
        digest.update(scores.tobytes())
    return digest.hexdigest()


def test_same_seed_same_numbers_and_another_seed_others() -> None:
    torch.manual_seed(1)
    first = fingerprint()
    torch.manual_seed(2)
    assert fingerprint() == first
    assert fingerprint(seed=1) != first


def test_same_numbers_in_a_process_that_hashes_differently() -> None:
    code = (
        "from tests.predictor.test_determinism import fingerprint; print(hash('x'), fingerprint())"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert child[0] != str(hash("x"))
    assert child[1] == fingerprint()


def test_fit_is_deterministic() -> None:
    hashes = set()
    for _ in range(2):
        predictor = Predictor(seed=7)
        predictor.fit(measured(), epochs=3)
        hashes.add(tensors_sha256(predictor.model.state_dict()))
    assert len(hashes) == 1


def test_a_clone_goes_its_own_way_from_the_same_state() -> None:
    predictor, space, more = Predictor(seed=0), matmul_space(), measured(1)
    predictor.update(measured())
    twin = predictor.clone()
    candidates = [e.values for e in more]
    before = predictor.rank(MATMUL, space, candidates)
    assert np.array_equal(twin.rank(MATMUL, space, candidates), before)
    twin.update(more)
    assert np.array_equal(predictor.rank(MATMUL, space, candidates), before)
    predictor.update(more)
    assert np.array_equal(
        predictor.rank(MATMUL, space, candidates), twin.rank(MATMUL, space, candidates)
    )


def test_words_in_another_order_are_another_problem() -> None:
    """Position counts: words are a set with order."""
    predictor = Predictor(seed=0)
    predictor.update(measured())
    space = matmul_space()
    candidates = [e.values for e in measured()]
    turned = type(MATMUL)(MATMUL.words[::-1])
    assert predictor.rank(turned, space, candidates) != pytest.approx(
        predictor.rank(MATMUL, space, candidates), abs=1e-6
    )
