"""Replacing a chain of dense layers by one call of the fused operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from ..graph.chains import Chain
from ..graph.packed import Packer
from ..graph.values import Parameter, Value
from ..packing import BIAS_DTYPE, Array, Packing
from ..template import FusedKernel
from .operator import fused_call
from .values import FunctionValues, dims, literal


@dataclass(frozen=True)
class Replacement:
    """A chain and the kernel that takes its place; ``tunable``: AutoTVM may change its knobs."""

    chain: Chain
    kernel: FusedKernel
    template: str
    tunable: bool


class Fuse(relay.ExprMutator):  # type: ignore[misc]  # TVM has no types
    """Replaces the chains of one function; every other expression stays the object that it was."""

    def __init__(self, chosen: Mapping[Value, Replacement]) -> None:
        super().__init__()
        self._chosen = chosen
        self._dropped = {value for found in chosen.values() for value in found.chain.dropped}
        self._packer = Packer(literal, _constant, self._emit_weight, self._emit_bias)

    def rewritten(self, function: Value, regions: Iterable[FunctionValues]) -> Value:
        """The function with its chains fused.

        Expressions are visited in their order, so that Python's recursion stays shallow however
        deep the model is.
        """
        for region in reversed(list(regions)):
            for value in region.order:
                if value not in self._dropped:
                    self.visit(value)
        return self.visit(function)

    def visit(self, expr: Value) -> Value:
        """The expression rewritten; the fused call in the place of a chain's output."""
        if expr in self._chosen and expr not in self.memo_map:
            self.memo_map[expr] = self._fused(self._chosen[expr], dims(expr) or ())
        return super().visit(expr)

    def visit_let(self, let: Value) -> Value:
        """Drops a variable that lies inside a chain."""
        return self.visit(let.body) if let.var in self._dropped else super().visit_let(let)

    def _fused(self, replacement: Replacement, shape: tuple[Any, ...]) -> Value:
        chain, kernel = replacement.chain, replacement.kernel
        operand = _two_dimensional(self.visit(chain.input), dims(chain.input))
        arguments = [operand, *self._packer.arguments(chain, kernel)]
        call = fused_call(kernel, replacement.template, arguments, tunable=replacement.tunable)
        return call if len(shape) == 2 else relay.reshape(call, _inferred(shape))

    def _emit_weight(self, weight: Parameter, packing: Packing) -> Value:
        """Operators that pack a weight.

        These read a parameter alone, so that ``relay.build`` folds them where the parameter is
        bound; where it is not, they run with the model.
        """
        matrix = _cast(self.visit(weight.source), weight.source, packing.dtype)
        shape = dims(weight.source) or ()
        if len(shape) > 2:
            matrix = relay.reshape(matrix, shape[-2:])
        return _pack(matrix, weight.transposed, packing)

    def _emit_bias(self, bias: Parameter, packing: Packing) -> Value:
        """Operators that pack a bias, in the same way."""
        row = self.visit(bias.source)
        if len(dims(bias.source) or ()) > 1:
            row = relay.reshape(row, (-1,))
        row = _cast(row, bias.source, BIAS_DTYPE)
        return _padded(row, (packing.n,), (packing.n_padded,))


def dynamic_extents(value: Value) -> int:
    """How many extents of a tensor are not static; one can be inferred from the others."""
    return sum(not isinstance(extent, int) for extent in dims(value) or ())


def _two_dimensional(value: Value, shape: tuple[Any, ...] | None) -> Value:
    assert shape is not None, "a chain's tensors have known shapes"
    return value if len(shape) == 2 else relay.reshape(value, (-1, shape[-1]))


def _inferred(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(extent if isinstance(extent, int) else -1 for extent in shape)


def _constant(array: Array) -> Value:
    return relay.Constant(tvm.nd.array(array))


def _pack(weight: Value, transposed: bool, packing: Packing) -> Value:
    """``Packing.apply`` in Relay's operators, of a weight (k, n), or (n, k) where transposed."""
    matrix = relay.transpose(weight, (1, 0)) if transposed else weight
    padded = _padded(matrix, (packing.k, packing.n), (packing.k_padded, packing.n_padded))
    split = relay.reshape(padded, (*packing.k_factors, *packing.n_factors))
    return relay.transpose(split, packing.order)


def _cast(value: Value, source: Value, dtype: str) -> Value:
    """``value``, made of ``source`` in its dtype, in another one."""
    return value if source.checked_type.dtype == dtype else relay.cast(value, dtype)


def _padded(value: Value, shape: tuple[int, ...], padded: tuple[int, ...]) -> Value:
    if math.prod(shape) == math.prod(padded):
        return value
    after = [(0, large - small) for small, large in zip(shape, padded, strict=True)]
    return relay.nn.pad(value, after, pad_value=0.0)
