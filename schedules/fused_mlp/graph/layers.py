"""One dense layer: a product, its bias, activation and residual, wherever importers put them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..description import DTYPES, MAX_WIDTH, Activation
from .activations import ELEMENTWISE, match_activation
from .values import Parameter, Product, Value, Values

# Softplus with bias, residual and three reshapes takes 12 operators.
_DEEPEST = 24


@dataclass(frozen=True)
class Dense:
    """A product of ``operand`` of (``rows``, ``inputs``) and a weight of (inputs, ``outputs``).

    ``rows`` are all of the operand's leading extents, an expression where one is not static.
    """

    product: Value
    operand: Value
    weight: Parameter
    rows: Any
    inputs: int
    outputs: int
    dtype: str


@dataclass(frozen=True)
class Layer:
    """``output`` = activation(product + bias (+ residual)) (+ residual)."""

    dense: Dense
    output: Value
    activation: Activation
    bias: Parameter | None
    residual: Value | None
    before_activation: bool

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and, where there is one, bias."""
        return (self.dense.weight,) if self.bias is None else (self.dense.weight, self.bias)


@dataclass(frozen=True)
class Refusal:
    """A product that is no layer of an MLP, and why."""

    product: Value
    reason: str


def as_dense(values: Values, product: Value, found: Product) -> Dense | Refusal:
    """The layer's product that ``found``, the definition of ``product``, is; or why it is none."""
    operand, weight = found.operand, found.weight
    given, shape = values.dims(operand), found.shape
    dtypes = {values.dtype(operand), values.dtype(weight)}
    if given is None or shape is None:
        reason = "a shape that is not known"
    elif len(shape) != 2 or len(given) < 2:
        reason = f"batched weight of shape {_text(shape)}, expected (inputs, outputs)"
    elif not all(isinstance(extent, int) for extent in shape):
        reason = f"weight of symbolic shape {_text(shape)}"
    elif max(shape) > MAX_WIDTH:
        reason = f"width {max(shape)}, expected at most {MAX_WIDTH}"
    elif len(dtypes) > 1 or not dtypes <= set(DTYPES):
        reason = f"dtype {' and '.join(sorted(dtypes))}, expected one of {', '.join(DTYPES)}"
    else:
        parameter = values.parameter(weight)
        if found.transposed:
            parameter = replace(parameter, transposed=not parameter.transposed)
            shape = shape[::-1]
        rows = math.prod(given[:-1])
        return Dense(product, operand, parameter, rows, *shape, values.dtype(operand))
    return Refusal(product, reason)


def _text(shape: tuple[Any, ...]) -> str:
    return "(" + ", ".join(str(extent) for extent in shape) + ")"


def layers_of(values: Values, dense: Dense) -> list[Layer]:
    """All layers that a product can be part of, the one with most operators first."""
    layers = []
    for value in reversed(values.descendants(dense.product, through=ELEMENTWISE)[:_DEEPEST]):
        whole = values.root(value).same_as(value) or values.op(value) == "astype"
        if whole and values.dtype(value) == dense.dtype:
            layer = _layer(values, dense, value)
            if layer is not None:
                layers.append(layer)
    return layers


def _layer(values: Values, dense: Dense, output: Value) -> Layer | None:
    """``output`` as a layer around ``dense``; None where it is none."""
    result = values.root(output)
    plain = _linear(values, dense, result)
    if plain is not None:
        bias, residual = plain
        return Layer(dense, output, Activation("none"), bias, residual, False)
    inner = _activated(values, dense, result)
    if inner is not None:
        activation, bias, residual = inner
        return Layer(dense, output, activation, bias, residual, residual is not None)
    if values.op(result) != "add":
        return None
    left, right = values.args(result)
    for value, residual in ((left, right), (right, left)):
        inner = _activated(values, dense, value)
        if inner is not None and inner[2] is None and _is_residual(values, result, residual):
            return Layer(dense, output, inner[0], inner[1], residual, False)
    return None


def _activated(
    values: Values, dense: Dense, value: Value
) -> tuple[Activation, Parameter | None, Value | None] | None:
    for activation, argument in match_activation(values, value):
        inner = _linear(values, dense, argument)
        if inner is not None:
            return activation, *inner
    return None


def _linear(
    values: Values, dense: Dense, value: Value
) -> tuple[Parameter | None, Value | None] | None:
    """(bias, residual) of product (+ bias) (+ residual), in any order; None for anything else."""
    value = values.root(value)
    if value.same_as(dense.product):
        return None, None
    if values.op(value) != "add":
        return None
    arguments = values.operands(value)
    for inner, addend in zip(arguments, arguments[::-1], strict=True):
        found = _linear(values, dense, inner)
        if found is None:
            continue
        bias, residual = found
        if bias is None and _is_bias(values, dense, value, addend):
            return values.parameter(addend), residual
        if residual is None and _is_residual(values, value, addend):
            return bias, values.root(addend)
    return None


def _is_bias(values: Values, dense: Dense, total: Value, addend: Value) -> bool:
    """One number per column: (n,), (1, n) and so on.

    In a batch of one row a variable of that row's shape is taken for a residual.
    """
    shape = values.dims(addend)
    return (
        shape is not None
        and shape[-1:] == (dense.outputs,)
        and all(isinstance(extent, int) and extent == 1 for extent in shape[:-1])
        and values.dtype(addend) in {dense.dtype, "float32"}
        and (values.array(addend) is not None or shape != values.dims(total))
    )


def _is_residual(values: Values, total: Value, addend: Value) -> bool:
    """Added without broadcasting, whatever the rows are grouped into."""
    total = values.root(total)
    return values.op(total) == "add" and all(
        values.same_shape(total, side) for side in values.operands(total)
    )
