"""The packed weights and biases that a fused kernel takes in the place of a chain's parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..packing import Array, Packing
from ..template import FusedKernel
from .chains import Chain
from .values import Parameter, Value


@dataclass(frozen=True)
class Packer:
    """Packs parameters, each once: here where it is a literal, else by what the graph computes.

    ``literal`` gives the array of a value that is one, ``constant`` makes a value of an array;
    ``emit_weight`` and ``emit_bias`` make the packed form of a parameter that is no literal.
    """

    literal: Callable[[Value], Array | None]
    constant: Callable[[Array], Value]
    emit_weight: Callable[[Parameter, Packing], Value]
    emit_bias: Callable[[Parameter, Packing], Value]
    _packed: dict[tuple[Value, bool, Packing], Value] = field(default_factory=dict)

    def arguments(self, chain: Chain, kernel: FusedKernel) -> list[Value]:
        """The kernel's arguments between input and output: layer by layer, weight and bias."""
        made = []
        for layer, packing in zip(chain.layers, kernel.weights, strict=True):
            made.append(self._weight(layer.dense.weight, packing))
            if layer.bias is not None:
                made.append(self._bias(layer.bias, packing))
        return made

    def forget(self) -> None:
        """Pack anew from here on, where earlier values cannot be seen."""
        self._packed.clear()

    def _weight(self, weight: Parameter, packing: Packing) -> Value:
        key = (weight.source, weight.transposed, packing)
        if key not in self._packed:
            array = self.literal(weight.source)
            if array is None:
                self._packed[key] = self.emit_weight(weight, packing)
            else:
                matrix = array.reshape(array.shape[-2:])
                stored = packing.apply(matrix.T if weight.transposed else matrix)
                self._packed[key] = self.constant(stored)
        return self._packed[key]

    def _bias(self, bias: Parameter, packing: Packing) -> Value:
        key = (bias.source, False, packing)
        if key not in self._packed:
            array = self.literal(bias.source)
            if array is None:
                self._packed[key] = self.emit_bias(bias, packing)
            else:
                self._packed[key] = self.constant(packing.apply_bias(array.reshape(-1)))
        return self._packed[key]
