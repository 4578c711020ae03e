"""Replacing a chain of dense layers by one call of a fused kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, topi

from tunerplugin.integrations.compat import SCHEDULED

from ..graph.chains import Chain
from ..graph.packed import Packer
from ..graph.values import Parameter, Value
from ..packing import Array, Packing
from ..template import FusedKernel
from .sources import amend_at_build, kernel_name
from .values import dims, literal

# TVM's OpPatternKind kOpaque: operator fusion must leave the kernel as it is.
OPAQUE = 8


def _constant(array: Array) -> Value:
    return relax.const(array, str(array.dtype))


def _transposing(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def transposing(stored: Any) -> Any:
        return compute(topi.transpose(stored))

    return transposing


def _shape(value: Value) -> tuple[Any, ...]:
    shape = dims(value)
    assert shape is not None, "a chain's tensors have known shapes"
    return shape


@relax.expr_functor.mutator
class Fuse(relax.PyExprMutator):  # type: ignore[misc]  # TVM has no types
    """Replaces the chains of one function; every other binding stays as it is.

    ``kernels``: the chain's output variable -> the chain and its kernel.  Equal kernels become one
    function of the module.
    """

    def __init__(
        self, mod: Any, target: Any, kernels: Mapping[Value, tuple[Chain, FusedKernel]]
    ) -> None:
        super().__init__(mod)
        self._target = target
        self._kernels = kernels
        self._dropped = {variable for chain, _ in kernels.values() for variable in chain.dropped}
        self._functions: dict[str, Any] = {}
        self._packer = Packer(literal, _constant, self._emit_weight, self._emit_bias)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> Value:
        """Packed weights are shared within a block only: variables do not leave it."""
        self._packer.forget()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Drops what is inside a chain, and puts the call in the place of its output."""
        if binding.var in self._dropped:
            return
        if binding.var not in self._kernels:
            super().visit_var_binding_(binding)
            return
        result = self._call(*self._kernels[binding.var], _shape(binding.var))
        inner = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if inner else self.builder_.emit_output
        self.set_var_remap(binding.var, emit(result, binding.var.name))

    def _call(self, chain: Chain, kernel: FusedKernel, shape: tuple[Any, ...]) -> Value:
        mlp, rows = kernel.mlp, chain.rows
        operand = self._reshaped(self.visit_expr(chain.input), (rows, mlp.widths[0]))
        arguments = [operand, *self._packer.arguments(chain, kernel)]
        two_dimensional = (rows, mlp.widths[-1])
        call = relax.call_tir(
            self._function(kernel), arguments, relax.TensorType(two_dimensional, mlp.dtype)
        )
        if len(shape) == 2:
            return call
        return relax.op.reshape(self.builder_.emit(call), shape)

    def _reshaped(self, value: Value, shape: tuple[Any, ...]) -> Value:
        if len(_shape(value)) == len(shape):
            return value
        return self.builder_.emit(relax.op.reshape(value, shape))

    def _emit_weight(self, weight: Parameter, packing: Packing) -> Value:
        """A call that packs a weight.

        It is a function of a parameter alone, so ``LiftTransformParams`` can move it to compile
        time.
        """
        compute = _transposing(packing.compute) if weight.transposed else packing.compute
        source = self.visit_expr(weight.source)
        return self.builder_.emit_te(compute, source, primfunc_name_hint="pack_weight")

    def _emit_bias(self, bias: Parameter, packing: Packing) -> Value:
        """A call that packs a bias, in the same way."""
        row = self._reshaped(self.visit_expr(bias.source), (packing.n,))
        return self.builder_.emit_te(packing.compute_bias, row, primfunc_name_hint="pack_bias")

    def _function(self, kernel: FusedKernel) -> Any:
        name = kernel_name(kernel, self._target)
        if name not in self._functions:
            amend_at_build(kernel, name)
            function = kernel.func.without_attr("global_symbol")
            # dlight and MetaSchedule leave alone what is scheduled, operator fusion what is opaque.
            for attribute, value in ((SCHEDULED, True), ("op_pattern", OPAQUE)):
                function = function.with_attr(attribute, value)
            self._functions[name] = self.builder_.add_func(function, name)
        return self._functions[name]
