"""Where the tensors of a tile of rows lie, and how its layers are cut into register blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType

from tunerplugin.errors import ScheduleError

from ..description import MLP
from ..packing import Packing
from .machine import Machine

FLOAT_BYTES = 4

TILE_ROWS = (1, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 384, 512)
"""Rows per tile worth trying, before they are rounded to whole register blocks: close enough to
share any batch out evenly."""
_FEW_ROWS = 32


@dataclass(frozen=True)
class Knobs:
    """How the kernel is laid out.

    ``rows`` of the batch are one tile, which stays in cache through all layers.  ``block_rows`` x
    ``block_vectors`` vector registers hold the sums of one register block; ``unroll`` steps of k
    are written out.  ``staged`` (0 or 1): the tile's input is copied, and converted, before layer
    0 instead of being read in place.  ``prefetch`` (0 or 1): the next tile's input and this tile's
    output are fetched ahead of use, as no hardware prefetcher follows a tile from layer to layer.
    """

    block_rows: int
    block_vectors: int
    unroll: int
    rows: int
    staged: int
    prefetch: int


@dataclass(frozen=True)
class Block:
    """A register block: ``rows`` x ``vectors`` sums."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class Strip:
    """Columns of a layer that are worked off by blocks of one shape: ``count`` side by side.

    ``stored`` vectors of a block are stored whole; of one more, where ``lanes_left`` is not 0, only
    so many lanes (the output has no padding).
    """

    first_vector: int
    count: int
    block: Block
    stored: int
    lanes_left: int = 0


@dataclass(frozen=True)
class Plan:
    """An MLP under some knobs on a machine.  Raises ``ScheduleError`` for knobs that cannot be."""

    mlp: MLP
    machine: Machine
    knobs: Knobs

    def __post_init__(self) -> None:
        knobs = self.knobs
        for item in fields(knobs):
            lowest = 0 if item.name in {"staged", "prefetch"} else 1
            if getattr(knobs, item.name) < lowest:
                raise ScheduleError(
                    f"expected {item.name} of at least {lowest}, got {getattr(knobs, item.name)}"
                )
        for name in ("staged", "prefetch"):
            if getattr(knobs, name) > 1:
                raise ScheduleError(f"expected {name} of 0 or 1, got {getattr(knobs, name)}")
        if knobs.rows % knobs.block_rows:
            raise ScheduleError(
                f"expected rows in multiples of block_rows = {knobs.block_rows}, got {knobs.rows}"
            )
        if not fits_registers(self.machine, knobs.block_rows, knobs.block_vectors):
            raise ScheduleError(
                f"expected a register block for {self.machine.registers} registers, "
                f"got {knobs.block_rows} x {knobs.block_vectors}"
            )
        if not knobs.staged and must_stage(self.mlp):
            raise ScheduleError("expected staged=1 for 16-bit inputs and residuals from the input")

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """Column panels of one vector: [n / lanes][k][lanes].

        A block of any number of vectors reads them with one pointer and constant offsets.  Weights
        are float32 here whatever the MLP's dtype: CPUs without 16-bit arithmetic would have to
        convert them again for every tile, and they are small.
        """
        lanes = self.machine.lanes
        return tuple(
            Packing.panels(k, n, k, self.vectors(n) * lanes, lanes) for k, n in self.mlp.shapes
        )

    def vectors(self, width: int) -> int:
        """Vectors that hold a row of ``width`` elements."""
        return -(-width // self.machine.lanes)

    def strips(self, layer: int) -> Iterator[Strip]:
        """The layer's columns: full blocks, then what is left in a narrower, higher block.

        What is left of the output's last vector comes in a strip of its own or in the narrow one.
        """
        knobs, width = self.knobs, self.mlp.widths[layer + 1]
        last = layer + 1 == self.mlp.layers
        lanes_left = width % self.machine.lanes if last else 0
        vectors = self.vectors(width)
        count = (vectors - bool(lanes_left)) // knobs.block_vectors
        rest = vectors - count * knobs.block_vectors
        if count:
            block = Block(knobs.block_rows, knobs.block_vectors)
            yield Strip(0, count, block, knobs.block_vectors)
        if rest:
            sums = knobs.block_rows * knobs.block_vectors // rest
            rows = max(d for d in range(1, sums + 1) if knobs.rows % d == 0)
            yield Strip(vectors - rest, 1, Block(rows, rest), rest - bool(lanes_left), lanes_left)

    @cached_property
    def slots(self) -> dict[int, int]:
        """Buffer of each tensor that is kept within the tile; a buffer is used again once free.

        The output has none, nor has an input that is read in place.
        """
        free_from: list[int] = []
        slots: dict[int, int] = {}
        for tensor in range(0 if self.knobs.staged else 1, self.mlp.layers):
            # Layer ``tensor - 1`` writes while it reads its own input and residual.
            writer = tensor - 1
            reusable = [slot for slot, free in enumerate(free_from) if free <= writer]
            slot = reusable[0] if reusable else len(free_from)
            if slot == len(free_from):
                free_from.append(0)
            free_from[slot] = self._last_use(tensor) + 1
            slots[tensor] = slot
        return slots

    def _last_use(self, tensor: int) -> int:
        """The last layer that reads a tensor."""
        sources = enumerate(self.mlp.residuals)
        return max([tensor, *(layer for layer, r in sources if r and r.source == tensor)])

    @cached_property
    def slot_vectors(self) -> tuple[int, ...]:
        """Vectors in a row of each buffer."""
        widths: dict[int, int] = {}
        for tensor, slot in self.slots.items():
            widths[slot] = max(widths.get(slot, 0), self.vectors(self.mlp.widths[tensor]))
        return tuple(widths[slot] for slot in sorted(widths))

    @property
    def row_bytes(self) -> int:
        """Memory of a row of the tile's buffers."""
        return FLOAT_BYTES * self.machine.lanes * sum(self.slot_vectors)


def must_stage(mlp: MLP) -> bool:
    """Whether the input cannot be read in place: converted once, or read by a residual."""
    return mlp.dtype != "float32" or any(r and r.source == 0 for r in mlp.residuals)


def fits_registers(machine: Machine, rows: int, vectors: int) -> bool:
    """Whether the sums, a row of weights and one broadcast input fit the registers."""
    return rows * vectors + vectors + 1 <= machine.registers


def tile_rows(block_rows: int) -> tuple[int, ...]:
    """Rows per tile worth trying, in multiples of the register block's rows."""
    return tuple(dict.fromkeys(whole_blocks(rows, block_rows) for rows in TILE_ROWS))


def whole_blocks(rows: int, block_rows: int) -> int:
    """The multiple of ``block_rows`` nearest to ``rows``, at least one."""
    return max(1, round(rows / block_rows)) * block_rows


def fits_cache(plan: Plan) -> bool:
    """Whether the tile takes half of L2 at most, or has no more rows than any tile should."""
    limit = plan.machine.l2_bytes // 2
    return plan.knobs.rows <= _FEW_ROWS or plan.row_bytes * plan.knobs.rows <= limit


def default_knobs(
    mlp: MLP, machine: Machine, batch: int | None, given: Mapping[str, int] = MappingProxyType({})
) -> Knobs:
    """A good untuned schedule around the knobs that are given.

    As many sums as hide the latency of two FMA units; more of them leave the processor too little
    of the next block to begin with while the last sums of a shallow layer finish.  The tile fills
    half of L1 where layers are narrow; wide layers need rows to use each weight often, and keep
    them in L2.  A small batch is shared out among the cores first.
    """
    widest = max(-(-width // machine.lanes) for width in mlp.widths[1:])
    vectors = given.get("block_vectors", min(2, widest))
    high = (16 if machine.registers > 16 else 8) // min(2, vectors)
    fitting = (r for r in range(high, 0, -1) if fits_registers(machine, r, vectors))
    block_rows = given.get("block_rows", next(fitting, 1))
    staged = given.get("staged", int(must_stage(mlp)))
    knobs = Knobs(
        block_rows, vectors, given.get("unroll", 2), block_rows, staged, given.get("prefetch", 1)
    )
    if "rows" in given:
        return replace(knobs, rows=given["rows"])
    wanted = max(96, min(256, machine.l1_bytes // 2 // (FLOAT_BYTES * max(mlp.widths))))
    plans = (Plan(mlp, machine, replace(knobs, rows=rows)) for rows in tile_rows(block_rows))
    rows = max(
        p.knobs.rows for p in plans if p.knobs.rows <= max(wanted, block_rows) and fits_cache(p)
    )
    if batch is not None:
        share = math.ceil(batch / machine.cores)
        rows = min([rows, *(tile for tile in tile_rows(block_rows) if tile >= share)])
    return replace(knobs, rows=rows)
