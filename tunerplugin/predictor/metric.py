"""A distance between problems under which near ones have equal answers.

Neighbourhood component analysis (Goldberger et al., NeurIPS 2004) with a weight for each feature
and the city-block distance: the weights make the answers of a record's neighbours, each heard by
exp(-distance), as likely as possible to be the record's own.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .training import one_thread

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

QUERIES = 3000
CANDIDATES = 256
STEPS = 400
BATCH = 64
LEARNING_RATE = 0.03
#: what neighbours say counts half, the other half is a guess that is right this often: one record
#: that nothing explains does not rule the weights
_GUESS, _HALF = 0.3, 0.5


def learn_metric(
    features: Floats, values: Integers, owners: Integers, start: Floats, seed: int = 0
) -> Floats:
    """Weights (F,) of features (R, F), for answers ``values`` (R, T) read from left to right.

    ``owners`` (R,) numbers the problem of each record: a record never hears its own problem.
    ``start`` are the weights to begin with, above 0; candidates are the nearest under them.
    """
    rng = np.random.default_rng(seed)
    queries = rng.permutation(len(features))[:QUERIES]
    candidates = torch.from_numpy(_nearest(features, owners, start, queries))
    x, y = torch.from_numpy(features).float(), torch.from_numpy(values)
    rows = torch.from_numpy(queries)
    logs = torch.nn.Parameter(torch.from_numpy(np.log(start)).float())
    optimizer = torch.optim.Adam([logs], lr=LEARNING_RATE)
    with one_thread():
        for _ in range(STEPS):
            chosen = torch.from_numpy(rng.integers(len(rows), size=BATCH))
            here, there = rows[chosen], candidates[chosen]
            distance = ((x[here][:, None] - x[there]).abs() * logs.exp()).sum(-1)
            loss = _surprise(torch.softmax(-distance, dim=1), y[there] == y[here][:, None])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    learnt: Floats = logs.detach().exp().double().numpy()
    return learnt


def _nearest(features: Floats, owners: Integers, weights: Floats, queries: Integers) -> Integers:
    """The nearest records of other problems (Q, C)."""
    count = min(CANDIDATES, len(features) - 1)
    scaled = (features * weights).astype(np.float32)
    found = np.empty((len(queries), count), dtype=np.int64)
    for place, query in enumerate(queries):
        distance = np.abs(scaled - scaled[query]).sum(axis=1)
        distance[owners == owners[query]] = np.inf
        found[place] = np.argpartition(distance, count)[:count]
    return found


def _surprise(heard: Tensor, agrees: Tensor) -> Tensor:
    """Mean of -log p of the right values: neighbours' weights (B, C), whether they agree (B, C, T).

    At each place those are heard that agree with all places before it.
    """
    before = torch.cat([torch.ones_like(agrees[..., :1]), agrees[..., :-1]], dim=-1)
    still = before.to(heard.dtype).cumprod(dim=-1)  # (B, C, T)
    total = (heard.unsqueeze(-1) * still).sum(1)
    right = (heard.unsqueeze(-1) * still * agrees).sum(1)
    share = (right + 1e-4) / (total + 1e-3)
    return -torch.log((1 - _HALF) * _GUESS + _HALF * share).mean()
