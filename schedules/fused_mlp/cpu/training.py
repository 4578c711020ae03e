"""The kernels of a training step on CPU: forward, and backward-data with weight gradients.

Weights and their gradients are in torch's layout (out, in), unpacked.  Each kernel reads every row
of the batch once: a tile of rows stays in cache through all layers, and each layer's weight
gradient is summed while the two matrices that it is a product of are there.  The fused MLPs of
Yuan et al. (arXiv 2403.17607) and Mueller et al. (arXiv 2106.12372) leave that product to a GEMM
library, which reads all activations and all gradients from memory again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import NOALIAS, IRBuilder, T, tirx

from .register_block import Buffer, Expression
from .training_arguments import Arguments
from .training_block import workspace
from .training_plan import Plan
from .training_tensors import Gradients, Rows, Tile
from .training_tile import BackwardTile, ForwardTile

FORWARD, BACKWARD = "fused_mlp_forward", "fused_mlp_backward"
"""The global symbols of the two kernels."""


@dataclass(frozen=True)
class Wanted:
    """Which gradients a backward kernel computes."""

    input: bool = True
    parameters: bool = True


def forward(plan: Plan) -> Any:
    """The forward kernel as a PrimFunc, for any batch of at least one row.

    Parameters: x (batch, in); weight (out, in) and bias (out,) of every layer; ``directions`` if
    the plan's streams have any, (count, in) or, per row, (count, batch, in); y (streams, batch,
    out); where the plan stores, one tensor (tiles, rows, padded width) for each of ``plan.kept``.
    """
    layers = plan.mlp.layers
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        _begin(FORWARD)
        arguments = Arguments(plan)
        y = arguments.output("y")
        kept = arguments.kept() if plan.knobs.store else {}
        packed = arguments.pack(forward=True, backward=range(0))
        with T.parallel(0, plan.knobs.chunks) as chunk:
            make_tile = _forward_tile(plan, kept)
            with _tiles_of(plan, arguments, chunk) as index:
                tile = make_tile(index)
                arguments.load_input(tile.tensors[0], index)
                emitter = ForwardTile(plan, packed, tile)
                for layer in range(layers):
                    emitter.layer(layer)
                for stream in range(plan.streams.count):
                    arguments.store(y, (stream,), plan.mlp.widths[-1], tile.tensors[layers], index)
    return builder.get()


def backward(plan: Plan, wanted: Wanted) -> Any:
    """The backward kernel as a PrimFunc.

    Parameters: x, weights, biases and directions as in ``forward``; dy (streams, batch, out); what
    ``forward`` stored, where the plan stores; then as far as wanted dx (batch, in) and for every
    layer dW (out, in) and db (out,).
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        _begin(BACKWARD)
        arguments = Arguments(plan)
        dy = arguments.output("dy")
        kept = arguments.kept() if plan.knobs.store else {}
        dx = arguments.input("dx") if wanted.input else None
        results = arguments.parameters("d") if wanted.parameters else ({}, {})
        partials = _partials(plan, results)
        through = range(0 if wanted.input else 1, plan.mlp.layers)
        packed = arguments.pack(forward=not plan.knobs.store, backward=through)
        with T.parallel(0, plan.knobs.chunks) as chunk:
            gradients = _gradients(plan, wanted, partials, chunk)
            make_tile = _backward_tile(plan, kept)
            with _tiles_of(plan, arguments, chunk) as index:
                tile = make_tile(index)
                arguments.load_input(tile.tensors[0], index)
                for layer in range(plan.recomputed):
                    ForwardTile(plan, packed, tile).layer(layer)
                arguments.load_output(gradients.tensors[plan.mlp.layers], dy, index)
                BackwardTile(plan, packed, tile, gradients).emit()
                if dx is not None and gradients.input is not None:
                    arguments.store(dx, (), plan.mlp.widths[0], gradients.input, index)
        if wanted.parameters:
            _reduce(plan, partials, results)
    return builder.get()


Parameters = tuple[dict[int, Buffer], dict[int, Buffer]]
"""Weights and biases by layer."""

Kept = dict[tuple[str, int], Buffer]
"""The tensors between forward and backward, by kind and layer."""

MakeTile = Callable[[Expression], Tile]


def _begin(name: str) -> None:
    T.func_name(name)
    T.func_attr({"global_symbol": name, NOALIAS: True})


@contextmanager
def _tiles_of(plan: Plan, arguments: Arguments, chunk: Expression) -> Iterator[Expression]:
    """The tiles of a chunk; all chunks get as many, give or take one."""
    tiles, chunks = plan.tiles(arguments.batch), plan.knobs.chunks
    first = tirx.Cast("int64", chunk)
    with T.serial(first * tiles // chunks, (first + 1) * tiles // chunks) as index:
        yield index


def _forward_tile(plan: Plan, kept: Kept) -> MakeTile:
    """A forward tile's tensors: the kept ones, and else two buffers that layers use in turn."""
    wide = max(plan.padded)
    turns = [workspace(plan.tile_rows, wide) for _ in range(2)]
    tensors = {0: workspace(plan.tile_rows, plan.padded[0])}
    for layer in range(plan.mlp.layers):
        if ("output", layer) in kept:
            continue
        stays = layer + 1 in plan.skip_sources
        own = workspace(plan.tile_rows, plan.padded[layer + 1]) if stays else turns[layer % 2]
        tensors[layer + 1] = own
    return lambda index: _tile(tensors, kept, (index,))


def _backward_tile(plan: Plan, kept: Kept) -> MakeTile:
    """A backward tile's tensors: what the plan keeps, from forward or computed again."""
    tensors = {0: workspace(plan.tile_rows, plan.padded[0])}
    if plan.knobs.store:
        return lambda index: _tile(tensors, kept, (index,))
    own = {(kind, layer): workspace(plan.tile_rows, width) for kind, layer, width in plan.kept}
    if plan.recomputed == plan.mlp.layers and not plan.keeps_output(plan.mlp.layers - 1):
        tensors[plan.mlp.layers] = workspace(plan.tile_rows, plan.padded[-1])
    return lambda index: _tile(tensors, own, ())


def _tile(tensors: dict[int, Buffer], kept: Kept, prefix: tuple[Any, ...]) -> Tile:
    values = {index: Rows(buffer) for index, buffer in tensors.items()}
    sums: dict[int, Rows] = {}
    for (kind, layer), buffer in kept.items():
        if kind == "sum":
            sums[layer] = Rows(buffer, prefix)
        else:
            values[layer + 1] = Rows(buffer, prefix)
    return Tile(values, sums)


def _partials(plan: Plan, results: Parameters) -> Parameters:
    """For each gradient one padded copy per chunk."""
    chunks, shapes = plan.knobs.chunks, plan.mlp.shapes
    padded = plan.padded
    return (
        {i: workspace(chunks, shapes[i][1], padded[i]) for i in results[0]},
        {i: workspace(chunks, 1, padded[i + 1]) for i in results[1]},
    )


def _gradients(plan: Plan, wanted: Wanted, partials: Parameters, chunk: Expression) -> Gradients:
    """A thread's buffers of gradients, and its sums, set to zero."""
    turns = [workspace(plan.tile_rows, max(plan.padded[1:])) for _ in range(2)]
    for buffer in (*partials[0].values(), *partials[1].values()):
        _, rows, width = buffer.shape
        with T.serial(0, rows) as r, T.serial(0, width) as c:
            T.buffer_store(buffer, T.float32(0.0), [chunk, r, c])
    return Gradients(
        {t: Rows(turns[t % 2]) for t in range(1, plan.mlp.layers + 1)},
        {t: Rows(workspace(plan.tile_rows, plan.padded[t])) for t in plan.skip_sources},
        {layer: Rows(buffer, (chunk,)) for layer, buffer in partials[0].items()},
        {layer: Rows(buffer, (chunk,)) for layer, buffer in partials[1].items()},
        Rows(workspace(plan.knobs.rows, plan.padded[0])) if wanted.input else None,
    )


def _reduce(plan: Plan, partials: Parameters, results: Parameters) -> None:
    """Sum the chunks' gradients, in the order of the chunks; rows are shared out to threads."""
    chunks = plan.knobs.chunks
    with T.parallel(0, chunks) as part:
        for layer, (inputs, outputs) in enumerate(plan.mlp.shapes):
            begin, end = part * outputs // chunks, (part + 1) * outputs // chunks
            weight, weight_sums = results[0][layer], partials[0][layer]
            with T.serial(begin, end) as n:
                with T.serial(0, inputs) as k:
                    T.buffer_store(weight, weight_sums[0, n, k], [n, k])
                with T.serial(1, chunks) as chunk, T.serial(0, inputs) as k:
                    T.buffer_store(weight, weight[n, k] + weight_sums[chunk, n, k], [n, k])
            if layer in results[1]:
                bias, bias_sums = results[1][layer], partials[1][layer]
                with T.serial(begin, end) as n:
                    T.buffer_store(bias, bias_sums[0, 0, n], [n])
                    with T.serial(1, chunks) as chunk:
                        T.buffer_store(bias, bias[n] + bias_sums[chunk, 0, n], [n])
