"""The plain OpenCL kernel as TIR: no sub-groups, no matrix instructions.

A work-group owns a tile of rows.  Their activations stay in shared memory through all layers;
each work-item keeps the sums of some rows and of every ``threads_x``-th column in registers.  A
layer's weights pass through shared memory a few rows (``depth``) at a time, or come straight from
the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import T, tirx

from ..activations import expression
from ..description import MLP
from ..packing import Packing, numpy_dtype
from .builder import Parameters, allocated, prim_func


@dataclass(frozen=True)
class Plan:
    """What the kernel is built with.

    A work-group has ``threads_x`` by ``threads_y`` work-items; a work-item has ``rows_per_item``
    rows of the batch.  ``depth``: rows of a weight in shared memory at once; 0: none.
    """

    threads_x: int
    threads_y: int
    rows_per_item: int
    depth: int

    @property
    def rows(self) -> int:
        """Rows of the batch of one work-group."""
        return self.threads_y * self.rows_per_item

    def padded(self, width: int) -> int:
        """A width with its padding: every work-item has as many columns."""
        return -(-width // self.threads_x) * self.threads_x

    def shared_bytes(self, mlp: MLP) -> int:
        """Shared memory of a work-group: activations, and weights where they are staged."""
        activations = sum(self.tensors(mlp).values()) * self.rows
        weights = min(self.depth, max(mlp.widths[:-1])) * max(map(self.padded, mlp.widths[1:]))
        return (activations + weights) * numpy_dtype(mlp.dtype).itemsize

    def tensors(self, mlp: MLP) -> dict[int | None, int]:
        """Columns of every buffer of activations: one for each tensor that a later layer adds,
        and under ``None`` one that the others share (a layer may overwrite its input)."""
        columns: dict[int | None, int] = {}
        for tensor, width in enumerate(mlp.widths[:-1]):
            key = tensor if tensor in kept(mlp) else None
            columns[key] = max(columns.get(key, 0), self.padded(width))
        return columns


def kept(mlp: MLP) -> set[int]:
    """The tensors that are needed after the layer that follows them."""
    return {
        residual.source
        for layer, residual in enumerate(mlp.residuals)
        if residual is not None and residual.source < layer
    }


def _shared_dtype(dtype: str) -> str:
    """TVM would make a bfloat16 buffer of shared memory a float32 one, twice as large."""
    return "uint16" if dtype == "bfloat16" else dtype


def _stored(value: Any, dtype: str) -> Any:
    """A float32 value as an element of shared memory, rounded to nearest even."""
    if dtype != "bfloat16":
        return value.astype(dtype)
    bits = tirx.reinterpret("uint32", value)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet_nan = tirx.const(0x7FC0, "uint32")
    return tirx.Select(tirx.isnan(value), quiet_nan, rounded).astype("uint16")


def _loaded(element: Any, dtype: str) -> Any:
    """An element of shared memory as float32."""
    if dtype != "bfloat16":
        return element.astype("float32")
    return tirx.reinterpret("float32", element.astype("uint32") << 16)


def build(mlp: MLP, batch: int | None, packings: tuple[Packing, ...], plan: Plan) -> Any:
    """The PrimFunc, its parameters as ``FusedKernel`` has them."""
    return prim_func(lambda: _Kernel(mlp, Parameters(mlp, batch, packings, plan.rows), plan).emit())


class _Kernel:
    """Emits the statements of one kernel."""

    def __init__(self, mlp: MLP, parameters: Parameters, plan: Plan) -> None:
        self.mlp, self.parameters, self.plan = mlp, parameters, plan
        self.most_columns = max(plan.padded(width) for width in mlp.widths[1:])

    def emit(self) -> None:
        """The whole kernel."""
        plan = self.plan
        with (
            T.launch_thread("blockIdx.x", self.parameters.groups) as group,
            T.launch_thread("threadIdx.y", plan.threads_y) as self.y,
            T.launch_thread("threadIdx.x", plan.threads_x) as self.x,
        ):
            self.first_row = group * plan.rows
            per_item = self.most_columns // plan.threads_x
            self.sums = allocated("sums", plan.rows_per_item * per_item, "float32")
            self.left = allocated("left", plan.rows_per_item, "float32")
            self.columns = plan.tensors(self.mlp)
            self.buffers = {
                key: allocated(
                    "h" if key is None else f"h{key}",
                    plan.rows * columns,
                    _shared_dtype(self.mlp.dtype),
                    "shared",
                )
                for key, columns in self.columns.items()
            }
            if plan.depth:
                elements = min(plan.depth, max(self.mlp.widths[:-1])) * self.most_columns
                self.staged = allocated("staged", elements, _shared_dtype(self.mlp.dtype), "shared")
            self._load_input()
            for layer in range(self.mlp.layers):
                self._layer(layer)

    def _place(self, tensor: int, row: Any, column: Any) -> tuple[Any, Any]:
        """Buffer and index of an activation of the tile."""
        key = tensor if tensor in self.buffers else None
        return self.buffers[key], row * self.columns[key] + column

    def _copy(self, elements: int, copy: Any) -> None:
        """``copy(i)`` for all ``i`` below ``elements``, spread over the work-group."""
        threads = self.plan.threads_x * self.plan.threads_y
        item = self.y * self.plan.threads_x + self.x
        with T.serial(-(-elements // threads)) as step:
            index = step * threads + item
            if elements % threads:
                with T.If(index < elements), T.Then():
                    copy(index)
            else:
                copy(index)

    def _load_input(self) -> None:
        width = self.mlp.widths[0]

        def copy(index: Any) -> None:
            row, column = index // width, index % width
            source = self.parameters.existing_row(self.first_row + row)
            buffer, place = self._place(0, row, column)
            value = self.parameters.x[source, column].astype("float32")
            T.buffer_store(buffer, _stored(value, self.mlp.dtype), [place])

        self._copy(self.plan.rows * width, copy)
        _barrier()

    def _layer(self, layer: int) -> None:
        k, n = self.mlp.shapes[layer]
        per_item = self.plan.padded(n) // self.plan.threads_x
        self._start_sums(layer, per_item)
        depth = min(self.plan.depth, k) or k
        for start in range(0, k, depth):
            rows = min(depth, k - start)
            if self.plan.depth:
                self._stage(layer, start, rows)
            self._multiply(layer, start, rows, per_item)
        if layer < self.mlp.layers - 1:
            _barrier()
            self._store(layer, per_item)
            _barrier()
        else:
            self._store_output(layer, per_item)

    def _start_sums(self, layer: int, per_item: int) -> None:
        bias = self.parameters.biases[layer]
        with T.unroll(self.plan.rows_per_item) as i, T.unroll(per_item) as j:
            zero = tirx.const(0, "float32")
            value = zero if bias is None else bias[j * self.plan.threads_x + self.x]
            T.buffer_store(self.sums, value, [i * per_item + j])

    def _stage(self, layer: int, start: int, rows: int) -> None:
        columns = self.plan.padded(self.mlp.widths[layer + 1])
        weight = self.parameters.weights[layer]
        if start:
            _barrier()  # the rows before are still in use

        def copy(index: Any) -> None:
            value = weight[start + index // columns, index % columns].astype("float32")
            T.buffer_store(self.staged, _stored(value, self.mlp.dtype), [index])

        self._copy(rows * columns, copy)
        _barrier()

    def _multiply(self, layer: int, start: int, rows: int, per_item: int) -> None:
        columns = self.plan.padded(self.mlp.widths[layer + 1])
        with T.serial(rows) as k:
            with T.unroll(self.plan.rows_per_item) as i:
                buffer, place = self._place(layer, self._row(i), start + k)
                T.buffer_store(self.left, _loaded(buffer[place], self.mlp.dtype), [i])
            with T.unroll(per_item) as j:
                column = j * self.plan.threads_x + self.x
                if self.plan.depth:
                    right = _loaded(self.staged[k * columns + column], self.mlp.dtype)
                else:
                    right = self.parameters.weights[layer][start + k, column].astype("float32")
                with T.unroll(self.plan.rows_per_item) as i:
                    place = i * per_item + j
                    value = self.sums[place] + self.left[i] * right
                    T.buffer_store(self.sums, value, [place])

    def _row(self, i: Any) -> Any:
        """A work-item's row in the tile."""
        return self.y * self.plan.rows_per_item + i

    def _finished(self, layer: int, i: Any, j: Any, per_item: int) -> Any:
        """A sum with its residual and activation."""
        value = self.sums[i * per_item + j]
        activation, residual = self.mlp.activations[layer], self.mlp.residuals[layer]
        if residual is None:
            return expression(activation, value)
        column = j * self.plan.threads_x + self.x
        buffer, place = self._place(residual.source, self._row(i), column)
        added = _loaded(buffer[place], self.mlp.dtype)
        if residual.before_activation:
            return expression(activation, value + added)
        return expression(activation, value) + added

    def _store(self, layer: int, per_item: int) -> None:
        with T.unroll(self.plan.rows_per_item) as i, T.unroll(per_item) as j:
            column = j * self.plan.threads_x + self.x
            value = self._finished(layer, i, j, per_item)
            buffer, place = self._place(layer + 1, self._row(i), column)
            T.buffer_store(buffer, _stored(value, self.mlp.dtype), [place])

    def _store_output(self, layer: int, per_item: int) -> None:
        width = self.mlp.widths[-1]
        with T.unroll(self.plan.rows_per_item) as i, T.unroll(per_item) as j:
            row = self.first_row + self._row(i)
            column = j * self.plan.threads_x + self.x
            inside = [row < self.parameters.batch] if self.parameters.partial else []
            if self.plan.padded(width) > width:
                inside.append(column < width)
            value = self._finished(layer, i, j, per_item).astype(self.mlp.dtype)
            if inside:
                with T.If(tirx.all(*inside)), T.Then():
                    T.buffer_store(self.parameters.y, value, [row, column])
            else:
                T.buffer_store(self.parameters.y, value, [row, column])


def _barrier() -> None:
    T.evaluate(T.tvm_storage_sync("shared"))
