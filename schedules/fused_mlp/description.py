"""What a fused MLP computes: the one description that every template takes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tunerplugin.errors import ScheduleError

MAX_WIDTH = 256
"""Widest layer, in elements: beyond it a tile of activations no longer fits next to the weights."""

Function = Literal[
    "none",
    "relu",
    "leaky_relu",
    "silu",
    "gelu",
    "gelu_tanh",
    "tanh",
    "sigmoid",
    "softplus",
    "exponential",
    "sine",
]
FUNCTIONS: tuple[Function, ...] = Function.__args__  # type: ignore[attr-defined]

DType = Literal["float32", "float16", "bfloat16"]
DTYPES: tuple[DType, ...] = DType.__args__  # type: ignore[attr-defined]

#: The parameter of the functions that have one: the slope below zero, the frequency.
_DEFAULT_PARAMETER: dict[str, float] = {"leaky_relu": 0.01, "sine": 1.0}


@dataclass(frozen=True)
class Activation:
    """An element-wise function with its parameter.

    ``leaky_relu``: the slope below zero (default 0.01).  ``sine``: omega in sin(omega x) (default
    1; Sitzmann et al., NeurIPS 2020, use 30).  ``gelu`` is the exact one, ``gelu_tanh`` its usual
    approximation.  The other functions take no parameter.  Raises ``ScheduleError`` for an
    unknown function or a parameter it does not have.
    """

    function: Function = "none"
    parameter: float | None = None

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise ScheduleError(
                f"expected an activation of {', '.join(FUNCTIONS)}, got {self.function!r}"
            )
        default = _DEFAULT_PARAMETER.get(self.function)
        if self.parameter is None:
            object.__setattr__(self, "parameter", default)
        elif default is None or not _is_finite(self.parameter):
            raise ScheduleError(
                f"expected a finite parameter for {' or '.join(_DEFAULT_PARAMETER)} only, "
                f"got {self.function}({self.parameter})"
            )
        else:
            object.__setattr__(self, "parameter", float(self.parameter))


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


@dataclass(frozen=True)
class Residual:
    """A skip connection: the rows of tensor ``source`` are added to a layer's output.

    Tensor 0 is the input of the MLP, tensor i the output of layer i - 1.  ``before_activation``
    says whether it is added to the layer's sum before its activation, or to the result after it.
    """

    source: int
    before_activation: bool = False


#: What the fields hold for each layer.
_ENTRIES: dict[str, tuple[type, ...]] = {
    "activations": (Activation,),
    "bias": (bool,),
    "residuals": (Residual, type(None)),
}


def _whole_widths(widths: Sequence[int]) -> tuple[int, ...]:
    try:
        whole = tuple(operator.index(width) for width in widths)
    except TypeError:
        whole = ()
    if len(whole) != len(widths) or not all(1 <= width <= MAX_WIDTH for width in whole):
        raise ScheduleError(f"expected widths of 1 to {MAX_WIDTH}, got {widths}")
    return whole


@dataclass(frozen=True)
class MLP:
    """h[0] = x; h[i + 1] = act_i(h[i] W_i + b_i (+ h[s])) (+ h[s]); y = h[layers].

    ``widths`` holds one number more than there are layers: ``widths[i]`` columns go into layer i,
    ``widths[i + 1]`` come out, so W_i has the shape (widths[i], widths[i + 1]) and b_i
    (widths[i + 1],).  ``activations``, ``bias`` and ``residuals`` hold one entry per layer.
    Tensors are stored as ``dtype``; sums are kept in float32 whatever it is, and the activation is
    applied to the float32 sum.  Raises ``ScheduleError`` for what cannot be.

    >>> MLP.uniform(64, layers=4, activation="relu").widths
    (64, 64, 64, 64, 64)
    """

    widths: tuple[int, ...]
    activations: tuple[Activation, ...]
    bias: tuple[bool, ...]
    dtype: DType = "float32"
    residuals: tuple[Residual | None, ...] = ()

    def __post_init__(self) -> None:
        # Equal descriptions must print alike too: records of tuning are found by what they print.
        object.__setattr__(self, "widths", _whole_widths(self.widths))
        if not self.residuals:
            object.__setattr__(self, "residuals", (None,) * self.layers)
        if self.layers < 1:
            raise ScheduleError(f"expected at least two widths, got {self.widths}")
        for name, kinds in _ENTRIES.items():
            object.__setattr__(self, name, self._entries(name, kinds))
        if self.dtype not in DTYPES:
            raise ScheduleError(f"expected a dtype of {', '.join(DTYPES)}, got {self.dtype!r}")
        for layer, residual in enumerate(self.residuals):
            if residual is not None:
                self._check_residual(layer, residual)

    def _entries(self, name: str, kinds: tuple[type, ...]) -> tuple[Any, ...]:
        """A field with one entry of one of ``kinds`` per layer, as a tuple."""
        given = getattr(self, name)
        if not isinstance(given, (tuple, list)) or len(given) != self.layers:
            got = len(given) if isinstance(given, (tuple, list)) else repr(given)
            raise ScheduleError(f"expected {self.layers} {name}, one per layer, got {got}")
        for entry in given:
            if not isinstance(entry, kinds):
                named = " or ".join(kind.__name__.removesuffix("Type") for kind in kinds)
                raise ScheduleError(f"expected {name} of type {named}, got {entry!r}")
        return tuple(given)

    def _check_residual(self, layer: int, residual: Residual) -> None:
        if not 0 <= residual.source <= layer:
            raise ScheduleError(
                f"expected layer {layer} to add one of the tensors 0 to {layer}, "
                f"got {residual.source}"
            )
        if self.widths[residual.source] != self.widths[layer + 1]:
            raise ScheduleError(
                f"expected a residual between equal widths, got {self.widths[residual.source]} "
                f"(tensor {residual.source}) and {self.widths[layer + 1]} (layer {layer})"
            )

    @classmethod
    def of(
        cls,
        widths: Sequence[int],
        activation: Activation | Function = "relu",
        last: Activation | Function = "none",
        *,
        bias: bool = True,
        dtype: DType = "float32",
        residuals: Sequence[Residual | None] = (),
    ) -> MLP:
        """An MLP with one activation in all layers but the last, which has ``last``."""
        inner = activation if isinstance(activation, Activation) else Activation(activation)
        outer = last if isinstance(last, Activation) else Activation(last)
        layers = len(widths) - 1
        return cls(
            tuple(widths),
            (*(inner,) * (layers - 1), outer) if layers > 0 else (),
            (bias,) * layers,
            dtype,
            tuple(residuals),
        )

    @classmethod
    def uniform(
        cls,
        width: int,
        layers: int,
        activation: Activation | Function = "relu",
        *,
        bias: bool = True,
        dtype: DType = "float32",
    ) -> MLP:
        """``layers`` square layers of one width, the last one linear: the paper's benchmark."""
        return cls.of((width,) * (layers + 1), activation, bias=bias, dtype=dtype)

    @property
    def layers(self) -> int:
        """Number of layers, i.e. of matrix products."""
        return len(self.widths) - 1

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of every layer."""
        return tuple(zip(self.widths[:-1], self.widths[1:], strict=True))

    def flops(self, batch: int) -> int:
        """Floating-point operations of the matrix products of one inference (2 per FMA)."""
        return 2 * batch * sum(k * n for k, n in self.shapes)
