"""Small TIR workloads for the tests of the MetaSchedule adapter."""

from __future__ import annotations

from typing import Any

from tvm import te, topi

from tunerplugin.integrations.compat import tirx


def dense(m: int = 32, n: int = 48, k: int = 64) -> Any:
    """C[m, n] = sum_k A[m, k] B[k, n]."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    axis = te.reduce_axis((0, k), name="k")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "C")]
    )


def softmax(m: int = 32, n: int = 64) -> Any:
    """Row softmax: several blocks, compute locations and an rfactor."""
    a = te.placeholder((m, n), name="A")
    return te.create_prim_func([a, topi.nn.softmax(a, axis=1)])


def conv2d(channels: int = 16, size: int = 14) -> Any:
    """3x3 convolution with padding and stride 2."""
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, channels, 3, 3), name="weight")
    return te.create_prim_func(
        [data, weight, topi.nn.conv2d_nchw(data, weight, stride=2, padding=1, dilation=1)]
    )


def group_conv2d(groups: int = 4, channels: int = 64, size: int = 8) -> Any:
    """Grouped convolution: its input tile grows by whole groups."""
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, channels // groups, 3, 3), name="weight")
    return te.create_prim_func(
        [data, weight, topi.nn.group_conv2d_nchw(data, weight, 1, 1, 1, groups)]
    )


def add(n: int = 64) -> Any:
    """Elementwise: the least that there is to schedule."""
    a = te.placeholder((n, n), name="A")
    b = te.placeholder((n, n), name="B")
    return te.create_prim_func([a, b, topi.add(a, b)])


def dynamic_add() -> Any:
    """Elementwise over a length that is known at run time only."""
    n = tirx.Var("n", "int64")
    a = te.placeholder((n,), name="A")
    return te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
