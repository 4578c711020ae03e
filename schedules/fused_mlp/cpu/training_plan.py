"""What a training kernel keeps, where, and how much memory that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tunerplugin.errors import ScheduleError

from ..description import MLP
from .register_block import RegisterBlock
from .training_derivatives import has_short_slope, is_short, slope_follows_from_value

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Streams:
    """What is carried through the layers for each row of the batch.

    Always the value; for each of ``orders`` a direction in input space, along which the first (1)
    or the first and the second derivative (2) are carried too: truncated Taylor series, so that
    u, u_x and u_xx of a network come out of one fused pass (Griewank and Walther, Evaluating
    Derivatives, ch. 13).  ``per_row``: every row of the batch has directions of its own.
    """

    orders: tuple[int, ...] = ()
    per_row: bool = False

    def __post_init__(self) -> None:
        if any(order not in (1, 2) for order in self.orders):
            raise ScheduleError(f"expected derivatives of order 1 or 2, got {self.orders}")

    @property
    def count(self) -> int:
        """Rows that are carried per row of the batch."""
        return 1 + sum(self.orders)

    @property
    def directions(self) -> tuple[tuple[int, int | None], ...]:
        """The streams of the first and the second derivative along every direction."""
        found: list[tuple[int, int | None]] = []
        stream = 1
        for order in self.orders:
            found.append((stream, stream + 1 if order == 2 else None))
            stream += order
        return tuple(found)

    @property
    def slopes(self) -> int:
        """Derivatives of an activation that the forward pass needs."""
        return max(self.orders, default=0)


VALUE = Streams()


@dataclass(frozen=True)
class TrainingKnobs:
    """How the kernels of a training step are laid out.

    ``rows`` of the batch are one tile, kept in cache through all layers; ``block_rows`` x
    ``block_vectors`` vectors are the register block; the batch is cut into ``chunks`` parts, each
    worked on by one thread with its own sums of weight gradients, so that the result depends on
    ``chunks`` and not on which thread ran when.  ``store``: the forward pass stores what the
    backward pass reads; otherwise the backward pass computes each tile's activations again.
    """

    rows: int = 64
    block_rows: int = 4
    block_vectors: int = 2
    chunks: int = 1
    store: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "block_rows", "block_vectors", "chunks"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"expected {name} of at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Plan:
    """The layout of an MLP's tiles under some knobs; widths are padded to whole vectors."""

    mlp: MLP
    knobs: TrainingKnobs
    lanes: int
    streams: Streams = VALUE

    def __post_init__(self) -> None:
        if self.mlp.dtype != "float32":
            raise ScheduleError(f"expected float32 for training on CPU, got {self.mlp.dtype}")
        if self.knobs.store and self.streams != VALUE:
            raise ScheduleError("expected store=False where derivatives are carried")

    @property
    def block(self) -> RegisterBlock:
        """The register block."""
        return RegisterBlock(self.knobs.block_rows, self.knobs.block_vectors, self.lanes)

    @property
    def recomputing(self) -> Plan:
        """The same plan without storing."""
        return replace(self, knobs=replace(self.knobs, store=False))

    @property
    def padded(self) -> tuple[int, ...]:
        """The padded widths of the tensors."""
        return tuple(self.block.padded(width) for width in self.mlp.widths)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile's buffers: those of all streams, stream by stream."""
        return self.knobs.rows * self.streams.count

    def row_of(self, stream: int, row: Any) -> Any:
        """A stream's row in a tile's buffers."""
        return stream * self.knobs.rows + row if stream else row

    def stream_of(
        self, element: Callable[[Any, Any], Any], row: Any, column: Any
    ) -> Callable[[int], Any]:
        """Reads a row and column of a tile's buffer by stream."""
        return lambda stream: element(self.row_of(stream, row), column)

    def activates_in_block(self, layer: int) -> bool:
        """Whether the activation is applied to the sums in registers, or in a pass over the tile.

        The pass serves long functions, and Taylor mode, where an output takes all streams' sums.
        """
        return self.streams == VALUE and is_short(self.mlp.activations[layer])

    def slopes_in_block(self, layer: int) -> bool:
        """The same for backward through the activation."""
        activation = self.mlp.activations[layer]
        return self.streams == VALUE and (
            is_short(activation) or (has_short_slope(activation) and not self.keeps_sum(layer))
        )

    @property
    def skip_sources(self) -> tuple[int, ...]:
        """The tensors that residuals add somewhere."""
        return tuple(sorted({r.source for r in self.mlp.residuals if r is not None}))

    def first_skip(self, source: int) -> int:
        """The layer whose residual is the first to hand a gradient back to ``source``."""
        layers = enumerate(self.mlp.residuals)
        return max(layer for layer, r in layers if r is not None and r.source == source)

    def keeps_sum(self, layer: int) -> bool:
        """Whether backward reads the layer's sum, and not (only) its output.

        So it is for SiLU, both GELUs and sine, whose slope does not follow from their value; where
        a residual is added after an activation that is not linear; and in Taylor mode.
        """
        activation = self.mlp.activations[layer]
        if activation.function == "none":
            return False
        if self.streams != VALUE or not slope_follows_from_value(activation):
            return True
        residual = self.mlp.residuals[layer]
        return residual is not None and not residual.before_activation

    def keeps_output(self, layer: int) -> bool:
        """Whether backward reads the layer's output: the next layer's weight gradient does."""
        if layer + 1 < self.mlp.layers:
            return True
        return self.mlp.activations[layer].function != "none" and not self.keeps_sum(layer)

    @property
    def kept(self) -> tuple[tuple[str, int, int], ...]:
        """(name, layer, padded width) of each tensor that backward reads, in order."""
        found: list[tuple[str, int, int]] = []
        for layer in range(self.mlp.layers):
            width = self.padded[layer + 1]
            if self.keeps_output(layer):
                found.append(("output", layer, width))
            if self.keeps_sum(layer):
                found.append(("sum", layer, width))
        return tuple(found)

    @property
    def recomputed(self) -> int:
        """Layers that the backward kernel computes again; the last only if it is read."""
        if self.knobs.store:
            return 0
        last = self.mlp.layers - 1
        return self.mlp.layers if self.keeps_output(last) or self.keeps_sum(last) else last

    def tiles(self, batch: Any) -> Any:
        """Tiles of a batch, the last one perhaps partly filled; for numbers and expressions."""
        return (batch + (self.knobs.rows - 1)) // self.knobs.rows

    def stored_bytes(self, batch: int) -> int:
        """Memory of the activations between forward and backward; 0 if they are recomputed."""
        if not self.knobs.store:
            return 0
        rows: int = self.tiles(batch) * self.knobs.rows
        return _FLOAT_BYTES * rows * sum(width for _, _, width in self.kept)

    @property
    def partial_bytes(self) -> int:
        """Memory of the chunks' sums of weight and bias gradients."""
        weights = sum(n * self.block.padded(k) for k, n in self.mlp.shapes)
        biases = sum(self.padded[1:])
        return _FLOAT_BYTES * self.knobs.chunks * (weights + biases)

    @property
    def tile_bytes(self) -> int:
        """What a thread touches for a tile besides the weights: should stay in its cache."""
        kept = sum(width for _, _, width in self.kept) + self.padded[0]
        return _FLOAT_BYTES * self.tile_rows * (kept + 2 * max(self.padded))
