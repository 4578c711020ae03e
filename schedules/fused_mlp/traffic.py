"""Operations and bytes of an MLP, fused and unfused: what the roofline is made of.

The counts are those of arXiv 2403.17607, written for any widths: a work-group keeps its rows of
activations on chip through all layers and reads every layer's weights once; nothing is reused
across work-groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from tunerplugin.errors import ScheduleError

from .description import MLP

Phase = Literal["inference", "forward", "backward_data", "weight_gradients", "training"]
PHASES: tuple[Phase, ...] = Phase.__args__  # type: ignore[attr-defined]

STORAGE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
ACCUMULATOR_BYTES = 4  # sums are float32


@dataclass(frozen=True)
class Plan:
    """One way to run one MLP.

    ``rows``: rows of the batch per work-group; ``rows_per_sub_group`` of them belong to one
    sub-group.  ``staged``: a layer's weights pass through shared memory once per work-group;
    otherwise every sub-group reads them through the device's cache.  ``activations``: where a
    work-group's rows live between layers; ``"shared"`` is tiny-cuda-nn's scheme, which needs no
    copy of the weights.  ``fused_gradients``: in training, weight gradients are summed up inside
    the backward kernel (one float32 partial sum per work-group).
    """

    mlp: MLP
    batch: int
    rows: int = 512
    rows_per_sub_group: int = 8
    phase: Phase = "inference"
    fused: bool = True
    staged: bool = True
    activations: Literal["registers", "shared"] = "registers"
    fused_gradients: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "rows", "rows_per_sub_group"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"expected {name} of at least 1, got {getattr(self, name)}")
        if self.rows % self.rows_per_sub_group:
            raise ScheduleError(
                f"expected rows to be a multiple of rows_per_sub_group, got {self.rows} and "
                f"{self.rows_per_sub_group}"
            )
        if self.phase not in PHASES:
            raise ScheduleError(f"expected a phase of {', '.join(PHASES)}, got {self.phase!r}")

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored element."""
        return STORAGE_BYTES[self.mlp.dtype]

    @property
    def weights(self) -> int:
        """Weights of all layers, in elements."""
        return sum(k * n for k, n in self.mlp.shapes)

    @property
    def groups(self) -> float:
        """Work-groups; at least one, and a fraction for a batch that is no multiple of them."""
        return max(1.0, self.batch / self.rows)

    @property
    def sub_groups(self) -> int:
        """Sub-groups that have rows."""
        return math.ceil(self.batch / self.rows_per_sub_group)


def flops(plan: Plan) -> float:
    """Useful flop of a phase: each product of forward, backward-data and weight gradients is as
    large as the forward one."""
    products = {"training": 3}.get(plan.phase, 1)
    return float(products * plan.mlp.flops(plan.batch))


def global_bytes(plan: Plan, cache_bytes: int = 0, l2_bytes: int = 0) -> float:
    """Bytes to and from global memory.

    With widths k_l -> n_l, s bytes an element, batch M and R rows per work-group:
    fused inference is s M (k_0 + n_last) + s (M/R) sum(k_l n_l); unfused inference is
    s M sum(k_l + n_l) + s sum(k_l n_l).  A tensor of up to ``cache_bytes`` is read once, and
    an intermediate one that small never leaves the cache.  Weights that are not staged are read
    once if they are up to ``l2_bytes``.
    """
    if plan.phase == "training":
        return _training_bytes(plan, cache_bytes, l2_bytes)
    if plan.phase == "weight_gradients":
        return _gradient_bytes(plan)
    element = plan.element_bytes
    rows = plan.batch * element
    loads = (plan.groups if plan.staged else plan.sub_groups) if plan.fused else 1
    if plan.weights * element <= (cache_bytes if plan.staged else max(cache_bytes, l2_bytes)):
        loads = 1
    count = _fused_elements if plan.fused else _unfused_elements
    return rows * count(plan, cache_bytes) + element * loads * plan.weights


def _fused_elements(plan: Plan, cache_bytes: int) -> int:
    """Activation elements per row of a fused phase.

    Forward for training also stores its input and every hidden tensor, as the paper has it.
    Backward-data reads the output's gradient and every stored tensor, and stores each layer's
    gradient and the input's.
    """
    first, *outputs = plan.mlp.widths
    ends = first + outputs[-1]
    if plan.phase == "inference":
        return ends
    if plan.phase == "forward":
        return ends + first + sum(outputs[:-1])
    return outputs[-1] + 2 * sum(outputs) + first


def _unfused_elements(plan: Plan, cache_bytes: int) -> int:
    """Activation elements per row with one kernel per layer, epilogues fused."""
    first, *outputs = plan.mlp.widths
    hidden = [
        width
        for width in outputs[:-1]
        if plan.batch * width * plan.element_bytes > cache_bytes or plan.phase != "inference"
    ]
    if plan.phase == "backward_data":
        # The output's gradient times its derivative, then per layer: gradient in, tensor, out.
        return 3 * outputs[-1] + sum(outputs) + 2 * sum(outputs[:-1]) + first
    return first + 2 * sum(hidden) + outputs[-1]


def _gradient_bytes(plan: Plan) -> float:
    """Weight gradients A^T D as products of their own, or as sums inside the backward kernel."""
    if plan.fused and plan.fused_gradients:
        # One partial sum per work-group, written and read once by the reduction, then stored.
        return plan.weights * (2 * ACCUMULATOR_BYTES * plan.groups + plan.element_bytes)
    read = sum(k + n for k, n in plan.mlp.shapes)
    return plan.element_bytes * (plan.batch * read + plan.weights)


def _training_bytes(plan: Plan, cache_bytes: int, l2_bytes: int) -> float:
    parts: tuple[Phase, ...] = ("forward", "backward_data", "weight_gradients")
    total = sum(global_bytes(replace(plan, phase=part), cache_bytes, l2_bytes) for part in parts)
    if plan.fused and plan.fused_gradients:
        # Layers' gradients stay on chip; the input is read once more for the first layer's.
        _, *outputs = plan.mlp.widths
        total -= plan.batch * plan.element_bytes * (sum(outputs) - plan.mlp.widths[0])
    return total


def shared_bytes(plan: Plan) -> float:
    """Bytes to and from shared memory in one pass over the layers.

    Activations in registers: each layer's weights are written once per work-group and read once
    per sub-group.  Activations in shared memory: read once and written once per layer, and the
    weights pass once.  (tiny-cuda-nn's warps each read the whole block row, so that this is the
    least possible; the paper's 25.6 flop/B follows from it.)
    """
    if not plan.fused or not (plan.staged or plan.activations == "shared"):
        return 0.0
    passes = {"training": 2, "weight_gradients": 0}.get(plan.phase, 1)
    if plan.activations == "shared":
        elements = plan.batch * sum(k + n for k, n in plan.mlp.shapes) + plan.groups * plan.weights
    else:
        elements = plan.weights * (plan.groups + plan.batch / plan.rows_per_sub_group)
    return float(passes * plan.element_bytes * elements)


def cached_bytes(plan: Plan) -> float:
    """Bytes of weights that sub-groups read through the device's cache, where not staged."""
    if not plan.fused or plan.staged or plan.activations == "shared":
        return 0.0
    passes = {"training": 2, "weight_gradients": 0}.get(plan.phase, 1)
    return float(passes * plan.element_bytes * plan.weights * plan.sub_groups)


def shared_capacity(plan: Plan) -> int:
    """Bytes of shared memory per work-group: the largest layer's weights, or the block's rows."""
    if not plan.fused:
        return 0
    largest = max(k * n for k, n in plan.mlp.shapes)
    capacity = largest * plan.element_bytes if plan.staged else 0
    if plan.activations == "shared":
        capacity = plan.rows * max(plan.mlp.widths) * plan.element_bytes
    if plan.fused_gradients and plan.phase in {"training", "weight_gradients"}:
        capacity += largest * ACCUMULATOR_BYTES
    return capacity


def registers(plan: Plan, tile: tuple[int, int, int]) -> int:
    """Register bytes per sub-group: TM K s + TM N 4 + TK TN s, for the hungriest layer.

    ``tile`` is (TM, TK, TN) of the matrix instruction; widths are padded to TK and TN, and a
    sub-group owns ``rows_per_sub_group`` rows.
    """
    _, depth, columns = tile
    rows = plan.rows_per_sub_group
    return max(
        rows * _padded(k, depth) * plan.element_bytes
        + rows * _padded(n, columns) * ACCUMULATOR_BYTES
        + depth * columns * plan.element_bytes
        for k, n in plan.mlp.shapes
    )


def _padded(width: int, tile: int) -> int:
    return -(-width // tile) * tile


def padding(plan: Plan, tile: tuple[int, int, int]) -> float:
    """Factor by which padding to the matrix instruction's tile multiplies the work."""
    _, depth, columns = tile
    padded = sum(_padded(k, depth) * _padded(n, columns) for k, n in plan.mlp.shapes)
    return padded / plan.weights
