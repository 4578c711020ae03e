"""What an AMD kernel keeps where: the choices of one schedule, worked out before any code is.

``Plan`` is the template's knobs with what follows from them: packings, pieces of weights that go
through local data share (LDS) together, bytes of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ..description import MLP
from ..packing import Packing
from .amd_isa import MatrixInstruction

LDS_BYTES = 65536
"""LDS that one work-group can have, on every device here (CDNA 3 and RDNA 3 ISA guides)."""

Weights = Literal["layer", "double", "network", "memory"]
WEIGHTS: tuple[Weights, ...] = Weights.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Unit:
    """Output tiles ``first`` to ``end`` of a layer, whose weights are staged together.

    ``number`` counts the units of the network.  ``source`` is where they begin in the packed
    weight, ``offset`` where in LDS, ``elements`` how many they are.
    """

    number: int
    layer: int
    first: int
    end: int
    source: int
    offset: int
    elements: int


@dataclass(frozen=True)
class Plan:
    """One schedule of one MLP.

    ``weights``: ``layer`` stages one layer after the other in LDS (two barriers each), ``double``
    stages the next one meanwhile (twice the LDS, one barrier), ``network`` stages all of them once,
    ``memory`` reads them from memory, through the caches.  A layer that is too large for LDS goes
    through it in several units.
    """

    mlp: MLP
    instruction: MatrixInstruction
    row_tiles: int
    waves: int
    weights: Weights

    @property
    def rows(self) -> int:
        """Rows of the batch of one work-group."""
        return self.waves * self.row_tiles * self.instruction.tile

    @property
    def element_bytes(self) -> int:
        """Bytes of a stored element."""
        return 4 if self.mlp.dtype == "float32" else 2

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """How each layer's weight is stored."""
        return tuple(self.instruction.packing(k, n) for k, n in self.mlp.shapes)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The weights of the network in the order in which they are used."""
        return tuple(self._units())

    def units_of(self, layer: int) -> tuple[Unit, ...]:
        """Those of one layer."""
        return tuple(unit for unit in self.units if unit.layer == layer)

    @cached_property
    def shared_elements(self) -> int:
        """Elements of LDS; may exceed what there is, then the plan cannot be built."""
        return 0 if self.weights == "memory" else max(u.offset + u.elements for u in self.units)

    @property
    def shared_bytes(self) -> int:
        """Bytes of LDS."""
        return self.shared_elements * self.element_bytes

    def _units(self) -> Iterator[Unit]:
        number = itertools.count()
        room = self._unit_limit
        placed = 0
        for layer, packing in enumerate(self.packings):
            tiles = self.instruction.tiles(packing.n)
            each = packing.k_padded * self.instruction.tile
            together = tiles if room is None else max(1, min(tiles, room // each))
            for first in range(0, tiles, together):
                end = min(first + together, tiles)
                size = (end - first) * each
                current = next(number)
                offset = {"network": placed, "double": current % 2 * self._half}.get(
                    self.weights, 0
                )
                yield Unit(current, layer, first, end, first * each, offset, size)
                placed += size

    @property
    def _unit_limit(self) -> int | None:
        """Elements that one unit may have."""
        share = {"layer": 1, "double": 2}.get(self.weights)
        return None if share is None else LDS_BYTES // self.element_bytes // share

    @property
    def _half(self) -> int:
        """Where the second buffer of ``double`` begins: after the largest unit."""
        limit = LDS_BYTES // self.element_bytes // 2
        sizes = []
        for packing in self.packings:
            each = packing.k_padded * self.instruction.tile
            together = max(1, min(self.instruction.tiles(packing.n), limit // each))
            sizes.append(together * each)
        return max(sizes)

    @property
    def registers(self) -> int:
        """Vector registers of a work-item that no compiler can do without, roughly.

        In the worst layer: its input and its output, tensors that later layers add, the sums of one
        tile, one operand of weights, and 16 for addresses.
        """
        return max(self._registers_of(layer) for layer in range(self.mlp.layers))

    def _registers_of(self, layer: int) -> int:
        isa = self.instruction
        k, n = self.mlp.shapes[layer]
        kept = {
            residual.source
            for later, residual in enumerate(self.mlp.residuals)
            if residual is not None and later >= layer and residual.source < layer
        }
        operands = isa.blocks(k) * isa.operand_elements
        outputs = isa.tiles(n) * isa.accumulators
        saved = sum(isa.blocks(self.mlp.widths[tensor]) * isa.run for tensor in kept)
        elements = self.row_tiles * (operands + outputs + saved) + isa.operand_elements
        return elements * self.element_bytes // 4 + self.row_tiles * isa.accumulators + 16
