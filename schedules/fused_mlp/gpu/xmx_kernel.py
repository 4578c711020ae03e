"""The XMX kernel as TIR: the scheme of Yuan et al. (arXiv 2403.17607), any widths.

A sub-group owns 8 rows of the batch (or 4, or a few times 8) and keeps their activations in
registers through all layers.  A layer's weights pass through shared memory once for a work-group,
between two barriers, or come straight from the cache.

A tile of sums has one column per lane.  On 16 lanes that is, converted to 16 bits, how DPAS takes
the next layer's activations (lane = k).  On 8 lanes DPAS takes pairs of k in a lane; lane l packs
columns l and l + 8 of a block of 16 as its pair, and the weights' rows are packed in the same order
(``xmx_plan.weight_packing``), so nothing moves between lanes there either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tunerplugin.integrations.compat import T, tirx

from ..activations import expression
from ..description import MLP
from ..packing import Packing
from .builder import Parameters, allocated, flat, prim_func
from .xmx_plan import DEPTH, ELEMENT_BYTES, Plan, padded, shared_bytes

_WORD_BYTES = 4
_WORD = _WORD_BYTES // ELEMENT_BYTES  # elements of a word
_WORDS = 4  # that a work-item copies at once


def build(mlp: MLP, batch: int | None, packings: tuple[Packing, ...], plan: Plan) -> Any:
    """The PrimFunc, its parameters as ``FusedKernel`` has them."""
    return prim_func(lambda: _Kernel(mlp, Parameters(mlp, batch, packings, plan.rows), plan).emit())


class _Kernel:
    """Emits the statements of one kernel; tiles are unrolled here, their rows by TVM."""

    def __init__(self, mlp: MLP, parameters: Parameters, plan: Plan) -> None:
        self.mlp, self.parameters, self.plan = mlp, parameters, plan
        self.tile_rows = plan.tile_rows

    def emit(self) -> None:
        """The whole kernel."""
        with (
            T.launch_thread("blockIdx.x", self.parameters.groups) as group,
            T.launch_thread("threadIdx.y", self.plan.sub_groups) as sub_group,
            T.launch_thread("threadIdx.x", self.plan.lanes) as lane,
        ):
            self.lane = lane
            self.item = sub_group * self.plan.lanes + lane
            # All lanes have the same rows; told so, the compiler keeps addresses and tail checks
            # out of the vector registers.
            self.rows = allocated("row", 1, "int32")
            first = (group * self.plan.sub_groups + sub_group) * self.plan.rows_per_sub_group
            T.buffer_store(self.rows, tirx.call_extern("int32", "xmx_uniform", first), [0])
            # Once: every declaration nests what follows it, and TVM's passes are recursive.
            self.weights = [flat(weight) for weight in self.parameters.weights]
            self.tile = allocated("tile", 8, "int32")
            self.sums = allocated(
                "sums", self.plan.accumulators * self.plan.rows_per_sub_group, "float32"
            )
            if self.plan.staged:
                # Words, not elements: TVM would make a bfloat16 buffer a float32 one.
                words = shared_bytes(self.mlp) // _WORD_BYTES
                self.shared = allocated("staged", words, "int32", "shared")
            self.tensors = [self._load_input()]
            for layer in range(self.mlp.layers):
                self._layer(layer)

    # Registers of activations: [row tile][block of 16 columns][row].  16 lanes: int16, the
    # element of column = lane.  8 lanes: int32, the pair of columns lane and lane + 8.

    def _registers(self, tensor: int) -> Any:
        blocks = padded(self.mlp.widths[tensor]) // DEPTH
        dtype = "int16" if self.plan.lanes == 16 else "int32"
        return allocated(f"h{tensor}", self.plan.rows_per_sub_group * blocks, dtype)

    def _store(self, registers: Any, index: Any, values: list[Any]) -> None:
        """``values``: float32, of column lane of the block, or of lane and lane + 8."""
        if self.plan.lanes == 16:
            value = tirx.call_extern("int16", "xmx_narrow", *values)
        else:
            value = tirx.call_extern("int32", "xmx_pair", *values)
        T.buffer_store(registers, value, [index])

    def _fetch(self, registers: Any, index: Any, half: int) -> Any:
        name = "xmx_widen" if self.plan.lanes == 16 else ("xmx_low", "xmx_high")[half]
        return tirx.call_extern("float32", name, registers[index])

    def _load_input(self) -> Any:
        registers = self._registers(0)
        blocks = padded(self.mlp.widths[0]) // DEPTH
        for row_tile, block in _pairs(self.plan.row_tiles, blocks):
            with T.unroll(self.tile_rows) as m:
                values = [
                    self._input(self._row(row_tile, m), block * DEPTH + start)
                    for start in range(0, DEPTH, self.plan.lanes)
                ]
                self._store(registers, (row_tile * blocks + block) * self.tile_rows + m, values)
        return registers

    def _row(self, row_tile: int, m: Any) -> Any:
        return self.rows[0] + row_tile * self.tile_rows + m

    def _input(self, row: Any, start: int) -> Any:
        """The lane's element of a row's columns from ``start``, without a branch.

        Rows beyond the batch repeat the last one; they are never stored.  Columns beyond the
        width are zero, as the weights' rows that they meet are: 0 * inf would be NaN.
        """
        width = self.mlp.widths[0]
        row = self.parameters.existing_row(row)
        column = start + self.lane
        if start + self.plan.lanes <= width:
            return self.parameters.x[row, column].astype("float32")
        value = self.parameters.x[row, tirx.min(column, width - 1)].astype("float32")
        return tirx.Select(column < width, value, _zero())

    def _inside(self, row: Any, start: int) -> Any:
        """The condition that the lane's element of the output exists; None: it always does."""
        conditions = [row < self.parameters.batch] if self.parameters.partial else []
        if start + self.plan.lanes > self.mlp.widths[-1]:
            conditions.append(start + self.lane < self.mlp.widths[-1])
        return tirx.all(*conditions) if conditions else None

    def _layer(self, layer: int) -> None:
        if self.plan.staged:
            self._stage(layer)
        last = layer == self.mlp.layers - 1
        output = None if last else self._registers(layer + 1)
        tiles = padded(self.mlp.widths[layer + 1]) // self.plan.lanes
        for first in range(0, tiles, self.plan.accumulators):
            chunk = range(first, min(tiles, first + self.plan.accumulators))
            self._start_sums(layer, chunk)
            self._multiply(layer, chunk, tiles)
            if last:
                self._store_output(layer, chunk)
            else:
                self._store_hidden(layer, chunk, output)
        if output is not None:
            self.tensors.append(output)

    def _stage(self, layer: int) -> None:
        """Copy a layer's weights into shared memory, between two barriers."""
        if layer > 0:
            T.evaluate(T.tvm_storage_sync("shared"))
        source = self.weights[layer]
        threads = self.plan.sub_groups * self.plan.lanes
        vectors = int(source.shape[0]) // (_WORDS * _WORD)
        with T.serial(-(-vectors // threads)) as i:
            index = i * threads + self.item
            origin = T.address_of(source[index * _WORDS * _WORD])
            words = tirx.call_extern("int32x4", "xmx_words", origin)
            # Stored here, not by an extern: TVM cuts a buffer down to what it sees in use.
            place = [tirx.Ramp(index * _WORDS, 1, _WORDS)]
            if vectors % threads:
                with T.If(index < vectors), T.Then():
                    T.buffer_store(self.shared, words, place)
            else:
                T.buffer_store(self.shared, words, place)
        T.evaluate(T.tvm_storage_sync("shared"))

    def _sum(self, row_tile: int, position: int) -> int:
        """Where a tile's sums begin."""
        return (row_tile * self.plan.accumulators + position) * self.tile_rows

    def _start_sums(self, layer: int, chunk: range) -> None:
        bias = self.parameters.biases[layer]
        for row_tile, position in _pairs(self.plan.row_tiles, len(chunk)):
            column = chunk[position] * self.plan.lanes + self.lane
            value = tirx.Broadcast(_zero() if bias is None else bias[column], self.tile_rows)
            rows = tirx.Ramp(self._sum(row_tile, position), 1, self.tile_rows)
            T.buffer_store(self.sums, value, [rows])

    def _multiply(self, layer: int, chunk: range, tiles: int) -> None:
        blocks = padded(self.mlp.widths[layer]) // DEPTH
        whole_tile = tirx.Ramp(0, 1, 8)
        for block in range(blocks):
            for position, column in enumerate(chunk):
                T.buffer_store(
                    self.tile, self._weights(layer, block * tiles + column), [whole_tile]
                )
                for row_tile in range(self.plan.row_tiles):
                    left = tirx.Ramp(
                        (row_tile * blocks + block) * self.tile_rows, 1, self.tile_rows
                    )
                    sums = tirx.Ramp(self._sum(row_tile, position), 1, self.tile_rows)
                    product = tirx.call_extern(
                        f"float32x{self.tile_rows}",
                        "xmx_dpas",
                        self.tensors[layer][left],
                        self.tile[whole_tile],
                        self.sums[sums],
                    )
                    T.buffer_store(self.sums, product, [sums])

    def _weights(self, layer: int, tile: int) -> Any:
        offset = tile * DEPTH * self.plan.lanes
        if self.plan.staged:
            address = T.address_of(self.shared[offset // _WORD])
            return tirx.call_extern("int32x8", "xmx_tile_shared", address)
        address = T.address_of(self.weights[layer][offset])
        return tirx.call_extern("int32x8", "xmx_tile_global", address)

    def _finished(self, layer: int, row_tile: int, column: int, position: int, m: Any) -> Any:
        """A sum with its residual and activation."""
        value = self.sums[self._sum(row_tile, position) + m]
        residual = self.mlp.residuals[layer]
        added = None
        if residual is not None:
            blocks = padded(self.mlp.widths[residual.source]) // DEPTH
            block, half = divmod(column * self.plan.lanes, DEPTH)
            index = (row_tile * blocks + block) * self.tile_rows + m
            added = self._fetch(self.tensors[residual.source], index, half // 8)
        if residual is not None and residual.before_activation:
            return expression(self.mlp.activations[layer], value + added)
        activated = expression(self.mlp.activations[layer], value)
        return activated if added is None else activated + added

    def _store_hidden(self, layer: int, chunk: range, output: Any) -> None:
        per_block = DEPTH // self.plan.lanes
        blocks = padded(self.mlp.widths[layer + 1]) // DEPTH
        for row_tile, start in _pairs(self.plan.row_tiles, len(chunk), per_block):
            block = chunk[start] // per_block
            with T.unroll(self.tile_rows) as m:
                values = [
                    self._finished(layer, row_tile, chunk[position], position, m)
                    for position in range(start, start + per_block)
                ]
                self._store(output, (row_tile * blocks + block) * self.tile_rows + m, values)

    def _store_output(self, layer: int, chunk: range) -> None:
        width = self.mlp.widths[-1]
        for row_tile, position in _pairs(self.plan.row_tiles, len(chunk)):
            start = chunk[position] * self.plan.lanes
            if start >= width:
                continue
            with T.unroll(self.tile_rows) as m:
                row, column = self._row(row_tile, m), start + self.lane
                value = self._finished(layer, row_tile, chunk[position], position, m)
                inside = self._inside(row, start)
                if inside is None:
                    T.buffer_store(self.parameters.y, value.astype(self.mlp.dtype), [row, column])
                else:
                    with T.If(inside), T.Then():
                        T.buffer_store(
                            self.parameters.y, value.astype(self.mlp.dtype), [row, column]
                        )


def _pairs(first: int, second: int, step: int = 1) -> Iterator[tuple[int, int]]:
    for i in range(first):
        for j in range(0, second, step):
            yield i, j


def _zero() -> Any:
    return tirx.const(0, "float32")
