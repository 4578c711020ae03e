"""What the GPU templates share: the function's frame, declaring buffers, choosing knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm

from tunerplugin.errors import ScheduleError
from tunerplugin.integrations.compat import NOALIAS, IRBuilder, T, tirx
from tunerplugin.space import ListSpace, Value

from ..description import MLP
from ..packing import Packing
from ..template import ENTRY


def chosen_knobs(
    space: ListSpace, defaults: Mapping[str, Value], given: Mapping[str, Value]
) -> dict[str, Any]:
    """The defaults with the knobs that were given, in the order of the space.

    Raises ``ScheduleError`` for an unknown knob and for a candidate outside the space.
    """
    if unknown := sorted(set(given) - set(space.names)):
        raise ScheduleError(f"expected knobs of {', '.join(space.names)}, got {unknown}")
    chosen = {name: given.get(name, defaults[name]) for name in space.names}
    if not space.contains(list(chosen.values())):
        raise ScheduleError(f"expected knobs of the template's space, got {chosen}")
    return chosen


def too_many_arguments(mlp: MLP, target: Any) -> str | None:
    """Why a kernel with one buffer for each weight and bias cannot be; else ``None``."""
    arguments = 3 + mlp.layers + sum(mlp.bias)  # input, output and batch besides
    most = int(tvm.target.Target(target).attrs["max_function_args"])
    return f"{arguments} arguments; a kernel has at most {most}" if arguments > most else None


def prim_func(emit: Callable[[], None]) -> Any:
    """The PrimFunc called ``ENTRY`` of the parameters and statements that ``emit`` adds."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(ENTRY)
            T.func_attr({"global_symbol": ENTRY, NOALIAS: True})
            emit()
    return builder.get()


class Parameters:
    """A kernel's buffers, declared in the order that ``FusedKernel`` has, and its batch.

    To be made inside the PrimFunc's frame.  ``x``, ``weights``, ``biases`` (``None`` for a layer
    without) and ``y``; ``batch`` is a number or a symbolic variable.  ``partial``: the last
    work-group of ``rows`` rows may reach beyond the batch.
    """

    def __init__(
        self, mlp: MLP, batch: int | None, packings: tuple[Packing, ...], rows: int
    ) -> None:
        self.batch: Any = tirx.Var("batch", "int32") if batch is None else batch
        self.partial = batch is None or batch % rows != 0
        self.groups = (self.batch + rows - 1) // rows
        self.x = _parameter("x", (self.batch, mlp.widths[0]), mlp.dtype)
        self.weights: list[Any] = []
        self.biases: list[Any] = []
        for layer, packing in enumerate(packings):
            self.weights.append(_parameter(f"w{layer}", packing.shape, mlp.dtype))
            bias = mlp.bias[layer]
            shape = (packing.n_padded,)
            self.biases.append(_parameter(f"b{layer}", shape, "float32") if bias else None)
        self.y = _parameter("y", (self.batch, mlp.widths[-1]), mlp.dtype)

    def existing_row(self, row: Any) -> Any:
        """``row``, or the last row of the batch where the work-group reaches beyond it."""
        return tirx.min(row, self.batch - 1) if self.partial else row


def _parameter(name: str, shape: tuple[Any, ...], dtype: str) -> Any:
    buffer = T.match_buffer(T.arg(name, T.handle()), shape, dtype)
    IRBuilder.name(name, buffer)
    return buffer


def allocated(name: str, elements: int, dtype: str, scope: str = "local") -> Any:
    """A named buffer with one axis in registers (``local``) or shared memory (``shared``)."""
    buffer = T.alloc_buffer((elements,), dtype, scope=scope)
    IRBuilder.name(name, buffer)
    return buffer


def flat(buffer: Any) -> Any:
    """A view of a buffer with one axis."""
    elements = 1
    for extent in buffer.shape:
        elements *= int(extent)
    view = T.decl_buffer((elements,), buffer.dtype, data=buffer.data)
    IRBuilder.name(f"{buffer.name}_flat", view)
    return view
