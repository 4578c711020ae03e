"""GEMM sizes of matrix products and convolutions from the shapes of their operands."""

from __future__ import annotations

from math import prod

from ...errors import GraphError
from .operator import Gemm, Shape


def product(name: str, shapes: list[Shape]) -> Gemm:
    """Sizes of an aten product; ``shapes`` are those of its tensor arguments, in order.

    The last two are the factors; one before them, if any, is what the product is added to.
    """
    left, right = shapes[-2:]
    if name in {"bmm", "baddbmm"}:
        return Gemm(left[0], left[1], right[2], left[2])
    if name == "addbmm":  # the batch is summed too
        return Gemm(1, left[1], right[2], left[0] * left[2])
    if name in {"mv", "addmv"}:
        return Gemm(1, left[0], 1, left[1])
    if name == "dot":
        return Gemm(1, 1, 1, left[0])
    return Gemm(1, left[0], right[1], left[1])


def contraction(left: Shape, right: Shape) -> Gemm:
    """Sizes of a broadcast ``matmul`` (..., m, k) x (..., k, n), as numpy defines it.

    A right factor without batch sizes is shared, so the left batch counts as rows.
    """
    if len(left) == 1:
        left = (1, *left)
    if len(right) == 1:
        right = (*right, 1)
    if left[-1] != right[-2]:
        raise GraphError(f"expected (..., m, k) x (..., k, n), got {left} x {right}")
    m, k, n = left[-2], left[-1], right[-1]
    if prod(right[:-2]) == 1:
        return Gemm(1, prod(left[:-1]), n, k)
    rank = max(len(left), len(right)) - 2
    heads = [(1,) * (rank + 2 - len(shape)) + shape[:-2] for shape in (left, right)]
    return Gemm(prod(max(a, b) for a, b in zip(*heads, strict=True)), m, n, k)


def convolution(
    data: Shape, weight: Shape, output: Shape, groups: int, transposed: bool = False
) -> Gemm:
    """Forward convolution: data (N, Cin, ...), output (N, Cout, ...), weight (Cout, Cin/groups,
    ...), or (Cin, Cout/groups, ...) when transposed."""
    window = prod(weight[2:])
    cin, cout = data[1] // groups, output[1] // groups
    if transposed:
        return Gemm(groups, data[0] * prod(data[2:]), cout * window, cin)
    return Gemm(groups, data[0] * prod(output[2:]), cout, cin * window)


def data_gradient(
    data: Shape, weight: Shape, output: Shape, groups: int, transposed: bool = False
) -> Gemm:
    """Gradient of a convolution with respect to its data; shapes are those of the forward."""
    window = prod(weight[2:])
    cin, cout = data[1] // groups, output[1] // groups
    if transposed:
        return Gemm(groups, data[0] * prod(data[2:]), cin, cout * window)
    return Gemm(groups, data[0] * prod(output[2:]), cin * window, cout)


def weight_gradient(
    data: Shape, weight: Shape, output: Shape, groups: int, transposed: bool = False
) -> Gemm:
    """Gradient of a convolution with respect to its weight; shapes are those of the forward."""
    window = prod(weight[2:])
    cin, cout = data[1] // groups, output[1] // groups
    if transposed:
        return Gemm(groups, cin, cout * window, data[0] * prod(data[2:]))
    return Gemm(groups, cout, cin * window, data[0] * prod(output[2:]))
