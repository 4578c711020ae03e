"""The inference kernel, emitted through TVM's IR builder.

Not by schedule primitives: a last tile that is not full, widths that are no multiple of a vector
and tensors that outlive a layer are all outside of what ``compute_at`` handles without predicates
in the inner loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import (
    NOALIAS,
    SCHEDULED,
    IRBuilder,
    T,
    prefetch,
    tirx,
)

from ..activations import expression
from ..packing import BIAS_DTYPE, numpy_dtype
from ..template import ENTRY
from .plan import Block, Plan, Strip
from .register_block import Buffer, Expression, RegisterBlock

_LINE_BYTES = 64  # of a cache
_SHORT = {"none", "relu", "leaky_relu"}


def build(plan: Plan, batch: int | None) -> Any:
    """The kernel as a PrimFunc; ``batch`` None: symbolic.  Parameters as in ``FusedKernel``."""
    mlp = plan.mlp
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(ENTRY)
        T.func_attr({"global_symbol": ENTRY, NOALIAS: True, SCHEDULED: True})
        rows = tirx.Var("batch", "int64") if batch is None else T.int64(batch)
        x = T.arg("x", T.buffer((rows, mlp.widths[0]), mlp.dtype))
        weights: list[Buffer] = []
        biases: list[Buffer | None] = []
        for layer, packing in enumerate(plan.packings):
            weights.append(T.arg(f"w{layer}", T.buffer(packing.shape, packing.dtype)))
            bias = T.buffer((packing.n_padded,), BIAS_DTYPE) if mlp.bias[layer] else None
            biases.append(None if bias is None else T.arg(f"b{layer}", bias))
        y = T.arg("y", T.buffer((rows, mlp.widths[-1]), mlp.dtype))
        whole = batch is not None and batch % plan.knobs.rows == 0
        with T.parallel(T.int64(0), _tiles(rows, plan.knobs.rows)) as index:
            Tile(plan, x, weights, biases, y, rows, whole, index).emit()
    return builder.get()


def _tiles(rows: Expression, of: int) -> Expression:
    return (rows + (of - 1)) // of


@dataclass
class Tile:
    """Emits one tile of rows through all layers.

    ``batch`` is the number of rows there are, ``whole`` says that every tile is full, ``index`` is
    the tile's number.
    """

    plan: Plan
    x: Buffer
    weights: list[Buffer]
    biases: list[Buffer | None]
    y: Buffer
    batch: Expression
    whole: bool
    index: Expression

    def emit(self) -> None:
        """The whole tile."""
        plan = self.plan
        rows, lanes = plan.knobs.rows, plan.machine.lanes
        self.slots = [
            T.alloc_buffer((rows, vectors * lanes), "float32", scope="global")
            for vectors in plan.slot_vectors
        ]
        if plan.knobs.staged:
            self._stage()
        for layer in range(plan.mlp.layers):
            for strip in plan.strips(layer):
                self._strip(layer, strip)

    def _row(self, row: Expression) -> Expression:
        """A tile's row as a row of the batch; perhaps beyond its end."""
        return self.index * self.plan.knobs.rows + tirx.Cast("int64", row)

    def _inside(self, row: Expression) -> Expression:
        """As ``_row``, but the last one for those beyond the end."""
        return self._row(row) if self.whole else tirx.min(self._row(row), self.batch - 1)

    def _stage(self) -> None:
        """Copy the input to its buffer, in float32, with zeros in the padding."""
        width, lanes = self.plan.mlp.widths[0], self.plan.machine.lanes
        buffer = self.slots[self.plan.slots[0]]
        full, rest = divmod(width, lanes)
        with T.serial(0, self.plan.knobs.rows) as r:
            if full:
                with T.serial(0, full) as v, T.vectorized(0, lanes) as lane:
                    column = v * lanes + lane
                    value = self.x[self._inside(r), column].astype("float32")
                    T.buffer_store(buffer, value, [r, column])
            for column in range(full * lanes, width):
                value = self.x[self._inside(r), column].astype("float32")
                T.buffer_store(buffer, value, [r, column])
            for column in range(width, self.plan.vectors(width) * lanes if rest else width):
                T.buffer_store(buffer, T.float32(0), [r, column])

    def _strip(self, layer: int, strip: Strip) -> None:
        block = strip.block
        blocks = self.plan.knobs.rows // block.rows
        with T.serial(0, strip.count) as panel, T.serial(0, blocks) as r:
            if self.plan.knobs.prefetch and not strip.first_vector:
                self._prefetch(layer, panel * blocks + r, strip.count * blocks)
            row = r * block.rows
            vector = panel * block.vectors + strip.first_vector
            sums = self._registers(block).sums()
            self._multiply(layer, block, row, vector, sums)
            self._finish(layer, strip, row, vector, sums)

    def _registers(self, block: Block) -> RegisterBlock:
        return RegisterBlock(block.rows, block.vectors, self.plan.machine.lanes)

    def _multiply(
        self, layer: int, block: Block, row: Expression, vector: Expression, sums: Buffer
    ) -> None:
        """sums = bias + h[row..] W[:, vector..]."""
        lanes, registers = self.plan.machine.lanes, self._registers(block)
        weight, bias = self.weights[layer], self.biases[layer]
        source = self._reader(layer)
        with registers.each() as (r, v, lane):
            start = T.float32(0) if bias is None else bias[(vector + v) * lanes + lane]
            T.buffer_store(sums, start, [r, v * lanes + lane])
        registers.accumulate(
            sums,
            self.plan.mlp.widths[layer],
            lambda r, k: source(row + r, k),
            lambda k, v, lane: weight[vector + v, k, lane],
            self.plan.knobs.unroll,
        )

    def _reader(self, tensor: int) -> Callable[[Expression, Expression], Expression]:
        """Reads a tensor at a row and column of the tile."""
        if tensor in self.plan.slots:
            buffer = self.slots[self.plan.slots[tensor]]
            return lambda row, column: buffer[row, column]
        return lambda row, column: self.x[self._inside(row), column]

    def _finish(
        self, layer: int, strip: Strip, row: Expression, vector: Expression, sums: Buffer
    ) -> None:
        """Residual, activation, and the store to the next tensor.

        A short activation is applied to the registers.  A long one would be written out once for
        each of them, and TVM's rounding to bfloat16 repeats its operand: there the sums go through
        the stack, row by row.
        """
        mlp, block = self.plan.mlp, strip.block
        last, finish = layer + 1 == mlp.layers, self._finisher(layer)
        if mlp.activations[layer].function in _SHORT and not (last and mlp.dtype != "float32"):
            with T.unroll(0, block.rows) as r:
                self._store(layer, strip, row + r, vector, lambda column: sums[r, column], finish)
            return
        lanes = self.plan.machine.lanes
        stack = self._registers(block).sums()
        with self._registers(block).each() as (r, v, lane):
            T.buffer_store(stack, sums[r, v * lanes + lane], [r, v * lanes + lane])
        with T.serial(0, block.rows) as r:
            with T.unroll(0, block.vectors) as v, T.vectorized(0, lanes) as lane:
                column = v * lanes + lane
                value = finish(row + r, vector * lanes + column, stack[r, column])
                T.buffer_store(stack, value, [r, column])
            self._store(layer, strip, row + r, vector, lambda column: stack[r, column], None)

    def _finisher(self, layer: int) -> Callable[[Expression, Expression, Expression], Expression]:
        """From row, column and sum to the element of the layer's output."""
        residual, activation = self.plan.mlp.residuals[layer], self.plan.mlp.activations[layer]
        skip = None if residual is None else self._reader(residual.source)

        def finish(row: Expression, column: Expression, total: Expression) -> Expression:
            if residual is None or skip is None:
                return expression(activation, total, "polynomial")
            if residual.before_activation:
                return expression(activation, total + skip(row, column), "polynomial")
            return expression(activation, total, "polynomial") + skip(row, column)

        return finish

    def _store(
        self,
        layer: int,
        strip: Strip,
        row: Expression,
        vector: Expression,
        value: Callable[[Expression], Expression],
        finish: Callable[[Expression, Expression, Expression], Expression] | None,
    ) -> None:
        """One row of a block to the layer's output; ``value`` is by column within the block."""
        lanes = self.plan.machine.lanes

        def put(column: Expression) -> None:
            place = vector * lanes + column
            element = value(column) if finish is None else finish(row, place, value(column))
            self._put(layer, row, place, element)

        with self._if_inside(layer, row):
            if strip.stored:
                with T.unroll(0, strip.stored) as v, T.vectorized(0, lanes) as lane:
                    put(v * lanes + lane)
            if strip.lanes_left:
                with T.vectorized(0, strip.lanes_left) as lane:
                    put(strip.stored * lanes + lane)

    def _put(self, layer: int, row: Expression, column: Expression, element: Expression) -> None:
        if layer + 1 == self.plan.mlp.layers:
            T.buffer_store(self.y, element.astype(self.plan.mlp.dtype), [self._row(row), column])
        else:
            T.buffer_store(self.slots[self.plan.slots[layer + 1]], element, [row, column])

    @contextmanager
    def _if_inside(self, layer: int, row: Expression) -> Iterator[None]:
        """Only rows of the batch are stored in the output."""
        if layer + 1 < self.plan.mlp.layers or self.whole:
            yield
            return
        with T.If(self._row(row) < self.batch), T.Then():
            yield

    def _prefetch(self, layer: int, block: Expression, blocks: int) -> None:
        """This block's share of the next tile's input, or of this tile's output."""
        mlp, rows = self.plan.mlp, self.plan.knobs.rows
        first = self.index * rows
        if layer == 0:
            following = tirx.max(tirx.min(first + rows, self.batch - rows), T.int64(0))
            self._prefetch_rows(self.x, mlp.widths[0], following, False, block, blocks)
        if layer == max(0, mlp.layers - 2):
            self._prefetch_rows(self.y, mlp.widths[-1], first, True, block, blocks)

    def _prefetch_rows(
        self,
        buffer: Buffer,
        width: int,
        first: Expression,
        write: bool,
        block: Expression,
        blocks: int,
    ) -> None:
        """One block's share of the cache lines of the rows from ``first`` on.

        Lines beyond the end of the buffer may be among them: the processor ignores those.
        """
        line = _LINE_BYTES // numpy_dtype(self.plan.mlp.dtype).itemsize
        lines = -(-self.plan.knobs.rows * width // line)
        share = -(-lines // blocks)
        for index in range(share):
            element = (block * share + index) * line
            place = buffer[first + tirx.Cast("int64", element // width), element % width]
            T.evaluate(prefetch(place, write))
