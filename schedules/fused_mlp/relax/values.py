"""Definitions and uses of the variables of one Relax dataflow block."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import relax
from tvm.ir import Call, Op

from ..graph.values import Product, Value, Values
from ..packing import Array


def op_name(call: Value) -> str:
    """``matmul`` for a call of ``relax.matmul``; empty for everything else."""
    if isinstance(call, Call) and isinstance(call.op, Op):
        return str(call.op.name).removeprefix("relax.")
    return ""


def literal(value: Value) -> Array | None:
    """The tensor that a constant holds.  A parameter is none, whatever may be bound to it."""
    data = getattr(value, "value", None)
    return data.numpy() if data is not None and hasattr(data, "numpy") else None


def dims(value: Value) -> tuple[Any, ...] | None:
    """Extents, as ints or as TIR expressions where they are symbolic; None where unknown."""
    shape = getattr(getattr(value, "ty", None), "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return tuple(int(d) if hasattr(d, "value") else d for d in shape.values)


class BlockValues(Values):
    """Who defines and who uses what in a dataflow block; a value is the variable it is bound to."""

    def __init__(self, block: relax.DataflowBlock) -> None:
        self._bindings = {binding.var: binding for binding in block.bindings}
        super().__init__(list(self._bindings))
        for binding in block.bindings:
            for used in self.inputs(binding.var):
                self.users.setdefault(used, []).append(binding.var)

    def _definition(self, value: Value) -> Value:
        """The expression that defines a variable of this block; None for other values."""
        binding = self._bindings.get(value) if isinstance(value, relax.Var) else None
        return binding.value if isinstance(binding, relax.VarBinding) else None

    def op(self, value: Value) -> str:
        """See ``Values.op``."""
        return op_name(self._definition(value))

    def operands(self, value: Value) -> list[Value]:
        """See ``Values.operands``."""
        return list(self._definition(value).args)

    def attributes(self, value: Value) -> Any:
        """See ``Values.attributes``."""
        return self._definition(value).attrs

    def inputs(self, value: Value) -> list[Value]:
        """See ``Values.inputs``; variables only."""
        binding = self._bindings.get(value)
        if binding is None:
            return []
        return list(dict.fromkeys(relax.analysis.all_vars(binding.value)))

    def renamed(self, value: Value) -> Value | None:
        """See ``Values.renamed``."""
        definition = self._definition(value)
        return definition if isinstance(definition, relax.Var) else None

    def product(self, value: Value) -> Product | None:
        """See ``Values.product``."""
        if self.op(value) != "matmul":
            return None
        operand, weight = self.operands(value)
        return Product(operand, weight, dims(weight))

    def swaps(self, value: Value) -> bool:
        """See ``Values.swaps``."""
        axes = self.attributes(value).axes
        if axes is None:
            return len(dims(self.operands(value)[0]) or ()) == 2
        return tuple(int(axis) for axis in axes) == (1, 0)

    def escapes(self, value: Value) -> bool:
        """See ``Values.escapes``."""
        return not isinstance(value, relax.DataflowVar)

    def is_variable(self, value: Value) -> bool:
        """See ``Values.is_variable``."""
        return isinstance(value, relax.Var)

    def name(self, value: Value) -> str:
        """See ``Values.name``."""
        return str(value.name)

    def array(self, value: Value) -> Array | None:
        """See ``Values.array``."""
        return literal(value)

    def dims(self, value: Value) -> tuple[Any, ...] | None:
        """See ``Values.dims``."""
        return dims(value)

    def dtype(self, value: Value) -> str:
        """See ``Values.dtype``."""
        return str(getattr(getattr(value, "ty", None), "dtype", None) or "")

    def same_shape(self, left: Value, right: Value) -> bool:
        """See ``Values.same_shape``."""
        if dims(left) is None or dims(right) is None:
            return False
        return bool(tvm_ffi.structural_equal(left.ty.shape, right.ty.shape))
