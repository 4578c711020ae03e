"""A tile's tensors, the packed weights, and how rows and weights come into a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunerplugin.integrations.compat import T

from .register_block import Buffer, Expression, RegisterBlock
from .training_block import workspace
from .training_plan import Plan


@dataclass(frozen=True)
class Rows:
    """The rows of a tile in a buffer, which may hold other tiles' rows too (``prefix``)."""

    buffer: Buffer
    prefix: tuple[Any, ...] = ()

    def at(self, row: Expression, column: Expression) -> Expression:
        """One element."""
        return self.buffer[(*self.prefix, row, column)]

    def put(self, row: Expression, column: Expression, value: Expression) -> None:
        """Store one element."""
        T.buffer_store(self.buffer, value, [*self.prefix, row, column])

    def add(self, row: Expression, column: Expression, value: Expression) -> None:
        """Add to one element."""
        self.put(row, column, self.at(row, column) + value)


@dataclass(frozen=True)
class Tile:
    """The tensors of a tile: tensor 0 is the input, tensor i the output of layer i - 1."""

    tensors: Mapping[int, Rows]
    sums: Mapping[int, Rows]


@dataclass(frozen=True)
class Packed:
    """The weights as the products read them, packed once per call from torch's layout.

    ``forward[l]`` is [out / block][in][block], ``backward[l]`` [in / block][out][block].
    """

    forward: Mapping[int, Buffer] = field(default_factory=dict)
    backward: Mapping[int, Buffer] = field(default_factory=dict)
    biases: Mapping[int, Buffer] = field(default_factory=dict)


@dataclass(frozen=True)
class Gradients:
    """Where a chunk's gradients go.

    ``tensors[l + 1]`` takes those with respect to the sums of layer l (dY comes in the last one),
    ``skips[t]`` what residuals hand back to tensor t, ``weights`` and ``biases`` the chunk's sums
    (empty: not wanted), ``input`` the tile's dX (None: not wanted).
    """

    tensors: Mapping[int, Rows]
    skips: Mapping[int, Rows]
    weights: Mapping[int, Rows]
    biases: Mapping[int, Rows]
    input: Rows | None


def pack_panels(
    block: RegisterBlock, depth: int, width: int, element: Callable[[Any, Any], Expression]
) -> Buffer:
    """[width / block][depth][block] of element(k, column), zero beyond ``width``."""
    panels = -(-width // block.columns)
    packed = workspace(panels, depth, block.columns)
    with T.serial(0, panels) as panel, T.serial(0, depth) as k:
        with T.serial(0, block.columns) as c:
            column = panel * block.columns + c
            value = T.if_then_else(column < width, element(k, column), T.float32(0.0))
            T.buffer_store(packed, value, [panel, k, c])
    return packed


def pack_row(block: RegisterBlock, row: Buffer) -> Buffer:
    """A row padded with zeros to whole vectors."""
    (width,) = (int(extent) for extent in row.shape)
    packed = workspace(block.padded(width))
    with T.serial(0, block.padded(width)) as c:
        value = T.if_then_else(c < width, row[c], T.float32(0.0))
        T.buffer_store(packed, value, [c])
    return packed


def panel_reader(block: RegisterBlock, packed: Buffer) -> Callable[[Any, Any], Expression]:
    """Reads element (k, column) of packed panels."""
    return lambda k, column: packed[column // block.columns, k, column % block.columns]


def load(
    plan: Plan, target: Rows, width: int, source: Callable[[int, Any, Any], Expression]
) -> None:
    """Copy source(stream, row, column) to a tile, with zeros in the padding."""
    rows, padded = plan.knobs.rows, plan.block.padded(width)
    for stream in range(plan.streams.count):
        with T.serial(0, rows) as r:
            with T.vectorized(0, width) if width == padded else T.serial(0, width) as c:
                target.put(stream * rows + r, c, source(stream, r, c))
            if width < padded:
                with T.serial(0, padded - width) as c:
                    target.put(stream * rows + r, width + c, T.float32(0.0))
