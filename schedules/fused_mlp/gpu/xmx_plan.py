"""What an XMX kernel is built with, what it needs, and how its weights lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..description import MLP
from ..packing import Packing

MOST_ROWS = 8  # of one DPAS
DEPTH = 16  # k of one DPAS with 16-bit operands
ELEMENT_BYTES = 2
SUM_BYTES = 4
PADDING = 16  # widths are padded to this: the depth, and a multiple of the columns on 8 lanes


@dataclass(frozen=True)
class Plan:
    """What the kernel is built with.

    ``lanes``: sub-group size, 8 or 16.  ``rows_per_sub_group``: rows of the batch of one sub-group:
    up to 8, or a multiple of 8.  ``sub_groups``: per work-group.  ``accumulators``: column tiles
    whose sums are in registers at once.  ``staged``: weights pass through shared memory.
    """

    lanes: int
    rows_per_sub_group: int
    sub_groups: int
    accumulators: int
    staged: bool

    @property
    def tile_rows(self) -> int:
        """Rows of one DPAS."""
        return min(MOST_ROWS, self.rows_per_sub_group)

    @property
    def row_tiles(self) -> int:
        """Tiles of rows of one sub-group."""
        return self.rows_per_sub_group // self.tile_rows

    @property
    def rows(self) -> int:
        """Rows of the batch of one work-group."""
        return self.rows_per_sub_group * self.sub_groups


def padded(width: int) -> int:
    """A width with its padding."""
    return -(-width // PADDING) * PADDING


def weight_packing(k: int, n: int, lanes: int, dtype: str) -> Packing:
    """Tiles [k / 16][n / lanes] of 8 rows with one pair of k per lane, as DPAS takes them.

    On 16 lanes row i of a tile pairs k = 2 i and 2 i + 1, on 8 lanes k = i and i + 8.
    """
    blocks = padded(k) // DEPTH
    columns = (padded(n) // lanes, lanes)
    if lanes == 16:
        return Packing(k, n, (blocks, 8, 2), columns, (0, 3, 1, 4, 2), dtype)
    return Packing(k, n, (blocks, 2, 8), columns, (0, 3, 2, 4, 1), dtype)


def shared_bytes(mlp: MLP) -> int:
    """Shared memory of a work-group: the weights of the largest layer."""
    return ELEMENT_BYTES * max(padded(k) * padded(n) for k, n in mlp.shapes)


def register_need(mlp: MLP, plan: Plan) -> int:
    """Bytes of registers that a sub-group cannot do without: a lower bound.

    While the last chunk of a layer's columns is summed up, the layer's input, the columns that are
    done and the chunk's sums are all alive, and so is what a later layer adds.
    """
    rows = plan.rows_per_sub_group
    chunk = plan.accumulators * plan.lanes
    tile = DEPTH * plan.lanes * ELEMENT_BYTES
    most = 0
    for layer, (k, n) in enumerate(mlp.shapes):
        columns = min(chunk, padded(n))
        done = padded(n) - columns if layer < mlp.layers - 1 else 0
        kept = {r.source for r in mlp.residuals[layer:] if r is not None and r.source < layer}
        stored = padded(k) + done + sum(padded(mlp.widths[source]) for source in kept)
        most = max(most, rows * (stored * ELEMENT_BYTES + columns * SUM_BYTES) + tile)
    return most
