"""Six operators of common networks, untuned in some 5 to 100 ms on two CPU cores (float32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from tunerplugin.integrations.compat import normalize_mod


def _tensor(name: str, *shape: int) -> Any:
    return te.placeholder(shape, "float32", name)


def _conv2d() -> list[Any]:
    """A 3x3 convolution of ResNet-18's second stage at half width."""
    data, weight = _tensor("data", 1, 64, 28, 28), _tensor("weight", 64, 64, 3, 3)
    return [data, weight, topi.nn.conv2d_nchw(data, weight, 1, 1, 1)]


def _depthwise() -> list[Any]:
    """MobileNetV2's widest depthwise convolution, at 112 x 112, of four images."""
    data, weight = _tensor("data", 4, 96, 112, 112), _tensor("weight", 96, 1, 3, 3)
    return [data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1)]


def _dense() -> list[Any]:
    """BERT-base's square projection of 32 tokens."""
    data, weight = _tensor("data", 32, 768), _tensor("weight", 768, 768)
    return [data, weight, topi.nn.dense(data, weight)]


def _batch_matmul() -> list[Any]:
    """Attention scores of 12 heads and 128 tokens."""
    queries, keys = _tensor("queries", 12, 128, 64), _tensor("keys", 12, 128, 64)
    return [queries, keys, topi.nn.batch_matmul(queries, keys)]


def _softmax() -> list[Any]:
    """Softmax over the attention scores of 12 heads and 256 tokens."""
    scores = _tensor("scores", 12, 256, 256)
    return [scores, topi.nn.softmax(scores, axis=-1)]


def _layer_norm() -> list[Any]:
    """Layer norm of 2048 tokens of width 768."""
    data, gain, bias = _tensor("data", 2048, 768), _tensor("gain", 768), _tensor("bias", 768)
    return [data, gain, bias, topi.nn.layer_norm(data, gain, bias, [1])]


OPERATORS: dict[str, Callable[[], list[Any]]] = {
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}


def operator_module(name: str) -> Any:
    """The IRModule of one operator, its PrimFunc called ``main``.

    As in a Relax module, no argument is marked as free in its layout: stock MetaSchedule would pack
    the weights in a step that its measurement leaves out, but that every call of the compiled
    module pays for.
    """
    function = te.create_prim_func(OPERATORS[name]())
    return normalize_mod(function.without_attr("layout_free_buffers"))
