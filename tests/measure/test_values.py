"""Inputs and the comparison of outputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tunerplugin.measure.values import Array, Param, compare, epsilon, make_inputs, tolerance
from tunerplugin.outcome import Status

NAN, INF = float("nan"), float("inf")


def _status(got: list[float], want: list[float]) -> Status | None:
    fault = compare("out", np.array(got), np.array(want), 1e-3, 0)
    return fault[0] if fault else None


@pytest.mark.parametrize(
    ("got", "want", "status"),
    [
        ([1.0, NAN], [1.0, NAN], None),
        ([1.0, INF], [1.0, INF], None),
        ([1.0, -INF], [1.0, INF], Status.WRONG_RESULT),
        ([1.0, 2.0], [1.0, NAN], Status.WRONG_RESULT),
        ([NAN, 1.0], [1.0, NAN], Status.NON_FINITE),
        ([1.0, INF], [1.0, 2.0], Status.NON_FINITE),
        ([1.0, 2.001], [1.0, 2.0], None),
        ([1.0, 2.003], [1.0, 2.0], Status.WRONG_RESULT),
        ([0.0, 0.0], [0.0, -0.0], None),
        ([0.0, 1e-9], [0.0, 0.0], Status.WRONG_RESULT),
        ([], [], None),
    ],
)
def test_compare(got: list[float], want: list[float], status: Status | None) -> None:
    assert _status(got, want) is status


def test_integers_and_booleans_are_exact() -> None:
    big = 2**60
    fault = compare("n", np.array([big + 1]), np.array([big]), 1.0, 5)
    assert fault is not None and fault[1].startswith("seed 5, n: ")
    assert compare("n", np.array([True]), np.array([False]), 1.0, 0) is not None
    assert compare("n", np.array([3], np.uint8), np.array([3], np.uint8), 0.0, 0) is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("terms", [16, 1024])
def test_the_order_of_a_sum_is_forgiven_and_a_lost_term_is_not(dtype: str, terms: int) -> None:
    np_dtype = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (64, terms)).astype(np_dtype)

    def total(rows: Array) -> Array:
        result = np.zeros(len(rows), np_dtype)
        for column in rows.T:
            result = (result + column).astype(np_dtype)
        return result

    want = total(values)
    relative = tolerance(epsilon(dtype), terms)
    assert compare("sum", total(values[:, ::-1]), want, relative, 0) is None
    if dtype in ("float64", "float32"):
        assert compare("sum", total(values[:, 1:]), want, relative, 0) is not None


def test_inputs_are_small_deterministic_and_zero_where_only_written() -> None:
    params = [
        Param("x", (5, 7), "float32", written=False, read=True),
        Param("index", (9,), "int32", written=False, read=True),
        Param("q", (200,), "int8", written=False, read=True),
        Param("u", (200,), "uint8", written=False, read=True),
        Param("mask", (50,), "bool", written=False, read=True),
        Param("h", (50,), "bfloat16", written=False, read=True),
        Param("state", (5,), "float32", written=True, read=True),
        Param("out", (5,), "float32", written=True, read=False),
    ]
    first, again, other = make_inputs(params, 1), make_inputs(params, 1), make_inputs(params, 2)
    for param, a, b, c in zip(params, first, again, other, strict=True):
        assert a.shape == param.shape and str(a.dtype) == param.dtype
        assert np.array_equal(a, b)
        assert np.array_equal(a, c) == (param.name == "out")
    values = dict(zip((p.name for p in params), first, strict=True))
    assert values["index"].min() >= 0 and values["index"].max() < 5
    assert values["q"].min() == -8 and values["q"].max() == 7
    assert values["u"].min() == 0 and values["u"].max() == 7
    assert set(values["mask"]) == {False, True}
    assert np.abs(values["h"].astype(np.float32)).max() <= 1
    assert not values["out"].any() and values["state"].all()
