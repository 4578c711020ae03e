"""What the predictor is trained to do.

The next-value loss takes every decision of every measured candidate, weighted by its quality and
conditioned on it: several good answers to one problem are all right, and poor ones teach what a
poor candidate looks like.  The value loss compares candidates of one problem in pairs; failures
stand below every success.  Letters in shapes: see ``batching``.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from .batching import Batch


def decision_loss(log_probabilities: Tensor, batch: Batch, base_weight: float) -> Tensor:
    """Weighted mean of -log p of the chosen values where there was a choice."""
    picked = log_probabilities.gather(-1, batch.choices.unsqueeze(-1)).squeeze(-1)  # (B, T)
    weights = ((base_weight + batch.quality)[:, None] * (batch.legal_counts > 1)).float()
    return -(picked * weights).sum() / weights.sum().clamp_min(1e-6)


def value_loss(predicted: Tensor, targets: Tensor, problem: Tensor) -> Tensor:
    """Order and size of the differences within each problem; predicted is (E, B).

    Only differences count: the best so far, to which qualities are relative, is another one in
    every problem and moves during a run.
    """
    gap = targets[:, None] - targets[None, :]
    pair = (gap > 0.02) & (problem[:, None] == problem[None, :])
    first, second = pair.nonzero(as_tuple=True)
    if not len(first):
        return predicted.sum() * 0.0
    wanted = gap[first, second]
    found = predicted[:, first] - predicted[:, second]
    order = (F.softplus(-found) * wanted.clamp_max(1.0)).mean()
    return order + F.smooth_l1_loss(found, wanted.expand_as(found))
