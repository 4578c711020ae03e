"""Training against torch in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tunerplugin.schedules.fused_mlp.description import MLP
from tunerplugin.schedules.fused_mlp.torch_autograd import unfused
from tunerplugin.schedules.fused_mlp.torch_module import FusedMLP


def rows(batch: int, width: int, seed: int = 0) -> Tensor:
    """Normal numbers in float32."""
    return torch.randn(batch, width, generator=torch.Generator().manual_seed(seed))


def network(mlp: MLP, seed: int = 0, **knobs: object) -> FusedMLP:
    """A module with weights of variance 1 / inputs and biases of 0.1, from its own generator."""
    from tunerplugin.schedules.fused_mlp.cpu.training_plan import TrainingKnobs

    net = FusedMLP(mlp, TrainingKnobs(**knobs) if knobs else None)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net.layers:
            layer.weight.normal_(0, layer.in_features**-0.5, generator=generator)
            if layer.bias is not None:
                layer.bias.normal_(0, 0.1, generator=generator)
    return net


def float64(net: FusedMLP) -> list[Tensor]:
    """The parameters as float64 leaves, in the order of ``unfused``."""
    found: list[Tensor] = []
    for layer in net.layers:
        found += [layer.weight] + ([layer.bias] if layer.bias is not None else [])
    return [parameter.detach().double().requires_grad_() for parameter in found]


def error(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """Largest difference of any pair, relative to the pair's largest expected magnitude."""
    worst = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours is not None and theirs is not None
        assert ours.shape == theirs.shape
        assert torch.isfinite(ours).all()
        scale = max(theirs.abs().max().item(), 1e-6)
        worst = max(worst, (ours.double() - theirs).abs().max().item() / scale)
    return worst


def gradients_error(net: FusedMLP, batch: int, seed: int = 0) -> float:
    """Of y and all first derivatives of sum(y w), w random."""
    x = rows(batch, net.mlp.widths[0], seed).requires_grad_()
    weight = rows(batch, net.mlp.widths[-1], seed + 1)
    exact_x, exact = x.detach().double().requires_grad_(), float64(net)
    y = net(x)
    exact_y = unfused(net.mlp, exact_x, exact)
    found = torch.autograd.grad(y, [x, *net.parameters()], weight)
    expected = torch.autograd.grad(exact_y, [exact_x, *exact], weight.double())
    return error([y, *found], [exact_y, *expected])
