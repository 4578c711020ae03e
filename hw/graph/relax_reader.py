"""Reads the bindings of a Relax function, in order, into a ``Builder``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import GraphError
from . import matrix
from .aten import UNKNOWN, Count, Rule
from .builder import Builder, Tensor, Work
from .operator import DTYPE_BYTES, Gemm, Kind, Phase, Shape
from .relax_rules import CONSTANTS, RULES_OF_RELAX, SLICES, VIEWS

Module = Any  # tvm.IRModule; the wheel has no types
Expr = Any
Value = Any  # a Tensor, a (nested) tuple of them, or None for what is no tensor


def bindings(function: Expr) -> list[Expr]:
    """All bindings of a function's blocks.  Raises ``GraphError`` for one without blocks."""
    from tvm import relax

    if not isinstance(function.body, relax.SeqExpr):
        raise GraphError("expected a Relax function with bindings; normalise the module first")
    return [binding for block in function.body.blocks for binding in block.bindings]


def shape_of(type_: Expr, what: str) -> Shape:
    """The fixed shape of a tensor type.  Raises ``GraphError`` for a symbolic one."""
    from tvm import relax

    shape: Any = getattr(type_, "shape", None)
    fixed = isinstance(shape, relax.ShapeExpr) and all(hasattr(d, "value") for d in shape.values)
    if not fixed:
        raise GraphError(
            f"{what}: expected a tensor of fixed shape, got {type_}; give values to its symbolic "
            "dimensions (sizes=)"
        )
    return tuple(int(extent) for extent in shape.values)


class RelaxReader:
    """Walks a function; ``parameters`` are its arguments by name, ``builder`` the graph."""

    def __init__(self, function: Expr, weights: Sequence[str]) -> None:
        self.builder = Builder()
        self.weights = set(weights)
        self.parameters: dict[str, Tensor] = {}
        self._values: dict[Hashable, Value] = {}
        self._unknown: set[str] = set()
        self._constants: list[Tensor] = []
        for parameter in function.params:
            value = self._fresh(parameter.ty, f"argument {parameter.name}")
            self._values[parameter] = value
            self.parameters[parameter.name] = value
            if parameter.name in self.weights:
                self.builder.weights.add(value.buffer)

    def facts(self) -> dict[str, object]:
        """Count and bytes of the weights, constants among them."""
        chosen = [self.parameters[name] for name in sorted(self.weights)] + self._constants
        return {
            "parameters": sum(tensor.elements for tensor in chosen),
            "parameter_bytes": sum(tensor.size_bytes for tensor in chosen),
        }

    def result(self, function: Expr) -> Value:
        """What the function returns."""
        return self._value(function.body.body)

    def read(self, function: Expr, ends: Mapping[Phase, int]) -> None:
        """Add all bindings; ``ends``: up to which binding each phase goes, the rest is backward."""
        for index, binding in enumerate(bindings(function)):
            later = (phase for phase, end in ends.items() if index < end)
            self._bind(binding, next(later, Phase.BACKWARD_DATA))

    def _bind(self, binding: Expr, phase: Phase) -> None:
        from tvm.ir import Call, Op

        if not hasattr(binding, "value"):  # a match_cast has one too; this is a newer kind
            raise GraphError(f"expected variable bindings, got {type(binding).__name__}")
        call = binding.value
        if not isinstance(call, Call):
            self._values[binding.var] = self._value(call)
            return
        name = str(call.op.name).removeprefix("relax.") if isinstance(call.op, Op) else "call"
        inputs = _flatten([self._value(argument) for argument in call.args])
        if name in VIEWS and inputs:
            base = inputs[0]
            if name in SLICES:
                base = replace(base, part=(base.part, binding.var))
            self._values[binding.var] = self._fresh(binding.var.ty, binding.var.name, base)
            return
        value = self._fresh(binding.var.ty, binding.var.name)
        self._values[binding.var] = value
        outputs = _flatten([value])
        if name not in CONSTANTS and outputs:
            self._add(name, call, inputs, outputs, phase)

    def _add(
        self, name: str, call: Expr, inputs: list[Tensor], outputs: list[Tensor], phase: Phase
    ) -> None:
        if name == "grad.nll_loss_backward":
            del inputs[1]  # only its shape is needed
        gemm = _gemm(name, call, inputs, outputs)
        limit: dict[Hashable, int] = {}
        if gemm is not None:
            work = Work(Kind.CONV if "conv" in name else Kind.GEMM, gemm=gemm)
        else:
            rule = RULES_OF_RELAX.get(name)
            if rule is None:
                rule = UNKNOWN
                self._warn_unknown(name)
            work = Work(rule.kind, rule.function, _elements(rule, call, inputs, outputs))
            if rule.gathers and inputs:
                limit[inputs[0].buffer] = outputs[0].size_bytes
            if rule.kind == Kind.LOSS and phase == Phase.FORWARD:
                phase = Phase.LOSS
        self.builder.add(name, work, phase, inputs, outputs, limit=limit)

    def _value(self, expr: Expr) -> Value:
        from tvm import relax
        from tvm.ir import Constant

        if isinstance(expr, relax.Tuple):
            return tuple(self._value(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if isinstance(expr, Constant) and expr not in self._values:
            constant = self._values[expr] = self._fresh(expr.ty, "a constant")
            if isinstance(constant, Tensor) and constant.shape:
                self.builder.weights.add(constant.buffer)
                self._constants.append(constant)
        return self._values.get(expr)

    def _fresh(self, type_: Expr, what: str, base: Tensor | None = None) -> Value:
        """A new buffer (or another view of ``base``) of that type."""
        from tvm import relax

        if isinstance(type_, relax.TupleType):
            parts = (base and replace(base, part=(base.part, i)) for i in range(len(type_.fields)))
            rows = zip(type_.fields, parts, strict=True)
            return tuple(self._fresh(field, what, part) for field, part in rows)
        if not isinstance(type_, relax.TensorType):
            return None
        shape, dtype = shape_of(type_, what), str(type_.dtype)
        dtype = "float8" if dtype.startswith("float8") else dtype
        if dtype not in DTYPE_BYTES:
            raise GraphError(f"{what}: expected one of {list(DTYPE_BYTES)}, got {dtype}")
        size_bytes = math.ceil(math.prod(shape) * DTYPE_BYTES[dtype])
        if base is None:
            return Tensor(object(), shape, dtype, size_bytes)
        return Tensor(base.buffer, shape, dtype, min(size_bytes, base.size_bytes), base.part)

    def _warn_unknown(self, name: str) -> None:
        if name not in self._unknown:
            self._unknown.add(name)
            warnings.warn(
                f"operator relax.{name} is not known; it counts as elementwise over its output",
                stacklevel=2,
            )


def _flatten(value: Value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _flatten(item)]
    return []


def _gemm(
    name: str, call: Expr, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Gemm | None:
    """GEMM sizes of a matrix operator, ``None`` for others."""
    if name == "matmul":
        return matrix.contraction(inputs[0].shape, inputs[1].shape)
    if name.startswith("nn.conv"):
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        transposed = name.endswith("_transpose")
        data = _reorder(inputs[0].shape, layouts[0], "NC")
        weight = _reorder(inputs[1].shape, layouts[1], "IO" if transposed else "OI")
        output = _reorder(outputs[0].shape, layouts[2] or layouts[0], "NC")
        return matrix.convolution(data, weight, output, int(attrs.groups), transposed)
    return None


def _reorder(shape: Shape, layout: str, first: str) -> Shape:
    """The shape with the axes ``first`` in front, the others in their order."""
    axes = [layout.index(axis) for axis in first]
    rest = [axis for axis in range(len(layout)) if axis not in axes]
    return tuple(shape[axis] for axis in (*axes, *rest))


def _elements(rule: Rule, call: Expr, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    first = outputs[0].elements
    if rule.count == Count.INPUT:
        return max((tensor.elements for tensor in inputs), default=first)
    if rule.count == Count.WINDOW:
        window = math.prod(int(size) for size in call.attrs.pool_size)
        return min([first, *(tensor.elements for tensor in inputs)]) * window
    return first
