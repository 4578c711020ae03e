"""What measurements say beyond a prediction: a Gaussian process over the candidates of a space.

The prediction is the prior mean.  The process learns what it got wrong on this device, carries it
to similar candidates, and knows where it has not looked.  All candidates are enumerated, so this is
for spaces of up to some hundred thousand; an observation costs (observations x candidates).
"""

from __future__ import annotations

import copy
import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class ResidualProcess:
    """Posterior of log2 speed over candidates with the features (N, D), each scaled to about 1.

    ``deviation`` is how far off predictions are (log2), ``noise`` what repeats of a measurement
    differ by, ``length`` over which distance errors are alike.
    """

    def __init__(
        self,
        prior: FloatArray,
        features: FloatArray,
        deviation: float = 0.5,
        noise: float = 0.05,
        length: float = 0.7,
    ) -> None:
        self.prior = np.asarray(prior, dtype=np.float64)
        self._features = features / length
        self._squares = (self._features**2).sum(axis=1)
        self._deviation, self._noise = deviation, noise
        self._residuals: dict[int, float] = {}
        # row i: covariance of observation i with every candidate, given the observations before,
        # in units of its own deviation (a Cholesky factor that grows by a row)
        self._rows = np.zeros((0, len(self.prior)))
        self._pivots: list[float] = []
        self.variance = np.full(len(self.prior), deviation**2)

    def copy(self) -> ResidualProcess:
        """An independent copy; what never changes is shared."""
        twin = copy.copy(self)
        twin._residuals, twin._pivots = dict(self._residuals), list(self._pivots)
        return twin

    def observe(self, candidate: int, speed: float) -> None:
        """Take in the log2 speed of a candidate; a later one replaces an earlier one."""
        if candidate not in self._residuals:
            row = self._covariance(candidate) - self._rows[:, candidate] @ self._rows
            pivot = math.sqrt(float(self.variance[candidate]) + self._noise**2)
            self._rows = np.vstack([self._rows, row / pivot])
            self._pivots.append(pivot)
            self.variance = np.maximum(self.variance - self._rows[-1] ** 2, 0.0)
        self._residuals[candidate] = speed - float(self.prior[candidate])

    def mean(self) -> FloatArray:
        """Posterior mean of each candidate, up to a constant that all share."""
        if not self._residuals:
            return self.prior
        residuals = np.array(list(self._residuals.values()))
        factor = np.tril(self._rows[:, list(self._residuals)].T, -1) + np.diag(self._pivots)
        # how fast the best of the space is nobody knows yet, so speeds are known up to a constant
        weights = np.linalg.solve(factor, residuals - np.median(residuals))
        posterior: FloatArray = self.prior + weights @ self._rows
        return posterior

    def optimism(self, share: float) -> FloatArray:
        """Mean plus ``share`` standard deviations."""
        bound: FloatArray = self.mean() + share * np.sqrt(self.variance)
        return bound

    def _covariance(self, candidate: int) -> FloatArray:
        distance = (
            self._squares
            + self._squares[candidate]
            - 2 * self._features @ self._features[candidate]
        )
        covariance: FloatArray = self._deviation**2 * np.exp(-0.5 * np.maximum(distance, 0.0))
        return covariance
