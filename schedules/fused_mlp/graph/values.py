"""Definitions and uses of the values of one region of a graph, as the search for chains asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ..packing import Array

Value = Any
"""An expression of a graph IR: a variable, a constant or a call (the wheels have no types)."""

FLOATS = {"float32", "float16", "bfloat16"}


@dataclass(frozen=True)
class Parameter:
    """A weight or bias as a layer reads it, and the tensor that it is made of.

    ``source`` is ``value`` before it was converted to the model's dtype or, where ``transposed``,
    had its two axes swapped; ``made`` are the values of these conversions.  Packing converts and
    transposes by itself.
    """

    value: Value
    source: Value
    transposed: bool
    made: tuple[Value, ...]


@dataclass(frozen=True)
class Product:
    """A matrix product of an operand and a weight of extents ``shape``.

    ``transposed`` says that these are (outputs, inputs).  A weight of more than two extents may
    still be a matrix, with leading extents of one in front: then ``shape`` is the matrix's.
    """

    operand: Value
    weight: Value
    shape: tuple[Any, ...] | None
    transposed: bool = False


class Values(ABC):
    """Who defines and who uses what in one region: a dataflow block or a function's body.

    ``order`` holds what is computed in the region, each value behind its inputs; ``users`` the
    values that are computed from one directly.  Operators go by their names in Relax.
    """

    def __init__(self, order: list[Value]) -> None:
        self.order = order
        self.position = {value: i for i, value in enumerate(order)}
        self.users: dict[Value, list[Value]] = {}

    @abstractmethod
    def op(self, value: Value) -> str:
        """Name of the operator that makes a value of this region; empty for none."""

    @abstractmethod
    def operands(self, value: Value) -> list[Value]:
        """Arguments of the call that makes a value."""

    @abstractmethod
    def attributes(self, value: Value) -> Any:
        """Attributes of the call that makes a value."""

    @abstractmethod
    def inputs(self, value: Value) -> list[Value]:
        """What a value is computed from directly; nothing for what is not of this region."""

    @abstractmethod
    def renamed(self, value: Value) -> Value | None:
        """The value that this variable is another name of."""

    @abstractmethod
    def product(self, value: Value) -> Product | None:
        """The matrix product that makes a value."""

    @abstractmethod
    def swaps(self, value: Value) -> bool:
        """Whether a ``permute_dims`` swaps the two axes of a matrix."""

    @abstractmethod
    def escapes(self, value: Value) -> bool:
        """Whether a value is a result of the region."""

    @abstractmethod
    def is_variable(self, value: Value) -> bool:
        """Whether a value is a variable: a parameter, or computed elsewhere and bound to a name."""

    @abstractmethod
    def name(self, value: Value) -> str:
        """What a report calls a value."""

    @abstractmethod
    def array(self, value: Value) -> Array | None:
        """The tensor that a literal holds; None for other values, parameters among them."""

    @abstractmethod
    def dims(self, value: Value) -> tuple[Any, ...] | None:
        """Extents, as ints or as expressions where they are not static; None where unknown."""

    @abstractmethod
    def dtype(self, value: Value) -> str:
        """Element type of a tensor; empty where it is unknown."""

    @abstractmethod
    def same_shape(self, left: Value, right: Value) -> bool:
        """Whether two tensors provably have the same shape."""

    def args(self, value: Value) -> list[Value]:
        """Arguments of the call that makes a value, each as its ``root``."""
        return [self.root(argument) for argument in self.operands(value)]

    def scalar(self, value: Value) -> float | None:
        """The number in a literal of one element."""
        array = self.array(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def root(self, value: Value) -> Value:
        """A value without what leads to it and changes no number: renamings, row-keeping reshapes,
        roundings, factors of one, broadcasts to the same shape.

        A reshape that keeps the last extent only regroups rows, to which a dense layer is blind.
        A fused kernel computes a layer in float32 and rounds its output once, so that conversions
        between float types within the layer make no difference to it.
        """
        while (before := self._before(value)) is not None:
            value = before
        return value

    def _before(self, value: Value) -> Value | None:
        renamed = self.renamed(value)
        if renamed is not None:
            return renamed
        name = self.op(value)
        if name not in {"reshape", "astype", "multiply", "divide", "broadcast_to"}:
            return None
        source, *rest = self.operands(value)
        if name == "reshape":
            return source if self._keeps_rows(value, source) else None
        if name == "astype":
            return source if {self.dtype(source), self.dtype(value)} <= FLOATS else None
        changes_nothing = name == "broadcast_to" or self.scalar(rest[0]) == 1.0
        return source if changes_nothing and self.same_shape(value, source) else None

    def parameter(self, value: Value) -> Parameter:
        """What a weight or bias is made of."""
        made: list[Value] = []
        transposed, source = False, value
        while True:
            name, renamed = self.op(source), self.renamed(source)
            if renamed is not None:
                made.append(source)
                source = renamed
                continue
            if name == "permute_dims" and self.swaps(source):
                transposed = not transposed
            elif name != "astype":
                return Parameter(value, source, transposed, tuple(made))
            made.append(source)
            source = self.operands(source)[0]

    def _keeps_rows(self, after: Value, before: Value) -> bool:
        new, old = self.dims(after), self.dims(before)
        return bool(new and old) and isinstance(new[-1], int) and new[-1] == old[-1]  # type: ignore[index]

    def descendants(self, value: Value, through: set[str] | None = None) -> list[Value]:
        """A value and what is computed from it, in order.

        ``through``: go on only behind operators of these names (and renamings).
        """
        found = {value}
        work = [value]
        while work:
            for user in self.users.get(work.pop(), []):
                goes_on = through is None or self._goes_through(user, through)
                if goes_on and user in self.position and user not in found:
                    found.add(user)
                    work.append(user)
        return sorted(found, key=lambda value: self.position[value])

    def _goes_through(self, value: Value, through: set[str]) -> bool:
        return self.op(value) in through or self.renamed(value) is not None

    def between(self, first: Value, last: Value) -> set[Value]:
        """Values on the ways from ``first`` to ``last``, both among them."""
        ancestors, work = {last}, [last]
        while work:
            for used in self.inputs(work.pop()):
                if used not in ancestors and used in self.position:
                    ancestors.add(used)
                    work.append(used)
        return ancestors & set(self.descendants(first))

    def leaks(self, inside: set[Value], last: Value) -> Value | None:
        """The first value of ``inside`` but ``last`` that is needed outside, or None."""
        for value in sorted(inside - {last}, key=lambda value: self.position[value]):
            needed = any(user not in inside for user in self.users.get(value, []))
            if needed or self.escapes(value):
                return value
        return None
