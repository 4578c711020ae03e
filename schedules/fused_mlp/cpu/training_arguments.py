"""The parameters of the training kernels, and how tiles come from and go to them."""

from __future__ import annotations

from tunerplugin.integrations.compat import T, tirx

from .register_block import Buffer, Expression
from .training_plan import Plan
from .training_tensors import Packed, Rows, load, pack_panels, pack_row


class Arguments:
    """Declares the parameters that both kernels share, in order; ``batch`` is symbolic.

    Indices of rows are 64 bits wide: streams x batch x width may pass 2**31.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.batch = tirx.Var("batch", "int64")
        self.x = self.input("x")
        self.weights, self.biases = self.parameters("")
        self.directions: Buffer = None
        if plan.streams.orders:
            inputs, count = plan.mlp.widths[0], len(plan.streams.orders)
            shape = (count, self.batch, inputs) if plan.streams.per_row else (count, inputs)
            self.directions = T.arg("directions", T.buffer(shape, "float32"))

    def input(self, name: str) -> Buffer:
        """A parameter of the shape of x."""
        return T.arg(name, T.buffer((self.batch, self.plan.mlp.widths[0]), "float32"))

    def output(self, name: str) -> Buffer:
        """A parameter of the shape of y, with all streams."""
        shape = (self.plan.streams.count, self.batch, self.plan.mlp.widths[-1])
        return T.arg(name, T.buffer(shape, "float32"))

    def parameters(self, prefix: str) -> tuple[dict[int, Buffer], dict[int, Buffer]]:
        """Weights and biases by layer, or their gradients."""
        weights: dict[int, Buffer] = {}
        biases: dict[int, Buffer] = {}
        for layer, (inputs, outputs) in enumerate(self.plan.mlp.shapes):
            shape = (outputs, inputs)
            weights[layer] = T.arg(f"{prefix}w{layer}", T.buffer(shape, "float32"))
            if self.plan.mlp.bias[layer]:
                biases[layer] = T.arg(f"{prefix}b{layer}", T.buffer((outputs,), "float32"))
        return weights, biases

    def kept(self) -> dict[tuple[str, int], Buffer]:
        """The tensors between forward and backward."""
        tiles, rows = self.plan.tiles(self.batch), self.plan.knobs.rows
        return {
            (kind, layer): T.arg(f"{kind}{layer}", T.buffer((tiles, rows, width), "float32"))
            for kind, layer, width in self.plan.kept
        }

    def pack(self, forward: bool, backward: range) -> Packed:
        """The weights in panels, as far as they are used."""
        plan = self.plan
        block, layers = plan.block, range(plan.mlp.layers if forward else 0)

        def transposed(layer: int) -> Buffer:
            inputs, outputs = plan.mlp.shapes[layer]
            return pack_panels(block, inputs, outputs, lambda k, c: self.weights[layer][c, k])

        def plain(layer: int) -> Buffer:
            inputs, outputs = plan.mlp.shapes[layer]
            return pack_panels(block, outputs, inputs, lambda k, c: self.weights[layer][k, c])

        return Packed(
            {layer: transposed(layer) for layer in layers},
            {layer: plain(layer) for layer in backward},
            {
                layer: pack_row(block, self.biases[layer])
                for layer in layers
                if plan.mlp.bias[layer]
            },
        )

    def load_input(self, target: Rows, tile: Expression) -> None:
        """x and the directions; rows beyond the batch repeat the last, so nothing overflows."""
        plan, inputs = self.plan, self.plan.mlp.widths[0]
        rows = {first: index for index, (first, _) in enumerate(plan.streams.directions)}

        def source(stream: int, r: Expression, c: Expression) -> Expression:
            row = T.min(self._row(tile, r), self.batch - 1)
            if stream == 0:
                return self.x[row, c]
            if stream not in rows:
                return T.float32(0.0)
            if plan.streams.per_row:
                return self.directions[rows[stream], row, c]
            return self.directions[rows[stream], c]

        load(plan, target, inputs, source)

    def load_output(self, target: Rows, source: Buffer, tile: Expression) -> None:
        """dY, with zeros beyond the batch: such rows add nothing to any gradient."""

        def element(stream: int, r: Expression, c: Expression) -> Expression:
            row = self._row(tile, r)
            return T.if_then_else(row < self.batch, source[stream, row, c], T.float32(0.0))

        load(self.plan, target, self.plan.mlp.widths[-1], element)

    def store(
        self, target: Buffer, prefix: tuple[int, ...], width: int, rows: Rows, tile: Expression
    ) -> None:
        """The tile's value rows that belong to the batch, or those of stream ``prefix``."""
        base = tirx.Cast("int64", tile) * self.plan.knobs.rows
        count = T.min(self.batch - base, T.int64(self.plan.knobs.rows))
        stream = prefix[0] if prefix else 0
        with T.serial(0, tirx.Cast("int32", count)) as r:
            whole = width == self.plan.block.padded(width)
            with T.vectorized(0, width) if whole else T.serial(0, width) as c:
                value = rows.at(self.plan.row_of(stream, r), c)
                T.buffer_store(target, value, [*prefix, base + r, c])

    def _row(self, tile: Expression, r: Expression) -> Expression:
        return tirx.Cast("int64", tile) * self.plan.knobs.rows + r
