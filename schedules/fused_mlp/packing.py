"""How a layer's parameters lie in memory for a kernel: padded, transposed, blocked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tunerplugin.errors import ScheduleError

Array = npt.NDArray[Any]

BIAS_DTYPE = "float32"
"""Biases are stored in float32 whatever the weights are: they are added to a float32 sum."""


@dataclass(frozen=True)
class Packing:
    """The stored form of a weight of logical shape (k, n).

    The weight is padded with zeros to (prod(k_factors), prod(n_factors)), its axes are split into
    those factors (outermost first), and the split axes are permuted to ``order``, where axis i is
    the i-th of (*k_factors, *n_factors).  So ``Packing(64, 64, (32, 2), (64,), (0, 2, 1))`` is
    Intel's VNNI form [k/2][n][2].  The bias is padded to prod(n_factors) and stored as float32.
    Raises ``ScheduleError`` when the factors do not cover the weight or ``order`` is no
    permutation.
    """

    k: int
    n: int
    k_factors: tuple[int, ...]
    n_factors: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.k > self.k_padded or self.n > self.n_padded:
            raise ScheduleError(
                f"expected factors that cover a weight of ({self.k}, {self.n}), "
                f"got {self.k_factors} and {self.n_factors}"
            )
        if sorted(self.order) != list(range(len(self._split))):
            raise ScheduleError(
                f"expected a permutation of {len(self._split)} axes, got {self.order}"
            )

    @classmethod
    def rows(cls, k: int, n: int, k_padded: int, n_padded: int, dtype: str = "float32") -> Packing:
        """Row-major [k][n], padded."""
        return cls(k, n, (k_padded,), (n_padded,), (0, 1), dtype)

    @classmethod
    def transposed(
        cls, k: int, n: int, k_padded: int, n_padded: int, dtype: str = "float32"
    ) -> Packing:
        """Row-major [n][k], padded."""
        return cls(k, n, (k_padded,), (n_padded,), (1, 0), dtype)

    @classmethod
    def panels(
        cls, k: int, n: int, k_padded: int, n_padded: int, block: int, dtype: str = "float32"
    ) -> Packing:
        """Column panels [n / block][k][block]; ``block`` divides ``n_padded``."""
        return cls(k, n, (k_padded,), (n_padded // block, block), (1, 0, 2), dtype)

    @classmethod
    def interleaved(
        cls, k: int, n: int, k_padded: int, n_padded: int, group: int = 2, dtype: str = "float32"
    ) -> Packing:
        """VNNI form [k / group][n][group]; ``group`` divides ``k_padded``."""
        return cls(k, n, (k_padded // group, group), (n_padded,), (0, 2, 1), dtype)

    @property
    def k_padded(self) -> int:
        """Rows with padding."""
        return math.prod(self.k_factors)

    @property
    def n_padded(self) -> int:
        """Columns with padding; the length of the stored bias."""
        return math.prod(self.n_factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored weight."""
        return tuple(self._split[axis] for axis in self.order)

    @property
    def _split(self) -> tuple[int, ...]:
        return (*self.k_factors, *self.n_factors)

    def index(self, k: Any, n: Any) -> tuple[Any, ...]:
        """Where element (k, n) is stored; for integers and for TIR expressions."""
        split = (*_digits(k, self.k_factors), *_digits(n, self.n_factors))
        return tuple(split[axis] for axis in self.order)

    def apply(self, weight: Array) -> Array:
        """The stored form of a weight (k, n).  Raises ``ScheduleError`` for another shape."""
        self._expect(weight.shape, (self.k, self.n), "weight")
        pad = ((0, self.k_padded - self.k), (0, self.n_padded - self.n))
        padded = np.pad(weight, pad).astype(numpy_dtype(self.dtype))
        split = padded.reshape(self._split).transpose(self.order)
        return np.ascontiguousarray(split)

    def apply_bias(self, bias: Array) -> Array:
        """The stored form of a bias (n,).  Raises ``ScheduleError`` for another shape."""
        self._expect(bias.shape, (self.n,), "bias")
        return np.pad(bias.astype(np.float32), (0, self.n_padded - self.n))

    def compute(self, weight: Any) -> Any:
        """``apply`` as a tensor expression of a ``te.Tensor`` (k, n).

        ``BlockBuilder.emit_te(packing.compute, variable)`` packs a Relax variable; being a function
        of a parameter alone, ``LiftTransformParams`` moves it to compile time.
        """
        from tvm import te

        from tunerplugin.integrations.compat import tirx

        self._expect(tuple(int(extent) for extent in weight.shape), (self.k, self.n), "weight")
        place = {axis: position for position, axis in enumerate(self.order)}

        def element(*stored: Any) -> Any:
            split = [stored[place[axis]] for axis in range(len(stored))]
            k = _number(split[: len(self.k_factors)], self.k_factors)
            n = _number(split[len(self.k_factors) :], self.n_factors)
            inside = [index < size for index, size, padded in self._padded_axes(k, n) if padded]
            value = weight[k, n].astype(self.dtype)
            zero = tirx.const(0, self.dtype)
            return tirx.if_then_else(tirx.all(*inside), value, zero) if inside else value

        return te.compute(self.shape, element, name="packed_weight")

    def compute_bias(self, bias: Any) -> Any:
        """``apply_bias`` as a tensor expression of a ``te.Tensor`` (n,)."""
        from tvm import te

        from tunerplugin.integrations.compat import tirx

        self._expect(tuple(int(extent) for extent in bias.shape), (self.n,), "bias")
        if self.n == self.n_padded:
            return te.compute((self.n,), lambda j: bias[j].astype(BIAS_DTYPE), name="packed_bias")
        return te.compute(
            (self.n_padded,),
            lambda j: tirx.if_then_else(
                j < self.n, bias[j].astype(BIAS_DTYPE), tirx.const(0, BIAS_DTYPE)
            ),
            name="packed_bias",
        )

    def _padded_axes(self, k: Any, n: Any) -> tuple[tuple[Any, int, bool], ...]:
        return (k, self.k, self.k < self.k_padded), (n, self.n, self.n < self.n_padded)

    def _expect(self, got: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
        if got != expected:
            raise ScheduleError(f"expected a {what} of shape {expected}, got {got}")


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """numpy's dtype of a TVM one; bfloat16 comes from ml_dtypes, which TVM brings."""
    if dtype == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(dtype)


def _digits(number: Any, factors: tuple[int, ...]) -> list[Any]:
    """A mixed-radix number as its digits, the outermost first."""
    if len(factors) == 1:
        return [number]
    digits = []
    for factor in reversed(factors[1:]):
        digits.append(number % factor)
        number = number // factor
    return [number, *reversed(digits)]


def _number(digits: list[Any], factors: tuple[int, ...]) -> Any:
    """The inverse of ``_digits``."""
    number = digits[0]
    for digit, factor in zip(digits[1:], factors[1:], strict=True):
        number = number * factor + digit
    return number
