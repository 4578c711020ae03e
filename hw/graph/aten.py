"""Every PyTorch (aten) operator that a training step meets, as kind, function and element count.

The names are those of the overload packet without a trailing underscore: ``add.Tensor`` and
``add_.Tensor`` are both "add".  An operator that is not listed is elementwise over its output and
the caller warns about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from types import MappingProxyType

from .operator import Kind


class Count(StrEnum):
    """What the elements of a vector operator are."""

    OUTPUT = auto()  # elements of all outputs that are as large as the first
    INPUT = auto()  # elements of the largest input
    WINDOW = auto()  # output times the pooling window


@dataclass(frozen=True, slots=True)
class Rule:
    """How an aten operator is classified.  ``gathers``: it reads only what it writes."""

    kind: Kind
    function: str
    count: Count = Count.OUTPUT
    gathers: bool = False


def _rules(kind: Kind, functions: Mapping[str, str], count: Count) -> dict[str, Rule]:
    return {
        name: Rule(kind, function, count)
        for function, names in functions.items()
        for name in names.split()
    }


_ELEMENTWISE = {
    "alu": "add sub rsub mul neg abs sign relu relu6 maximum minimum clamp clamp_min clamp_max "
    "hardtanh threshold leaky_relu where masked_fill eq ne lt le gt ge logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf floor "
    "ceil round trunc tril triu threshold_backward hardtanh_backward leaky_relu_backward sgn "
    "isneginf isposinf fmax fmin square bitwise_left_shift bitwise_right_shift floor_divide",
    "fma2": "addcmul lerp native_dropout_backward masked_scale",
    "divide": "div reciprocal true_divide remainder fmod",
    "addcdiv": "addcdiv",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exp exp2 expm1",
    "log": "log log2 log10 log1p logit",
    "sine": "sin cos tan atan2",
    "power": "pow",
    "random": "bernoulli uniform normal rand randn randint rand_like randn_like randperm "
    "exponential multinomial",
    "erf": "erf erfc erfinv",
    "tanh": "tanh",
    "tanh_backward": "tanh_backward",
    "sigmoid": "sigmoid",
    "sigmoid_backward": "sigmoid_backward",
    "silu": "silu mish log_sigmoid_forward",
    "silu_backward": "silu_backward mish_backward log_sigmoid_backward",
    "gelu": "gelu",
    "gelu_backward": "gelu_backward",
    "hardswish": "hardswish",
    "hardswish_backward": "hardswish_backward",
    "hardsigmoid": "hardsigmoid hardsigmoid_backward",
    "elu": "elu elu_backward celu selu",
    "softplus": "softplus softplus_backward",
    "dropout": "native_dropout",
    "move": "_to_copy",  # a cast; without a change of type it is a copy
}
_REDUCTION = {
    "batch_sum": "sum mean amax amin max min argmax argmin any all prod cumsum cumprod norm "
    "linalg_vector_norm count_nonzero nansum bincount embedding_dense_backward scatter_add "
    "scatter_reduce index_add",
    "variance": "var var_mean std std_mean",
    "log_softmax": "logsumexp logcumsumexp",
    "sort": "topk sort argsort kthvalue median unique2",
}
_NORM = {
    "norm": "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_batch_norm_with_update native_layer_norm native_group_norm _fused_rms_norm",
    "norm_inference": "_native_batch_norm_legit_no_training _batch_norm_no_update",
    "norm_backward": "native_batch_norm_backward batch_norm_backward native_layer_norm_backward "
    "native_group_norm_backward _fused_rms_norm_backward",
}
_SOFTMAX = {
    "softmax": "_softmax _safe_softmax",
    "log_softmax": "_log_softmax",
    "softmax_backward": "_softmax_backward_data",
    "log_softmax_backward": "_log_softmax_backward_data",
}
_LOSS_OUTPUT = {
    "alu": "nll_loss_backward nll_loss2d_backward",
    "fma2": "mse_loss_backward smooth_l1_loss_backward huber_loss_backward",
    "divide": "binary_cross_entropy_backward",
}
_LOSS_INPUT = {
    "fma2": "mse_loss smooth_l1_loss huber_loss",
    "softplus": "binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss",
}
_POOL_WINDOW = {
    "alu": "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d "
    "avg_pool2d_backward avg_pool3d_backward",
}
_POOL_INPUT = {
    "alu": "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d "
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
}
_POOL_OUTPUT = {
    "alu": "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
    "adaptive_max_pool2d_backward",
    "fma2": "upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward "
    "upsample_bilinear2d_backward",
}
_COPY = (
    "clone copy cat stack constant_pad_nd reflection_pad2d replication_pad2d roll flip repeat "
    "repeat_interleave slice_backward select_backward slice_scatter select_scatter scatter "
    "index_put index_copy index_fill masked_scatter fill zero contiguous pixel_shuffle "
    "pixel_unshuffle channel_shuffle im2col col2im unfold_backward diagonal_backward resize"
)
_GATHER = "embedding index index_select gather take"

#: Values that are known before the step: inputs of the graph, not operators.
CONSTANTS = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like "
    "new_zeros ones ones_like new_ones full full_like new_full arange linspace scalar_tensor eye "
    "lift_fresh lift_fresh_copy _tensor_constant".split()
)
#: Backward operators that need only the shape of their second tensor.
SHAPE_OF_SECOND = frozenset(
    "nll_loss_backward nll_loss2d_backward max_pool2d_with_indices_backward avg_pool2d_backward "
    "max_pool3d_with_indices_backward avg_pool3d_backward _adaptive_avg_pool2d_backward "
    "_adaptive_avg_pool3d_backward".split()
)
#: Products of matrices; the sizes are in ``matrix.py``.
PRODUCTS = frozenset("mm addmm bmm baddbmm addbmm mv addmv dot convolution".split())
#: In-place forms that overwrite their target without reading it.
OVERWRITES = frozenset("copy fill zero bernoulli uniform normal random exponential".split())

RULES: Mapping[str, Rule] = MappingProxyType(
    _rules(Kind.ELEMENTWISE, _ELEMENTWISE, Count.OUTPUT)
    | _rules(Kind.REDUCTION, _REDUCTION, Count.INPUT)
    | _rules(Kind.NORMALISATION, _NORM, Count.INPUT)
    | _rules(Kind.SOFTMAX, _SOFTMAX, Count.OUTPUT)
    | _rules(Kind.LOSS, _LOSS_OUTPUT, Count.OUTPUT)
    | _rules(Kind.LOSS, _LOSS_INPUT, Count.INPUT)
    | _rules(Kind.POOLING, _POOL_WINDOW, Count.WINDOW)
    | _rules(Kind.POOLING, _POOL_INPUT, Count.INPUT)
    | _rules(Kind.POOLING, _POOL_OUTPUT, Count.OUTPUT)
    | {name: Rule(Kind.COPY, "move") for name in _COPY.split()}
    | {name: Rule(Kind.EMBEDDING, "move", gathers=True) for name in _GATHER.split()}
    # One value per row is gathered and summed.
    | {
        name: Rule(Kind.LOSS, "batch_sum", gathers=True)
        for name in ("nll_loss_forward", "nll_loss2d_forward")
    }
)

UNKNOWN = Rule(Kind.ELEMENTWISE, "alu")
