"""What every fused-MLP template is and hands out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tunerplugin.errors import ScheduleError
from tunerplugin.space import ListSpace, Prefix, Value

from .description import MLP
from .packing import Packing

Array = npt.NDArray[Any]

ENTRY = "fused_mlp"
"""The global symbol of a fused kernel's PrimFunc."""


def check_batch(batch: int | None) -> None:
    """Raise ``ScheduleError`` for a batch that is neither None nor a whole number of at least 1."""
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise ScheduleError(f"expected a batch of at least 1, or None, got {batch!r}")


@dataclass(frozen=True)
class Launch:
    """What starts a GPU kernel outside TVM's own runtime, and what its source needs before.

    ``rows`` of the batch are one work-group's, which has ``threads`` work-items in x, y and z.
    ``amend`` rewrites the source that TVM generates (TVM has no attribute for a required sub-group
    size, say); ``build_options`` go to the device's compiler.
    """

    rows: int
    threads: tuple[int, int, int]
    sub_group: int | None = None
    shared_bytes: int = 0
    amend: Callable[[str], str] | None = None
    build_options: tuple[str, ...] = ()

    def groups(self, batch: int) -> int:
        """Work-groups that a batch needs; the last may be partly idle."""
        return -(-batch // self.rows)


@dataclass(frozen=True)
class FusedKernel:
    """A scheduled kernel and how to call it.

    ``func`` is a scheduled PrimFunc called ``ENTRY``.  Its parameters, in this order: the input
    (batch, widths[0]); for each layer the weight as ``weights[layer]`` packs it and, if the layer
    has a bias, the bias as the same packing pads it, in float32; the output (batch, widths[-1]).
    Input and output have the MLP's dtype and no padding.  ``batch`` None: symbolic, any batch of
    at least 1.  ``knobs`` are those it was built with, the defaults among them.
    """

    mlp: MLP
    batch: int | None
    func: Any = field(repr=False)
    weights: tuple[Packing, ...]
    knobs: Mapping[str, Value]
    launch: Launch | None = None

    def __post_init__(self) -> None:
        check_batch(self.batch)
        if len(self.weights) != self.mlp.layers:
            raise ScheduleError(
                f"expected {self.mlp.layers} packings, one per layer, got {len(self.weights)}"
            )

    def pack(self, parameters: Sequence[tuple[Array, Array | None]]) -> list[Array]:
        """The arguments between input and output, from each layer's weight (k, n) and bias (n,).

        Raises ``ScheduleError`` for a wrong number, a wrong shape, or a bias where there is none.
        """
        if len(parameters) != self.mlp.layers:
            raise ScheduleError(
                f"expected parameters of {self.mlp.layers} layers, got {len(parameters)}"
            )
        arguments: list[Array] = []
        for layer, (weight, bias) in enumerate(parameters):
            if (bias is not None) != self.mlp.bias[layer]:
                raise ScheduleError(
                    f"expected {'a' if self.mlp.bias[layer] else 'no'} bias in layer {layer}"
                )
            arguments.append(self.weights[layer].apply(np.asarray(weight)))
            if bias is not None:
                arguments.append(self.weights[layer].apply_bias(np.asarray(bias)))
        return arguments


Build = Callable[..., FusedKernel]
"""A template's function ``fused_mlp(mlp, batch, target, *, ...)``.

``batch`` None: symbolic.  The keyword knobs' defaults are a good untuned schedule.  Raises
``ScheduleError`` for an MLP that ``supports`` refuses, and for knobs that cannot be.
"""


@dataclass(frozen=True)
class Template:
    """One way to fuse an MLP on one kind of target.

    ``build`` is the schedule; ``space(mlp, target)`` has one knob for each keyword of ``build``
    that can be tuned, under the same name; ``supports(mlp, target)`` says in one line why not, or
    None.  ``target`` is a ``tvm.target.Target`` or what makes one.  ``standalone``: its
    kernels must stay functions of their own, because their source is amended by name or because
    they see an argument through two buffers.
    """

    name: str
    build: Build
    space: Callable[[MLP, Any], ListSpace]
    supports: Callable[[MLP, Any], str | None]
    standalone: bool = False


def knobs_of(space: ListSpace, values: Prefix) -> dict[str, Value]:
    """A candidate of a template's space as the keywords of its ``build``."""
    return dict(zip(space.names, values, strict=True))
