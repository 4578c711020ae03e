"""Definitions and uses of the expressions of one Relay function.

Relay's functions are graphs: a value is an expression and has no name, so a report numbers the
calls of each operator, as in ``nn.dense_2``.  Types must have been inferred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tvm import relay
from tvm.ir import Op

from tunerplugin.integrations.compat import tirx

from ..graph.activations import ELEMENTWISE
from ..graph.values import Product, Value, Values
from ..packing import Array, numpy_dtype

# Relay's operators that Relax calls otherwise.
_NAMES = {
    "nn.dense": "matmul",
    "nn.leaky_relu": "nn.leakyrelu",
    "cast": "astype",
    "transpose": "permute_dims",
    "nn.batch_flatten": "reshape",
    "squeeze": "reshape",
    "expand_dims": "reshape",
}
_ROW_BY_ROW = ELEMENTWISE - {"reshape", "full_like"} | {"matmul"}
_OUTSIDE = ("Primitive", "Compiler", "Composite")
"""Attributes of functions that are another code generator's."""
_CALLEES = (Op, relay.GlobalVar, relay.adt.Constructor)
_LEAVES = (*_CALLEES, relay.Constant, relay.Var)


def is_ours(function: Value) -> bool:
    """Whether a function is still to be compiled as it is written."""
    return function.attrs is None or not any(name in function.attrs.keys() for name in _OUTSIDE)


def literal(value: Value) -> Array | None:
    """The tensor that a constant holds."""
    if not isinstance(value, relay.Constant):
        return None
    array: Array = value.data.numpy()
    # That generation hands bfloat16 out as its bits.
    return array.view(numpy_dtype("bfloat16")) if value.data.dtype == "bfloat16" else array


def dims(value: Value) -> tuple[Any, ...] | None:
    """Extents, as ints or as ``relay.Any`` where they are not static; None where unknown."""
    kind = value.checked_type
    if not isinstance(kind, relay.TensorType):
        return None
    return tuple(int(d) if isinstance(d, tirx.IntImm) else d for d in kind.shape)


@dataclass
class Graph:
    """What the regions of one function share.

    ``bound``: variable of a Let -> its value; ``results``: bodies of functions and closures.
    """

    users: dict[Value, list[Value]] = field(default_factory=dict)
    names: dict[Value, str] = field(default_factory=dict)
    bound: dict[Value, Value] = field(default_factory=dict)
    results: set[Value] = field(default_factory=set)
    owned: set[Value] = field(default_factory=set)

    def post_order(self, body: Value) -> list[Value]:
        """Expressions that a body computes and that no region owns yet, each behind its inputs."""
        order: list[Value] = []
        stack = [(body, False)]
        while stack:
            value, ready = stack.pop()
            if ready:
                order.append(value)
            elif value not in self.owned:
                self.owned.add(value)
                if isinstance(value, relay.Let):
                    self.bound[value.var] = value.value
                    stack += [(value, True), (value.body, False), (value.var, False)]
                    stack.append((value.value, False))
                elif value in self.bound or not isinstance(value, _LEAVES):
                    stack.append((value, True))
                    stack += [(used, False) for used in reversed(self.inputs(value))]
        return order

    def inputs(self, value: Value) -> list[Value]:
        """What an expression is computed from directly; a closure from nothing."""
        if value in self.bound:
            return [self.bound[value]]
        if isinstance(value, relay.Call):
            callee = [] if isinstance(value.op, _CALLEES) else [value.op]
            return callee + list(value.args)
        if isinstance(value, relay.Match):
            return [value.data, *(clause.rhs for clause in value.clauses)]
        return [
            used
            for name in _FIELDS.get(type(value), ())
            for used in (getattr(value, name) if name == "fields" else [getattr(value, name)])
        ]


_FIELDS: dict[type, tuple[str, ...]] = {
    relay.Let: ("body",),
    relay.Tuple: ("fields",),
    relay.TupleGetItem: ("tuple_value",),
    relay.If: ("cond", "true_branch", "false_branch"),
    relay.RefCreate: ("value",),
    relay.RefRead: ("ref",),
    relay.RefWrite: ("ref", "value"),
}


def regions(function: Value) -> list[FunctionValues]:
    """One region for a function and one for each closure in it, outer ones first.

    An expression that a function shares with a closure is the function's.
    """
    graph = Graph()
    found: list[FunctionValues] = []
    work = [function]
    for closure in work:
        graph.results.add(closure.body)
        order = graph.post_order(closure.body)
        work += [value for value in order if isinstance(value, relay.Function) and is_ours(value)]
        found.append(FunctionValues(graph, order))
    counts: Counter[str] = Counter()
    for value in (value for region in found for value in region.order):
        label = _operator(value) or type(value).__name__.lower()
        graph.names[value] = f"{label}_{counts[label]}"
        counts[label] += 1
        for used in dict.fromkeys(graph.inputs(value)):
            graph.users.setdefault(used, []).append(value)
    return found


def _operator(value: Value) -> str:
    if isinstance(value, relay.Call) and isinstance(value.op, Op):
        return str(value.op.name)
    return ""


class FunctionValues(Values):
    """Who defines and who uses what in the body of a function or closure."""

    def __init__(self, graph: Graph, order: list[Value]) -> None:
        super().__init__(order)
        self.users = graph.users
        self._graph = graph
        self._rows_of: dict[Value, Value] = {}
        for value in order:
            self._rows_of[value] = self._row_source(value)

    def op(self, value: Value) -> str:
        """See ``Values.op``."""
        name = _operator(value) if value in self.position else ""
        if name == "nn.bias_add" and self._adds_to_columns(value):
            return "add"
        if name in {"nn.matmul", "nn.batch_matmul"} and not value.attrs.transpose_a:
            return "matmul"
        return _NAMES.get(name, name)

    def operands(self, value: Value) -> list[Value]:
        """See ``Values.operands``."""
        return list(value.args)

    def attributes(self, value: Value) -> Any:
        """See ``Values.attributes``."""
        return value.attrs

    def inputs(self, value: Value) -> list[Value]:
        """See ``Values.inputs``."""
        return self._graph.inputs(value) if value in self.position else []

    def renamed(self, value: Value) -> Value | None:
        """See ``Values.renamed``."""
        return self._graph.bound.get(value)

    def product(self, value: Value) -> Product | None:
        """See ``Values.product``."""
        if self.op(value) != "matmul":
            return None
        operand, weight = value.args
        name, shape = _operator(value), dims(weight)
        if name == "nn.batch_matmul" and _keeps_batch(dims(operand), shape):
            weight, shape = self._matrix(weight, shape)
        transposed = name == "nn.dense" or bool(value.attrs.transpose_b)
        return Product(operand, weight, shape, transposed)

    def _matrix(
        self, weight: Value, shape: tuple[Any, ...] | None
    ) -> tuple[Value, tuple[Any, ...] | None]:
        """The matrix that a batched weight repeats, and its shape; the weight where it is none.

        Importers write a product of a batch and a matrix as one of two batches.
        """
        matrix = weight
        while self.op(matrix) in {"reshape", "broadcast_to"}:
            source = matrix.args[0]
            extents = dims(source)
            if extents is None or shape is None or extents[-2:] != shape[-2:]:
                break
            matrix = source
        extents = dims(matrix)
        if extents is None or any(extent != 1 for extent in extents[:-2]):
            return weight, shape
        return matrix, extents[-2:]

    def swaps(self, value: Value) -> bool:
        """See ``Values.swaps``."""
        axes = value.attrs.axes
        if axes is None:
            return len(dims(value) or ()) == 2
        return [int(axis) % len(axes) for axis in axes] == [1, 0]

    def escapes(self, value: Value) -> bool:
        """See ``Values.escapes``."""
        return value in self._graph.results

    def is_variable(self, value: Value) -> bool:
        """See ``Values.is_variable``."""
        return isinstance(value, relay.Var)

    def name(self, value: Value) -> str:
        """See ``Values.name``."""
        return str(value.name_hint) if self.is_variable(value) else self._graph.names[value]

    def array(self, value: Value) -> Array | None:
        """See ``Values.array``."""
        return literal(value)

    def scalar(self, value: Value) -> float | None:
        """See ``Values.scalar``; that of a tensor filled with one number too."""
        return super().scalar(value.args[1] if self.op(value) == "full_like" else value)

    def dims(self, value: Value) -> tuple[Any, ...] | None:
        """See ``Values.dims``."""
        return dims(value)

    def dtype(self, value: Value) -> str:
        """See ``Values.dtype``."""
        kind = value.checked_type
        return str(kind.dtype) if isinstance(kind, relay.TensorType) else ""

    def same_shape(self, left: Value, right: Value) -> bool:
        """See ``Values.same_shape``; extents that are not static need rows of one origin."""
        one, other = dims(left), dims(right)
        if one is None or other is None or len(one) != len(other):
            return False
        if _is_static(left) and _is_static(right):
            return one == other
        same_rows = bool(self._rows_of.get(left, left) == self._rows_of.get(right, right))
        columns = one[-1], other[-1]
        return same_rows and all(isinstance(n, int) for n in columns) and columns[0] == columns[1]

    def _row_source(self, value: Value) -> Value:
        """The earliest value that provably has the leading extents of ``value``, in this order."""
        if (renamed := self.renamed(value)) is not None:
            return self._rows_of.get(renamed, renamed)
        rank = len(dims(value) or ())
        if self.op(value) not in _ROW_BY_ROW or rank < 2:
            return value
        operands = value.args[:1] if self.op(value) == "matmul" else value.args
        dynamic = [used for used in operands if not _is_static(used)]
        sources = {self._rows_of.get(used, used) for used in dynamic}
        same_rank = all(len(dims(used) or ()) == rank for used in dynamic)
        return sources.pop() if len(sources) == 1 and same_rank else value

    def _adds_to_columns(self, bias_add: Value) -> bool:
        rank = len(dims(bias_add) or ())
        return rank > 0 and int(bias_add.attrs.axis) % rank == rank - 1


def _keeps_batch(operand: tuple[Any, ...] | None, weight: tuple[Any, ...] | None) -> bool:
    """Whether a ``nn.batch_matmul`` has as many matrices as its operand: not one for all."""
    if not operand or not weight:
        return False
    matrices = weight[0], operand[0]
    return weight[0] == 1 or (
        all(isinstance(count, int) for count in matrices) and matrices[0] == matrices[1]
    )


def _is_static(value: Value) -> bool:
    return all(isinstance(extent, int) for extent in dims(value) or ())
