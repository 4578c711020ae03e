"""Matrix products of a tile, in register blocks.

The same function serves the three products of a training step: H W (forward), D W^T (backward-data)
and D^T H (weight gradients); they differ in how an operand is read, which the caller says.  It is
emitted through TVM's IR builder, not by schedule primitives: a sum that goes on over the tiles of
one thread, beside the products that make its operands, is outside of what ``compute_at`` allows.
"""

from __future__ import annotations

from collections.abc import Callable

from tunerplugin.integrations.compat import T

from .register_block import Buffer, Expression, RegisterBlock

Element = Callable[[Expression, Expression], Expression]
Store = Callable[[Expression, Expression, Expression], None]


def workspace(*shape: int) -> Buffer:
    """A float32 buffer of the kernel's own."""
    return T.alloc_buffer(shape, "float32", scope="global")


def multiply(
    block: RegisterBlock,
    rows: int,
    width: int,
    depth: int,
    left: Element,
    right: Element,
    finish: Store,
) -> None:
    """finish(r, c, sum_k left(r, k) * right(k, c)) for r < rows, c < padded(width), k < depth.

    ``left`` is read one element at a time, ``right`` and ``finish`` a vector of columns.  Rows and
    columns that fill no whole block get smaller blocks, emitted beside the full ones.
    """
    columns = block.padded(width)
    whole_panels, rest = divmod(columns, block.columns)
    if whole_panels:
        with T.serial(0, whole_panels) as panel:
            _panel(block, rows, depth, panel * block.columns, left, right, finish)
    if rest:
        narrow = RegisterBlock(block.rows, rest // block.lanes, block.lanes)
        _panel(narrow, rows, depth, whole_panels * block.columns, left, right, finish)


def _panel(
    block: RegisterBlock,
    rows: int,
    depth: int,
    column: Expression,
    left: Element,
    right: Element,
    finish: Store,
) -> None:
    whole, rest = divmod(rows, block.rows)
    if whole:
        with T.serial(0, whole) as index:
            _block(block, depth, index * block.rows, column, left, right, finish)
    if rest:
        short = RegisterBlock(rest, block.vectors, block.lanes)
        _block(short, depth, whole * block.rows, column, left, right, finish)


def _block(
    block: RegisterBlock,
    depth: int,
    row: Expression,
    column: Expression,
    left: Element,
    right: Element,
    finish: Store,
) -> None:
    sums = block.sums()
    with block.each() as (r, v, lane):
        T.buffer_store(sums, T.float32(0.0), [r, v * block.lanes + lane])
    block.accumulate(
        sums,
        depth,
        lambda r, k: left(row + r, k),
        lambda k, v, lane: right(k, column + (v * block.lanes + lane)),
    )
    with block.each() as (r, v, lane):
        offset = v * block.lanes + lane
        finish(row + r, column + offset, sums[r, offset])
