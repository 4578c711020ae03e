"""Input values and the comparison of outputs (numpy only).

Inputs depend on the seed and the parameter alone, so every worker makes the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..outcome import Status

Array = NDArray[Any]

_SMALL_INT = 8
_EPSILONS_WIDE = 128
_EPSILONS_HALF = 16
_EPSILONS_PER_SQRT_TERM = 8
_HALF_EPSILON = 1e-4


@dataclass(frozen=True)
class Param:
    """One buffer parameter of a PrimFunc.

    ``written``: the function writes it, so it is an output.  ``read``: its value on entry may
    matter; a buffer that is both is updated in place.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool
    read: bool


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a TVM dtype; bfloat16 and the 8-bit floats come from ``ml_dtypes``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def is_float(dtype: str) -> bool:
    """Whether a TVM dtype is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def epsilon(dtype: str) -> float:
    """Distance from 1 to the next number; 0 for integers and booleans."""
    if not is_float(dtype):
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)


def make_inputs(params: Sequence[Param], seed: int) -> list[Array]:
    """One array per parameter: random inputs, zeros where only the function itself writes.

    Floats are uniform in [-1, 1).  Integers are small; those of 32 and 64 bits, which may be
    indices, are not negative and lie inside the smallest dimension of any parameter.
    """
    dims = [d for p in params for d in p.shape if d > 1]
    index_limit = min([_SMALL_INT, *dims])
    arrays = []
    for position, param in enumerate(params):
        dtype = numpy_dtype(param.dtype)
        if param.written and not param.read:
            arrays.append(np.zeros(param.shape, dtype))
            continue
        rng = np.random.default_rng([seed, position])
        if is_float(param.dtype):
            value: Array = rng.uniform(-1.0, 1.0, param.shape)
        elif param.dtype == "bool":
            value = rng.integers(0, 2, param.shape)
        elif dtype.itemsize >= 4:
            value = rng.integers(0, index_limit, param.shape)
        else:
            low = 0 if param.dtype.startswith("uint") else -_SMALL_INT
            value = rng.integers(low, _SMALL_INT, param.shape)
        arrays.append(np.asarray(value).astype(dtype))
    return arrays


def tolerance(coarsest_epsilon: float, reduction: int) -> float:
    """Allowed error, relative to the largest magnitude of the reference output.

    A schedule may change the order of a sum.  The rounding error of a sum of n terms grows like
    sqrt(n) epsilons with high probability (Higham and Mary, "A new approach to probabilistic
    rounding error analysis", 2019), for the reference and for the candidate alike.  The error is
    relative to the terms and not to a sum that cancels, hence to the largest output.  A constant
    covers contraction to fused multiply-add and vectorised elementary functions.  Integers and
    booleans are exact: their sums do not depend on the order.
    """
    constant = _EPSILONS_HALF if coarsest_epsilon > _HALF_EPSILON else _EPSILONS_WIDE
    return coarsest_epsilon * (constant + _EPSILONS_PER_SQRT_TERM * math.sqrt(reduction))


def compare(
    name: str, got: Array, want: Array, relative: float, seed: int
) -> tuple[Status, str] | None:
    """Compare an output with a reference of the same shape and dtype; ``None`` when they agree.

    NaN agrees with NaN, and an infinity with the same infinity, at the same place.
    """
    if np.array_equal(_bits(got), _bits(want)):
        return None
    if not is_float(str(want.dtype)):
        worst = np.max(np.abs(got.astype(np.float64) - want.astype(np.float64)))
        return Status.WRONG_RESULT, f"seed {seed}, {name}: max difference {worst:g}, expected 0"
    return _compare_floats(name, got.astype(np.float64), want.astype(np.float64), relative, seed)


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _compare_floats(
    name: str, got: Array, want: Array, relative: float, seed: int
) -> tuple[Status, str] | None:
    finite = np.isfinite(want)
    bad = int(np.count_nonzero(finite & ~np.isfinite(got)))
    if bad:
        return Status.NON_FINITE, f"seed {seed}, {name}: {bad} values are NaN or infinite"
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return Status.WRONG_RESULT, f"seed {seed}, {name}: NaN or infinity expected, got others"
    scale = float(np.max(np.abs(want[finite]), initial=0.0))
    worst = float(np.max(np.abs(got[finite] - want[finite]), initial=0.0))
    if worst <= relative * scale:
        return None
    limit = relative * scale
    return Status.WRONG_RESULT, f"seed {seed}, {name}: max difference {worst:g}, limit {limit:g}"
