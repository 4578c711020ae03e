"""One tile of rows through all layers, forward and backward: emitted inside a thread's loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import T

from ..elementary import bound_by
from .register_block import Expression
from .training_block import multiply
from .training_plan import Plan
from .training_streams import Keep, Read, activate, activate_backward
from .training_tensors import Gradients, Packed, Rows, Tile, panel_reader

_REGISTERS = 256
"""Vectors that one element's expressions may keep, at most; unused ones cost nothing."""


@contextmanager
def elements(plan: Plan, width: int) -> Iterator[tuple[Expression, Expression, Keep]]:
    """Row within a stream, column and register allocation, over a padded tile.

    What is kept goes to small buffers and not to variables: TVM 0.27 loses a variable that is bound
    inside a vectorised loop when the loop is unrolled or one of its statements stays scalar.
    """
    lanes = plan.lanes
    with T.serial(0, plan.knobs.rows) as r, T.serial(0, plan.block.padded(width) // lanes) as v:
        registers = T.alloc_buffer((_REGISTERS, lanes), "float32", scope="local")
        slots = iter(range(_REGISTERS))
        with T.vectorized(0, lanes) as lane:

            def keep(value: Expression) -> Expression:
                slot = next(slots)
                T.buffer_store(registers, value, [slot, lane])
                return registers[slot, lane]

            with bound_by(keep):
                yield r, v * lanes + lane, keep


def _once(value: Expression) -> Expression:
    """For expressions that are short or used once."""
    return value


@dataclass(frozen=True)
class ForwardTile:
    """Emits the layers of one tile; the tile's ``sums`` are kept where it has them."""

    plan: Plan
    packed: Packed
    tile: Tile

    def layer(self, layer: int) -> None:
        """``tensors[layer + 1]`` from ``tensors[layer]``."""
        plan, tile = self.plan, self.tile
        depth, width = plan.mlp.shapes[layer]
        raw = tile.sums.get(layer, tile.tensors[layer + 1])
        in_block = plan.activates_in_block(layer)

        def finish(r: Any, c: Any, total: Expression) -> None:
            if in_block:
                self._combine(layer, r, c, lambda stream: total, _once)
            else:
                raw.put(r, c, total)

        right = panel_reader(plan.block, self.packed.forward[layer])
        left = tile.tensors[layer].at
        multiply(plan.block, plan.tile_rows, width, depth, left, right, finish)
        if not in_block:
            with elements(plan, width) as (r, c, keep):
                self._combine(layer, r, c, plan.stream_of(raw.at, r, c), keep)

    def _combine(self, layer: int, r: Any, c: Any, product: Read, keep: Keep) -> None:
        """Bias, residual and activation of all streams at one row and column."""
        plan, tile, residual = self.plan, self.tile, self.plan.mlp.residuals[layer]
        skip = None if residual is None else plan.stream_of(tile.tensors[residual.source].at, r, c)
        early = residual is not None and residual.before_activation
        sums: list[Expression] = []
        for stream in range(plan.streams.count):
            total = product(stream)
            if stream == 0 and layer in self.packed.biases:
                total = total + self.packed.biases[layer][c]
            if skip is not None and early:
                total = total + skip(stream)
            sums.append(keep(total))
        outputs = activate(plan.mlp.activations[layer], sums.__getitem__, plan.streams, keep)
        for stream, (total, output) in enumerate(zip(sums, outputs, strict=True)):
            row = plan.row_of(stream, r)
            if layer in tile.sums:
                tile.sums[layer].put(row, c, total)
            if skip is not None and not early:
                output = output + skip(stream)
            tile.tensors[layer + 1].put(row, c, output)


@dataclass(frozen=True)
class BackwardTile:
    """Emits backward-data and weight gradients of one tile, layer by layer from the last.

    Both products of a layer read its gradient while it is in cache.
    """

    plan: Plan
    packed: Packed
    tile: Tile
    gradients: Gradients

    def emit(self) -> None:
        """From dY to dX and the sums of the parameters' gradients."""
        plan, layers = self.plan, self.plan.mlp.layers
        last = self.gradients.tensors[layers]
        with elements(plan, plan.mlp.widths[-1]) as (r, c, keep):
            self._through_activation(layers - 1, r, c, plan.stream_of(last.at, r, c), keep)
        for layer in reversed(range(layers)):
            if layer in self.gradients.weights:
                self._weight_gradients(layer)
            if layer:
                self._through_weights(layer)
            elif self.gradients.input is not None:
                self._to_input(self.gradients.input)

    def _weight_gradients(self, layer: int) -> None:
        """dW (out, in) += D^T H over the rows of all streams; db += the sum of D's value rows.

        A tile's sum starts at zero and is then added: two levels keep the rounding errors small.
        """
        plan, gradient = self.plan, self.gradients.tensors[layer + 1]
        inputs, outputs = plan.mlp.shapes[layer]
        multiply(
            plan.block,
            outputs,
            inputs,
            plan.tile_rows,
            lambda n, r: gradient.at(r, n),
            self.tile.tensors[layer].at,
            self.gradients.weights[layer].add,
        )
        if layer in self.gradients.biases:
            multiply(
                plan.block,
                1,
                outputs,
                plan.knobs.rows,
                lambda one, r: T.float32(1.0),
                gradient.at,
                self.gradients.biases[layer].add,
            )

    def _through_weights(self, layer: int) -> None:
        """The gradient of the sums of ``layer`` - 1 from that of ``layer``."""
        plan, raw = self.plan, self.gradients.tensors[layer]
        inputs, outputs = plan.mlp.shapes[layer]
        in_block = plan.slopes_in_block(layer - 1)

        def finish(r: Any, c: Any, total: Expression) -> None:
            if in_block:
                self._through_activation(layer - 1, r, c, lambda stream: total, _once)
            else:
                raw.put(r, c, total)

        right = panel_reader(plan.block, self.packed.backward[layer])
        left = self.gradients.tensors[layer + 1].at
        multiply(plan.block, plan.tile_rows, inputs, outputs, left, right, finish)
        if not in_block:
            with elements(plan, inputs) as (r, c, keep):
                self._through_activation(layer - 1, r, c, plan.stream_of(raw.at, r, c), keep)

    def _to_input(self, target: Rows) -> None:
        """dX: the value rows only, since directions are constants."""
        plan, skip = self.plan, self.gradients.skips.get(0)
        inputs, outputs = plan.mlp.shapes[0]

        def finish(r: Any, c: Any, total: Expression) -> None:
            target.put(r, c, total if skip is None else total + skip.at(r, c))

        right = panel_reader(plan.block, self.packed.backward[0])
        left = self.gradients.tensors[1].at
        multiply(plan.block, plan.knobs.rows, inputs, outputs, left, right, finish)

    def _through_activation(self, layer: int, r: Any, c: Any, product: Read, keep: Keep) -> None:
        """From the gradient of a layer's output to that of its sums, residuals handed back."""
        plan, residual = self.plan, self.plan.mlp.residuals[layer]
        skip = self.gradients.skips.get(layer + 1)
        arrived: list[Expression] = []
        for stream in range(plan.streams.count):
            total = product(stream)
            if skip is not None:
                total = total + skip.at(plan.row_of(stream, r), c)
            arrived.append(keep(total))
        found = activate_backward(
            plan,
            layer,
            arrived.__getitem__,
            self._reader(self.tile.tensors.get(layer + 1), r, c),
            self._reader(self.tile.sums.get(layer), r, c),
            keep,
        )
        found = [keep(value) for value in found]
        if residual is not None:
            back = found if residual.before_activation else arrived
            self._hand_back(layer, residual.source, r, c, back)
        for stream, value in enumerate(found):
            self.gradients.tensors[layer + 1].put(plan.row_of(stream, r), c, value)

    def _reader(self, rows: Rows | None, r: Any, c: Any) -> Read:
        """Reads a kept tensor; what the plan does not keep is never asked for."""
        return self.plan.stream_of(rows.at, r, c) if rows is not None else _NOT_KEPT

    def _hand_back(self, layer: int, source: int, r: Any, c: Any, values: list[Expression]) -> None:
        """Add to the gradient that ``source`` gets from the residuals; the first one stores it."""
        skip = self.gradients.skips[source]
        store = skip.put if layer == self.plan.first_skip(source) else skip.add
        for stream, value in enumerate(values):
            store(self.plan.row_of(stream, r), c, value)


def _NOT_KEPT(stream: int) -> Expression:
    raise AssertionError(f"stream {stream} of a tensor that the plan does not keep was asked for")
