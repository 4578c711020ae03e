"""Relax operators as kind, function and element count, most of them by their aten counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .aten import RULES, Count, Rule
from .operator import Kind

_SAME = (
    "abs sign maximum minimum floor ceil round trunc isnan isinf logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor floor_divide tril "
    "triu where sqrt rsqrt exp log sin cos tan atan2 erf tanh sigmoid square sum mean max min "
    "argmax argmin prod cumsum cumprod topk sort argsort median stack repeat flip slice_scatter "
    "index_put"
)
_RENAMED = {
    "add": "add subtract multiply negative equal not_equal less less_equal greater greater_equal "
    "clip left_shift right_shift nn.relu nn.leakyrelu nn.prelu",
    "addcmul": "ewise_fma",
    "div": "divide mod floor_mod",
    "pow": "power",
    "sin": "acos acosh asin asinh atan atanh cosh sinh",
    "_to_copy": "astype quantize dequantize",
    "gelu": "nn.gelu",
    "silu": "nn.silu",
    "elu": "nn.selu",
    "softplus": "nn.softplus log_add_exp",
    "native_dropout": "nn.dropout",
    "rand": "multinomial_from_uniform",
    "sum": "collapse_sum_to collapse_sum_like grad.take_backward scatter_elements scatter_nd",
    "var": "variance std",
    "_softmax": "nn.softmax",
    "_log_softmax": "nn.log_softmax",
    "nll_loss_forward": "nn.nll_loss",
    "nll_loss_backward": "grad.nll_loss_backward",
    "native_layer_norm": "nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm nn.batch_norm",
    "max_pool2d_with_indices": "nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d "
    "nn.avg_pool2d nn.avg_pool3d grad.max_pool2d_backward grad.avg_pool2d_backward",
    "_adaptive_avg_pool2d": "nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d",
    "upsample_bilinear2d": "image.resize2d image.resize3d image.grid_sample",
    "clone": "concat tile nn.pad layout_transform nn.pixel_shuffle one_hot to_vdevice "
    "hint_on_device reverse_sequence",
    "embedding": "take gather_elements gather_nd index_tensor",
}

#: The same bytes under another shape or order: edges, not operators.  A transposed operand is a
#: matter of addressing.
VIEWS = frozenset(
    "reshape permute_dims expand_dims squeeze flatten nn.batch_flatten broadcast_to wrap_param "
    "split strided_slice memory.view builtin.stop_lift_params".split()
)
#: Views of a part.
SLICES = frozenset({"split", "strided_slice"})
#: Known before the step.
CONSTANTS = frozenset(
    "ones zeros full ones_like zeros_like full_like arange eye eye_like hamming_window shape_of "
    "tensor_to_shape shape_to_tensor null_value size".split()
)

RULES_OF_RELAX: Mapping[str, Rule] = MappingProxyType(
    {name: RULES[name] for name in _SAME.split()}
    | {name: RULES[aten] for aten, names in _RENAMED.items() for name in names.split()}
    | {
        "nn.gelu_tanh": Rule(Kind.ELEMENTWISE, "gelu_tanh"),
        "nn.cross_entropy_with_logits": Rule(Kind.LOSS, "log_softmax", Count.INPUT),
        "ccl.allreduce": Rule(Kind.COLLECTIVE, "move"),
        "ccl.allgather": Rule(Kind.COLLECTIVE, "move"),
        "ccl.broadcast_from_worker0": Rule(Kind.COLLECTIVE, "move"),
        "ccl.scatter_from_worker0": Rule(Kind.COLLECTIVE, "move"),
    }
)
