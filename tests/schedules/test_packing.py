"""Packed weights: numpy and tensor expression agree, and every element is where ``index`` says."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp.packing import Packing

PACKINGS = [
    Packing.rows(5, 3, 8, 16),
    Packing.transposed(5, 3, 8, 16),
    Packing.panels(5, 35, 5, 40, 8),
    Packing.interleaved(5, 3, 8, 16, dtype="float16"),
    Packing.panels(8, 48, 8, 48, 16, "bfloat16"),
]


def test_vnni_by_hand() -> None:
    weight = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
    packed = Packing.interleaved(3, 3, 4, 4).apply(weight)
    expected = [[[1, 4], [2, 5], [3, 6], [0, 0]], [[7, 0], [8, 0], [9, 0], [0, 0]]]
    np.testing.assert_array_equal(packed, expected)


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_every_element_is_where_index_says(packing: Packing) -> None:
    weight = np.arange(1, packing.k * packing.n + 1, dtype=np.float32).reshape(packing.k, packing.n)
    packed = packing.apply(weight)
    assert packed.shape == packing.shape
    assert packed.astype(np.float32).sum() == packing_sum(weight, packing)
    for k in range(packing.k):
        for n in range(packing.n):
            assert packed[packing.index(k, n)] == weight.astype(packed.dtype)[k, n]


def packing_sum(weight: np.ndarray, packing: Packing) -> float:  # type: ignore[type-arg]
    """The sum of the weight in the packed dtype: padding adds nothing."""
    from tunerplugin.schedules.fused_mlp.packing import numpy_dtype

    return float(weight.astype(numpy_dtype(packing.dtype)).astype(np.float32).sum())


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_the_tensor_expression_packs_alike(packing: Packing) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((packing.k, packing.n)).astype(np.float32)
    bias = rng.standard_normal(packing.n).astype(np.float32)
    w = te.placeholder(weight.shape, "float32", name="w")
    b = te.placeholder(bias.shape, "float32", name="b")
    functions = {"weight": [w, packing.compute(w)], "bias": [b, packing.compute_bias(b)]}
    module = tvm.IRModule(
        {
            name: te.create_prim_func(tensors).with_attr("global_symbol", name)
            for name, tensors in functions.items()
        }
    )
    built = tvm.compile(module, target="llvm")
    for name, source, expected in (
        ("weight", weight, packing.apply(weight)),
        ("bias", bias, packing.apply_bias(bias)),
    ):
        got = tvm.runtime.tensor(np.ones(expected.shape, expected.dtype))
        built[name](tvm.runtime.tensor(source), got)
        np.testing.assert_array_equal(got.numpy(), expected)


def test_wrong_packings_and_shapes_are_refused() -> None:
    with pytest.raises(ScheduleError, match="cover a weight of"):
        Packing(5, 3, (4,), (3,), (0, 1))
    with pytest.raises(ScheduleError, match="permutation of 2 axes"):
        Packing(5, 3, (5,), (3,), (0, 0))
    with pytest.raises(ScheduleError, match=r"weight of shape \(5, 3\)"):
        Packing.rows(5, 3, 8, 16).apply(np.zeros((3, 5), np.float32))
