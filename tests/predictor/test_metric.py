"""The learnt distance: it hears the feature that tells the answer, and no other."""

from __future__ import annotations

import numpy as np

from tunerplugin.predictor import learn_metric


def records(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two features; the answer is the sign of the second."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(400, 2))
    values = np.stack([features[:, 1] > 0, np.zeros(400)], axis=1).astype(np.int64)
    return features, values, np.arange(400)


def test_weight_goes_to_what_tells_the_answer() -> None:
    features, values, owners = records(0)
    start = np.ones(2)
    learnt = learn_metric(features, values, owners, start, seed=1)
    assert learnt[1] > 3 * learnt[0]

    def right(metric: np.ndarray) -> float:
        """How often the nearest other record has the same answer, on fresh records."""
        fresh, answers, _ = records(7)
        distance = (np.abs(fresh[:, None] - fresh[None]) * metric).sum(-1)
        np.fill_diagonal(distance, np.inf)
        nearest = distance.argmin(axis=1)
        return float((answers[nearest, 0] == answers[:, 0]).mean())

    assert right(learnt) > right(start)


def test_same_seed_same_weights_and_own_problems_are_not_heard() -> None:
    features, values, _ = records(0)
    first = learn_metric(features, values, np.arange(400), np.ones(2), seed=3)
    again = learn_metric(features, values, np.arange(400), np.ones(2), seed=3)
    assert np.array_equal(first, again)
    # every record twice, the twin with the right answer: with one owner each, twins teach nothing
    doubled = np.concatenate([features, features]), np.concatenate([values, values])
    owners = np.tile(np.arange(400), 2)
    apart = learn_metric(*doubled, owners, np.ones(2), seed=3)
    assert apart[1] > 3 * apart[0]
