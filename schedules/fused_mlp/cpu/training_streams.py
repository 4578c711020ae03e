"""Activations in a tile: of values alone, and of values with derivatives (Taylor mode).

With z = z_0 the sums, z_i the first and z_ii the second derivative along direction i:
h = s(z), h_i = s'(z) z_i, h_ii = s''(z) z_i**2 + s'(z) z_ii.  Backward is the adjoint of that.
"""

from __future__ import annotations

from collections.abc import Callable

from ..activations import expression
from ..description import Activation
from .register_block import Expression
from .training_derivatives import derivatives, slope_of_sum, slope_of_value
from .training_plan import VALUE, Plan, Streams

Read = Callable[[int], Expression]
"""The element of a stream at the row and column that is being worked on."""


Keep = Callable[[Expression], Expression]
"""Gives an expression a place in registers, so that it is computed once."""


def activate(activation: Activation, sums: Read, streams: Streams, keep: Keep) -> list[Expression]:
    """The outputs of all streams from their sums."""
    if activation.function == "none":
        return [sums(stream) for stream in range(streams.count)]
    if streams == VALUE:
        return [expression(activation, sums(0), "polynomial")]
    z = keep(sums(0))
    outputs = [expression(activation, z, "polynomial")]
    slope = [keep(s) for s in derivatives(activation, z, streams.slopes, keep)]
    for first, second in streams.directions:
        z1 = keep(sums(first))
        outputs.append(slope[0] * z1)
        if second is not None:
            outputs.append(slope[1] * z1 * z1 + slope[0] * sums(second))
    return outputs


def activate_backward(
    plan: Plan, layer: int, gradients: Read, output: Read, sums: Read, keep: Keep
) -> list[Expression]:
    """The gradients with respect to the sums from those with respect to the outputs.

    ``output`` and ``sums`` are the layer's as far as ``plan`` keeps them.
    """
    activation = plan.mlp.activations[layer]
    streams = plan.streams
    if activation.function == "none":
        return [gradients(stream) for stream in range(streams.count)]
    if streams == VALUE:
        if plan.keeps_sum(layer):
            return [gradients(0) * slope_of_sum(activation, sums(0))]
        return [gradients(0) * slope_of_value(activation, output(0))]
    slope = [keep(s) for s in derivatives(activation, keep(sums(0)), streams.slopes + 1, keep)]
    value = slope[0] * gradients(0)
    found: list[Expression] = []
    for first, second in streams.directions:
        z1, g1 = keep(sums(first)), keep(gradients(first))
        value = keep(value + slope[1] * z1 * g1)
        if second is None:
            found.append(slope[0] * g1)
            continue
        g2 = keep(gradients(second))
        value = keep(value + (slope[2] * z1 * z1 + slope[1] * sums(second)) * g2)
        found += [slope[0] * g1 + 2.0 * slope[1] * z1 * g2, slope[0] * g2]
    return [value, *found]
