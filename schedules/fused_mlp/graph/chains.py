"""Finding maximal chains of dense layers in a region, and saying where each one ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..description import MLP, Residual
from .activations import ELEMENTWISE
from .layers import Dense, Layer, Refusal, as_dense, layers_of
from .values import Value, Values


@dataclass(frozen=True)
class Chain:
    """Layers of which each reads the one before, and ``inside``, all values they replace.

    Only the last layer's output is needed outside.  ``unneeded``: transposed and converted
    parameters that nobody else reads.  ``stop`` says why there is no further layer.
    """

    layers: tuple[Layer, ...]
    residuals: tuple[Residual | None, ...]
    inside: frozenset[Any]
    unneeded: frozenset[Any]
    stop: str

    @property
    def mlp(self) -> MLP:
        """What the chain computes."""
        first = self.layers[0].dense
        return MLP(
            widths=(first.inputs, *(layer.dense.outputs for layer in self.layers)),
            activations=tuple(layer.activation for layer in self.layers),
            bias=tuple(layer.bias is not None for layer in self.layers),
            dtype=first.dtype,  # type: ignore[arg-type]
            residuals=self.residuals,
        )

    @property
    def dropped(self) -> frozenset[Any]:
        """What is computed no more where a kernel makes the output."""
        return (self.inside | self.unneeded) - {self.output}

    @property
    def rows(self) -> Any:
        """Rows of the input: an int, or an expression where an extent is not static."""
        return self.layers[0].dense.rows

    @property
    def input(self) -> Value:
        """The tensor that the first layer reads; its leading extents are the batch."""
        return self.layers[0].dense.operand

    @property
    def output(self) -> Value:
        """The value that the fused call takes the place of."""
        return self.layers[-1].output


_NOT_ROUNDED = "a result that is not rounded to its operands' dtype "


def find_chains(values: Values) -> tuple[list[Chain], list[Refusal]]:
    """All maximal chains of a region in order, of one layer and more, and the products left out."""
    dense: dict[Value, Dense] = {}
    refusals: dict[Value, Refusal] = {}
    for value in values.order:
        if (product := values.product(value)) is not None:
            found = as_dense(values, value, product)
            if isinstance(found, Refusal):
                refusals[value] = found
            else:
                dense[value] = found
    chains: list[Chain] = []
    free = dict(dense)
    for product in dense:
        if product in free:
            chain = _Search(values, free, refusals).chain_from(free[product])
            if chain is None:
                refusals[product] = Refusal(product, _NOT_ROUNDED + free.pop(product).dtype)
                continue
            for layer in chain.layers:
                del free[layer.dense.product]
            chains.append(chain)
    return chains, list(refusals.values())


class _Search:
    """One chain's search: grow while a layer's output is read by a free dense layer, then cut back
    until nothing inside is needed outside."""

    def __init__(
        self, values: Values, free: dict[Value, Dense], refusals: dict[Value, Refusal]
    ) -> None:
        self._values = values
        self._refusals = refusals
        self._readers: dict[Value, list[Dense]] = {}
        for dense in free.values():
            self._readers.setdefault(values.root(dense.operand), []).append(dense)

    def chain_from(self, first: Dense) -> Chain | None:
        """The longest chain that starts with ``first``; None if its sums stay in float32."""
        grown, options, tensors = self._grow(first)
        stop = ""
        for length in range(len(grown) + 1, 0, -1):
            for last in options[length - 1]:
                layers = (*grown[: length - 1], last)
                inside = self._values.between(first.product, last.output)
                leak = self._leak(layers, inside)
                if leak is None:
                    return Chain(
                        layers,
                        tuple(_residual(tensors, layer) for layer in layers),
                        frozenset(inside),
                        frozenset(self._unneeded(layers, inside)),
                        stop or self._what_follows(last.output),
                    )
                # The outermost obstacle is what a user can do something about.
                stop = stop or leak
        return None

    def _grow(self, first: Dense) -> tuple[list[Layer], list[list[Layer]], list[Value]]:
        """Layers with a follower, what every layer could be, tensors 0, 1, ... of the chain."""
        grown: list[Layer] = []
        options: list[list[Layer]] = []
        tensors = [self._values.root(first.operand)]
        dense: Dense | None = first
        while dense is not None:
            options.append(
                [
                    layer
                    for layer in layers_of(self._values, dense)
                    if layer.residual is None or _residual(tensors, layer) is not None
                ]
            )
            dense = None
            for layer in options[-1]:
                readers = self._readers.get(self._values.root(layer.output), ())
                dense = next((r for r in readers if r.dtype == first.dtype), None)
                if dense is not None:
                    grown.append(layer)
                    tensors.append(self._values.root(layer.output))
                    break
        return grown, options, tensors

    def _leak(self, layers: tuple[Layer, ...], inside: set[Value]) -> str | None:
        leaking = self._values.leaks(inside, layers[-1].output)
        if leaking is not None:
            return self._needed_elsewhere(leaking, inside)
        for layer in layers:
            if any(parameter.value in inside for parameter in layer.parameters):
                name = self._values.name(layer.dense.product)
                return f"the parameters of {name} depend on the chain's values"
        return None

    def _needed_elsewhere(self, leaking: Value, inside: set[Value]) -> str:
        values = self._values
        readers = [reader for reader in values.users.get(leaking, []) if reader not in inside]
        by = [
            f"{values.op(reader) or 'an expression'} ({values.name(reader)})" for reader in readers
        ]
        where = f"by {', '.join(by)}" if by else "as a result"
        return f"{values.name(leaking)} inside it is needed elsewhere, {where}"

    def _unneeded(self, layers: tuple[Layer, ...], inside: set[Value]) -> set[Value]:
        gone = set(inside)
        for parameter in (p for layer in layers for p in layer.parameters):
            for made in parameter.made:
                unread = gone.issuperset(self._values.users[made])
                if unread and not self._values.escapes(made):
                    gone.add(made)
        return gone - inside

    def _scalar_parameters(self, readers: list[Value]) -> Iterator[str]:
        """Numbers such as the 0.5 of a GELU that an importer made parameters of the function."""
        values = self._values
        for reader in readers:
            for argument in values.operands(reader) if values.op(reader) in ELEMENTWISE else ():
                if values.is_variable(argument) and values.dims(argument) == ():
                    yield values.name(argument)

    def _what_follows(self, output: Value) -> str:
        """Why the chain ends behind ``output``."""
        values = self._values
        readers = [u for u in values.users.get(output, []) if values.renamed(u) is None]
        if not readers:
            return "the block ends"
        for parameter in self._scalar_parameters(readers):
            return f"{parameter} is a scalar parameter, expected a literal: bind it"
        if len(readers) > 1:
            return f"{values.name(output)} has {len(readers)} readers"
        reader = readers[0]
        if reader in self._refusals:
            return f"{values.name(reader)} has {self._refusals[reader].reason}"
        name = values.op(reader) or "an expression"
        return f"{name} ({values.name(reader)}) is no part of a layer"


def _residual(tensors: list[Value], layer: Layer) -> Residual | None:
    for source, tensor in enumerate(tensors):
        if layer.residual is not None and tensor.same_as(layer.residual):
            return Residual(source, layer.before_activation)
    return None
