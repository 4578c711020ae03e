"""The kernel of AMD's matrix instructions, written with TVM's IR builder.

A wave owns ``row_tiles`` tiles of rows and keeps their activations in registers through all layers.
A work-group's waves share the weights, in local data share (LDS) or straight from memory.  Start at
``emit``.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import T, tirx

from ..activations import expression
from ..description import MLP
from ..packing import BIAS_DTYPE, Packing
from .amd_dialect import Dialect
from .amd_plan import Plan, Unit
from .amd_word import Word
from .builder import prim_func

Expression = Any
Buffer = Any

_COPY_BYTES = 16
"""What one work-item copies at a time: the widest load and LDS store."""

_WORDS_AHEAD = 32
"""Registers of weights that LLVM may load before it uses the first of them."""


def emit(mlp: MLP, batch: int | None, plan: Plan, dialect: Dialect) -> Any:
    """The PrimFunc of ``plan``, with the parameters that ``FusedKernel`` names."""
    return prim_func(lambda: _statements(mlp, batch, plan, dialect))


def _statements(mlp: MLP, batch: int | None, plan: Plan, dialect: Dialect) -> None:
    rows = tirx.Var("batch", "int64") if batch is None else T.int64(batch)
    x = T.arg("x", T.buffer((rows, mlp.widths[0]), mlp.dtype))
    weights, biases = _parameters(mlp, plan.packings)
    y = T.arg("y", T.buffer((rows, mlp.widths[-1]), mlp.dtype))
    with ExitStack() as threads:
        launch = threads.enter_context
        groups = -(-batch // plan.rows) if batch else (rows + plan.rows - 1) // plan.rows
        group = launch(T.launch_thread("blockIdx.x", groups))
        wave = launch(T.launch_thread("threadIdx.y", plan.waves))
        lane = launch(T.launch_thread("threadIdx.x", plan.instruction.wave))
        guarded = batch is None or batch % plan.rows != 0
        place = Place(group, wave, lane, rows, guarded)
        _Kernel(mlp, plan, dialect, place, weights, biases).run(x, y)


def _parameters(
    mlp: MLP, packings: tuple[Packing, ...]
) -> tuple[list[Buffer], list[Buffer | None]]:
    weights: list[Buffer] = []
    biases: list[Buffer | None] = []
    for layer, packing in enumerate(packings):
        weights.append(T.arg(f"w{layer}", T.buffer(packing.shape, packing.dtype)))
        bias = T.buffer((packing.n_padded,), BIAS_DTYPE) if mlp.bias[layer] else None
        biases.append(None if bias is None else T.arg(f"b{layer}", bias))
    return weights, biases


@dataclass(frozen=True)
class Place:
    """Where a work-item stands: its group, wave and lane, and the rows there are."""

    group: Expression
    wave: Expression
    lane: Expression
    rows: Expression
    guarded: bool


class _Kernel:
    """Emits the body, layer by layer.

    A tensor is a register buffer (row_tiles, words): of each of its rows a lane holds ``run``
    consecutive features of every ``block``; element q is feature (q // run) * block + group * run
    + q % run.  A word is a float32, or two elements of 16 bits: LLVM makes poor use of registers
    that it sees as arrays of half words.
    """

    def __init__(
        self,
        mlp: MLP,
        plan: Plan,
        dialect: Dialect,
        place: Place,
        weights: list[Buffer],
        biases: list[Buffer | None],
    ) -> None:
        self.mlp, self.plan, self.dialect, self.place = mlp, plan, dialect, place
        self.weights, self.biases = weights, biases
        self.isa = plan.instruction
        self.group = place.lane // self.isa.tile  # of the lanes that serve one row
        self.word = Word(mlp.dtype)
        self.flat: list[Buffer] = []
        self.shared: Buffer = None
        self.sums: Buffer = None
        self.weight: Buffer = None

    def run(self, x: Buffer, y: Buffer) -> None:
        """The whole kernel."""
        self.allocate()
        tensors = [self.load_input(x)]
        if self.plan.weights == "network":
            for unit in self.plan.units:
                self.copy(unit)
            _barrier()
        for layer in range(self.mlp.layers):
            tensors.append(self.layer(layer, tensors))
        self.store_output(y, tensors[-1])

    def loop(self, first: int, end: int) -> Any:
        """A loop that is unrolled where registers need constant indices."""
        return T.unroll(first, end) if self.dialect.unrolled else T.serial(first, end)

    def allocate(self) -> None:
        """LDS, the registers that all layers use in turn, and flat views of the weights."""
        isa, plan, word = self.isa, self.plan, self.word
        if plan.shared_elements:
            shared = (word.count(plan.shared_elements),)
            self.shared = T.alloc_buffer(shared, word.dtype, scope="shared")
        sums = (plan.row_tiles, isa.accumulators)
        self.sums = T.alloc_buffer(sums, "float32", scope="local")
        self.weight = self.registers((word.count(isa.operand_elements),))
        for weight, packing in zip(self.weights, plan.packings, strict=True):
            elements = packing.k_padded * packing.n_padded
            self.flat.append(T.decl_buffer((elements,), packing.dtype, data=weight.data))

    def registers(self, shape: tuple[int, ...]) -> Buffer:
        """A buffer of words in registers."""
        return T.alloc_buffer(shape, self.word.dtype, scope="local")

    def row(self, tile: Expression) -> Expression:
        """The row of the batch that this lane serves in row tile ``tile`` of its wave.

        Past the end of the batch it is the last row.
        """
        place, plan = self.place, self.plan
        first = (place.wave * plan.row_tiles + tile) * self.isa.tile + place.lane % self.isa.tile
        row = T.cast(place.group, "int64") * plan.rows + T.cast(first, "int64")
        return T.min(row, place.rows - 1) if place.guarded else row

    def feature(self, block: Expression) -> Expression:
        """The first feature that this lane holds of a block."""
        return block * self.isa.block + self.group * self.isa.run

    def load_input(self, x: Buffer) -> Buffer:
        """Rows of the input in registers; features beyond its width are 0."""
        blocks, words = self.isa.blocks(self.mlp.widths[0]), self.word.count(self.isa.run)
        tensor = self.registers((self.plan.row_tiles, blocks * words))
        for row_tile in range(self.plan.row_tiles):
            row = self.row(row_tile)
            for block in range(blocks):
                self.load_block(x, tensor, row_tile, row, block)
        return tensor

    def load_block(
        self, x: Buffer, tensor: Buffer, row_tile: int, row: Expression, block: int
    ) -> None:
        """One block of a row: as a vector if it is whole, else feature by feature."""
        run, width, word = self.isa.run, self.mlp.widths[0], self.word
        words, first = word.count(run), self.feature(block)
        if (block + 1) * self.isa.block <= width:
            value = word.of_stored(x[row, T.ramp(first, 1, run)], run)
            T.buffer_store(tensor, value, [row_tile, T.ramp(block * words, 1, words)])
            return
        for w in range(words):
            features = [first + w * word.elements + e for e in range(word.elements)]
            parts = [word.loaded(f < width, x[row, f]) for f in features]
            T.buffer_store(tensor, word.joined(parts), [row_tile, block * words + w])

    def layer(self, layer: int, tensors: list[Buffer]) -> Buffer:
        """One layer: from its input in registers to its output in registers."""
        elements = self.isa.tiles(self.mlp.widths[layer + 1]) * self.isa.accumulators
        output = self.registers((self.plan.row_tiles, self.word.count(elements)))
        operands = self.operands(tensors[layer], self.mlp.widths[layer])
        for unit in self.plan.units_of(layer):
            self.fetch(unit)
            with self.loop(unit.first, unit.end) as tile:
                self.output_tile(unit, tile, operands, output, tensors)
        return output

    def fetch(self, unit: Unit) -> None:
        """See to it that the unit's weights lie in LDS, if they are to."""
        if self.plan.weights == "layer":
            if unit.number:
                _barrier()  # every wave is done with the unit before
            self.copy(unit)
            _barrier()
        elif self.plan.weights == "double":
            if not unit.number:
                self.copy(unit)
            _barrier()
            if unit.number + 1 < len(self.plan.units):
                self.copy(self.plan.units[unit.number + 1])

    def copy(self, unit: Unit) -> None:
        """All waves copy a unit of weights to its place in LDS.

        Without a branch or a loop: they would end the basic block, and LLVM moves the products of
        the layer before behind it, away from their weights, which then fill the registers.  Where
        there are more work-items than pieces, several write the same.
        """
        plan, place, word = self.plan, self.place, self.word
        threads = plan.waves * self.isa.wave
        wide = _COPY_BYTES // plan.element_bytes
        words, chunks = word.count(wide), unit.elements // wide
        for turn in range(-(-chunks // threads)):
            chunk = turn * threads + place.wave * self.isa.wave + place.lane
            if (turn + 1) * threads > chunks:
                chunk = chunk % chunks
            values = self.flat[unit.layer][T.ramp(unit.source + chunk * wide, 1, wide)]
            at = T.ramp(word.count(unit.offset) + chunk * words, 1, words)
            T.buffer_store(self.shared, word.of_stored(values, wide), [at])

    def operands(self, tensor: Buffer, width: int) -> Buffer:
        """A tensor as operand B: itself, or (gfx11) with the other half's features beside its own.

        Of a block, group 0 holds the first run and group 1 the second; both need both.
        """
        isa = self.isa
        if not isa.replicated:
            return tensor
        words, blocks = self.word.count(isa.run), isa.blocks(width)
        whole = self.registers((self.plan.row_tiles, blocks * 2 * words))
        for row_tile in range(self.plan.row_tiles):
            with self.loop(0, blocks) as block:
                for w in range(words):
                    # Bound to variables: TVM makes a branch of a selection between anything that
                    # loads or calls, and lanes that sleep in a branch exchange nothing.
                    own = T.Bind(tensor[row_tile, block * words + w])
                    other = T.Bind(self.dialect.other_half(own))
                    low, high = self.group == 0, self.group != 0
                    at = block * 2 * words + w
                    T.buffer_store(whole, T.Select(low, own, other), [row_tile, at])
                    T.buffer_store(whole, T.Select(high, own, other), [row_tile, at + words])
        return whole

    def output_tile(
        self, unit: Unit, tile: Expression, operands: Buffer, output: Buffer, tensors: list[Buffer]
    ) -> None:
        """One tile of output features for all rows of the wave: product, epilogue, conversion."""
        isa, word = self.isa, self.word
        blocks = isa.blocks(self.mlp.widths[unit.layer])
        ahead = max(1, _WORDS_AHEAD // word.count(isa.operand_elements))
        self.start_sums(unit.layer, tile)
        for first in range(0, blocks, ahead):
            self.dialect.fence()
            with self.loop(first, min(first + ahead, blocks)) as block:
                self.load_weight(unit, tile, block)
                for row_tile in range(self.plan.row_tiles):
                    self.multiply(operands, row_tile, block)
        words = word.count(isa.accumulators)
        for row_tile in range(self.plan.row_tiles):
            with self.loop(0, words) as w:
                at = tile * words + w
                values = [
                    T.Bind(self.epilogue(unit.layer, row_tile, w, e, tensors, at))
                    for e in range(word.elements)
                ]
                T.buffer_store(output, word.rounded(values), [row_tile, at])

    def start_sums(self, layer: int, tile: Expression) -> None:
        """The bias, or zero."""
        isa, bias = self.isa, self.biases[layer]
        for part in range(isa.accumulators // isa.run):
            first = self.feature(tile * (isa.tile // isa.block) + part)
            at = T.ramp(part * isa.run, 1, isa.run)
            for row_tile in range(self.plan.row_tiles):
                zero = T.broadcast(T.float32(0), isa.run)
                value = zero if bias is None else bias[T.ramp(first, 1, isa.run)]
                T.buffer_store(self.sums, value, [row_tile, at])

    def load_weight(self, unit: Unit, tile: Expression, block: Expression) -> None:
        """This lane's part of operand A."""
        isa, word = self.isa, self.word
        blocks, parts = isa.blocks(self.mlp.widths[unit.layer]), isa.operand_elements // isa.run
        lanes = isa.tile if isa.replicated else isa.wave
        words = word.count(isa.run)
        for part in range(parts):
            run = ((tile * blocks + block) * parts + part) * lanes + self.place.lane % lanes
            if self.shared is None:
                stored = self.flat[unit.layer][T.ramp(run * isa.run, 1, isa.run)]
                value = word.of_stored(stored, isa.run)
            else:
                staged = word.count(unit.offset - unit.source) + run * words
                value = self.shared[T.ramp(staged, 1, words)]
            T.buffer_store(self.weight, value, [T.ramp(part * words, 1, words)])

    def multiply(self, operands: Buffer, row_tile: int, block: Expression) -> None:
        """The matrix instructions of one block."""
        isa, word = self.isa, self.word
        words = word.count(isa.operand_elements) // isa.steps
        sums = T.ramp(0, 1, isa.accumulators)
        for step in range(isa.steps):
            a = word.as_operand(self.weight[_span(step, words)], isa.operand, words)
            first = block * (words * isa.steps) + step
            b = word.as_operand(operands[row_tile, _span(first, words)], isa.operand, words)
            value = self.dialect.multiply(isa, a, b, self.sums[row_tile, sums])
            T.buffer_store(self.sums, value, [row_tile, sums])

    def epilogue(
        self,
        layer: int,
        row_tile: int,
        w: Expression,
        e: int,
        tensors: list[Buffer],
        at: Expression,
    ) -> Expression:
        """Residual and activation of the sum of element ``e`` of word ``w``, in float32."""
        residual, activation = self.mlp.residuals[layer], self.mlp.activations[layer]
        value = self.sums[row_tile, w * self.word.elements + e]
        if residual is None:
            return expression(activation, value)
        added = self.word.widened(tensors[residual.source][row_tile, at], e)
        if residual.before_activation:
            return expression(activation, value + added)
        return expression(activation, value) + added

    def store_output(self, y: Buffer, tensor: Buffer) -> None:
        """The features that exist.  What the lanes past the last row computed is that row again.

        So they may store it again, and no branch is needed for the batch's tail.
        """
        width = self.mlp.widths[-1]
        for row_tile in range(self.plan.row_tiles):
            row = self.row(row_tile)
            for block in range(width // self.isa.block):
                self.store_block(y, tensor, row_tile, row, block)
            if width % self.isa.block:
                self.store_tail(y, tensor, row_tile, row)

    def store_block(
        self, y: Buffer, tensor: Buffer, row_tile: int, row: Expression, block: int
    ) -> None:
        """A whole block of a row."""
        run, words = self.isa.run, self.word.count(self.isa.run)
        values = tensor[row_tile, T.ramp(block * words, 1, words)]
        stored = self.word.as_operand(values, self.mlp.dtype, words)
        T.buffer_store(y, stored, [row, T.ramp(self.feature(block), 1, run)])

    def store_tail(self, y: Buffer, tensor: Buffer, row_tile: int, row: Expression) -> None:
        """The last block of a row, feature by feature."""
        width, word = self.mlp.widths[-1], self.word
        block = width // self.isa.block
        first = self.feature(block)
        words = word.count(self.isa.run)
        pinned = []
        for w in range(words):
            value = tensor[row_tile, block * words + w]
            pinned.append(T.Bind(self.dialect.pinned(self.isa, value)))
        for e in range(self.isa.run):
            element = word.element(pinned[e // word.elements], e % word.elements)
            with T.If(first + e < width), T.Then():
                T.buffer_store(y, element, [row, first + e])


def _span(first: Expression, lanes: int) -> Expression:
    """``lanes`` consecutive elements."""
    return first if lanes == 1 else T.ramp(first, 1, lanes)


def _barrier() -> None:
    T.evaluate(T.tvm_storage_sync("shared"))
