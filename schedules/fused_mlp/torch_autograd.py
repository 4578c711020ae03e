"""The fused kernels as differentiable torch functions.

First derivatives always run in the fused kernels.  So does the derivative of an input gradient,
i.e. a loss on dy/dx: it is the backward pass of a directional derivative.  Whatever goes beyond
(third derivatives through ``autograd.grad``, derivatives of weight gradients) runs as torch
operations on the same parameters: right, differentiable any number of times, and not fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .cpu.training_plan import Plan, Streams
from .description import MLP, Activation
from .torch_kernels import run_backward, run_forward

Gradient = Tensor | None

_FUNCTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "none": lambda x, p: x,
    "relu": lambda x, p: torch.relu(x),
    "leaky_relu": lambda x, p: torch.nn.functional.leaky_relu(x, p),
    "silu": lambda x, p: torch.nn.functional.silu(x),
    "gelu": lambda x, p: torch.nn.functional.gelu(x),
    "gelu_tanh": lambda x, p: torch.nn.functional.gelu(x, approximate="tanh"),
    "tanh": lambda x, p: torch.tanh(x),
    "sigmoid": lambda x, p: torch.sigmoid(x),
    "softplus": lambda x, p: torch.nn.functional.softplus(x),
    "exponential": lambda x, p: torch.exp(x),
    "sine": lambda x, p: torch.sin(p * x),
}


def apply_activation(activation: Activation, x: Tensor) -> Tensor:
    """The activation by torch's own operations, in any dtype."""
    return _FUNCTIONS[activation.function](x, activation.parameter or 0.0)


def unfused(mlp: MLP, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The MLP as torch operations, in any dtype: layer by layer, weights (out, in) and biases."""
    remaining = iter(parameters)
    tensors = [x]
    for layer in range(mlp.layers):
        weight = next(remaining)
        bias = next(remaining) if mlp.bias[layer] else None
        h = torch.nn.functional.linear(tensors[-1], weight, bias)
        residual = mlp.residuals[layer]
        if residual is not None and residual.before_activation:
            h = h + tensors[residual.source]
        h = apply_activation(mlp.activations[layer], h)
        if residual is not None and not residual.before_activation:
            h = h + tensors[residual.source]
        tensors.append(h)
    return tensors[-1]


class Forward(torch.autograd.Function):
    """y (batch, out) of x (batch, in) and the parameters."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, x: Tensor, *parameters: Tensor) -> Tensor:
        y, kept = run_forward(plan, x, parameters)
        ctx.plan, ctx.parameters = plan, len(parameters)
        ctx.save_for_backward(x, *parameters, *kept)
        return y[0]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Gradient, ...]:
        x, *rest = ctx.saved_tensors
        parameters, kept = rest[: ctx.parameters], rest[ctx.parameters :]
        wanted = (ctx.needs_input_grad[1], any(ctx.needs_input_grad[2:]))
        found: tuple[Gradient, ...] = Backward.apply(  # type: ignore[no-untyped-call]
            ctx.plan, wanted, kept, dy, x, *parameters
        )
        return None, *found


class Backward(torch.autograd.Function):
    """The gradients with respect to x and the parameters of <dy, y>."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        wanted: tuple[bool, bool],
        kept: Sequence[Tensor],
        dy: Tensor,
        x: Tensor,
        *parameters: Tensor,
    ) -> tuple[Gradient, ...]:
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.wanted = plan, wanted
        ctx.save_for_backward(dy, x, *parameters)
        dx, found = run_backward(plan, x, parameters, dy.contiguous()[None], kept, wanted)
        return dx, *_or_none(found, parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Gradient) -> tuple[Gradient, ...]:
        dy, x, *parameters = ctx.saved_tensors
        needs = ctx.needs_input_grad[3:]
        direction, *others = gradients
        if all(gradient is None for gradient in gradients):
            found: Sequence[Gradient] = [None] * len(needs)
        elif torch.is_grad_enabled() or any(gradient is not None for gradient in others):
            found = _unfused_double_backward(ctx.plan.mlp, dy, x, parameters, gradients)
        else:
            assert direction is not None
            found = _fused_double_backward(ctx.plan, dy, x, parameters, direction, needs)
        return None, None, None, *found


def _or_none(found: Sequence[Tensor], parameters: Sequence[Tensor]) -> Sequence[Gradient]:
    """One gradient per parameter: none of them where they are not wanted."""
    return found or [None] * len(parameters)


def _fused_double_backward(
    plan: Plan,
    dy: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor],
    direction: Tensor,
    needs: Sequence[bool],
) -> list[Gradient]:
    """Of <direction, dx> = <dy, J direction>: the backward pass of the directional derivative."""
    tangent = replace(plan.recomputing, streams=Streams((1,), per_row=True))
    directions = direction.contiguous()[None]
    d_dy: Gradient = None
    if needs[0]:
        d_dy = run_forward(tangent, x, parameters, directions)[0][1]
    wanted = (bool(needs[1]), any(needs[2:]))
    seeds = torch.stack([torch.zeros_like(dy), dy])
    dx, found = run_backward(tangent, x, parameters, seeds, (), wanted, directions)
    return [d_dy, dx, *_or_none(found, parameters)]


def _unfused_double_backward(
    mlp: MLP,
    dy: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor],
    gradients: Sequence[Gradient],
) -> Sequence[Gradient]:
    """The same for gradients of all outputs, as torch operations that can be differentiated."""

    def first(dy: Tensor, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        pull_back = torch.func.vjp(
            lambda x, *parameters: unfused(mlp, x, parameters), x, *parameters
        )[1]
        found: tuple[Tensor, ...] = pull_back(dy)
        return found

    outputs, pull_back = torch.func.vjp(first, dy, x, *parameters)[:2]
    seeds = tuple(
        torch.zeros_like(output) if seed is None else seed
        for output, seed in zip(outputs, gradients, strict=True)
    )
    found: tuple[Tensor, ...] = pull_back(seeds)
    return found


class Taylor(torch.autograd.Function):
    """The streams (streams, batch, out) of x along directions, which are constants."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, directions: Tensor, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.plan = plan
        ctx.save_for_backward(directions, x, *parameters)
        return run_forward(plan, x, parameters, directions)[0]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Gradient, ...]:
        directions, x, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, *_unfused_taylor_backward(ctx.plan, directions, dy, x, parameters)
        wanted = (ctx.needs_input_grad[2], any(ctx.needs_input_grad[3:]))
        dx, found = run_backward(ctx.plan, x, parameters, dy.contiguous(), (), wanted, directions)
        return None, None, dx, *_or_none(found, parameters)


def _unfused_taylor_backward(
    plan: Plan, directions: Tensor, dy: Tensor, x: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    def streams(x: Tensor, *parameters: Tensor) -> Tensor:
        def value(x: Tensor) -> Tensor:
            return unfused(plan.mlp, x, parameters)

        found = [value(x)]
        for order, direction in zip(plan.streams.orders, directions, strict=True):
            derivative: Callable[[Tensor], Tensor] = value
            for _ in range(order):
                derivative = _along(derivative, direction)
                found.append(derivative(x))
        return torch.stack(found)

    pull_back = torch.func.vjp(streams, x, *parameters)[1]
    found: tuple[Tensor, ...] = pull_back(dy)
    return found


def _along(function: Callable[[Tensor], Tensor], direction: Tensor) -> Callable[[Tensor], Tensor]:
    """The derivative of a function of rows along a direction."""

    def derivative(x: Tensor) -> Tensor:
        found: Tensor = torch.func.jvp(function, (x,), (direction.expand_as(x),))[1]
        return found

    return derivative
