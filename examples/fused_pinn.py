"""Solve the heat equation with a physics-informed network, fused and in torch.

    python examples/fused_pinn.py --out heat.png

u_t = a u_xx on 0 <= x, t <= 1 with u(x, 0) = sin(pi x) and u = 0 at both ends; the solution is
exp(-a pi^2 t) sin(pi x).  The residual needs u_t and u_xx at every point, and the loss's gradient
goes through them.  The fused network carries u, u_x, u_xx and u_t through its layers together
(``FusedMLP.derivatives``), forward and backward in one kernel each; torch differentiates three
times.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from fused_training import OURS, TORCH, options_of, save_images, seeded, train, twin
from torch import Tensor, nn

from tunerplugin.schedules.fused_mlp.torch_module import FusedMLP

DIFFUSIVITY = 0.1
WIDTH, HIDDEN = 64, 4
POINTS, QUICK_POINTS = 8192, 512
EDGES = 512
GRID = 101
EDGE_WEIGHT = 10.0

Batch = tuple[Tensor, Tensor, Tensor]
"""Points (x, t) inside, points on the edges, and u there."""


def solution(points: Tensor) -> Tensor:
    """The exact u (points, 1)."""
    x, t = points[:, :1], points[:, 1:]
    return torch.exp(-DIFFUSIVITY * math.pi**2 * t) * torch.sin(math.pi * x)


def fused_residual(model: nn.Module, points: Tensor) -> Tensor:
    """u_t - a u_xx in Taylor mode."""
    assert isinstance(model, FusedMLP)
    u = model.derivatives(points, (2, 1))
    assert u.second[0] is not None
    return u.first[1] - DIFFUSIVITY * u.second[0]


def torch_residual(model: nn.Module, points: Tensor) -> Tensor:
    """u_t - a u_xx by differentiating twice."""
    points = points.detach().requires_grad_()
    u = model(points)
    (slopes,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (curvatures,) = torch.autograd.grad(slopes[:, 0].sum(), points, create_graph=True)
    return slopes[:, 1:] - DIFFUSIVITY * curvatures[:, :1]


def network(generator: torch.Generator) -> nn.Sequential:
    """2 - 64 - 64 - 64 - 64 - 1 with tanh."""
    modules: list[nn.Module] = []
    widths = [2, *[WIDTH] * HIDDEN]
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        modules += [nn.Linear(inputs, outputs), nn.Tanh()]
    return seeded(nn.Sequential(*modules, nn.Linear(WIDTH, 1)), generator)


def edges(generator: torch.Generator) -> Tensor:
    """Points at t = 0 and at both ends."""
    points = torch.rand(EDGES, 2, generator=generator)
    points[: EDGES // 2, 1] = 0
    points[EDGES // 2 :, 0] = (points[EDGES // 2 :, 0] > 0.5).float()
    return points


def main() -> None:
    """Train both, print losses, speed and the error against the solution, save the pictures."""
    options = options_of(__doc__, "fused_pinn.png", steps=1000, quick=15)
    points = QUICK_POINTS if options.quick else POINTS
    generator = torch.Generator().manual_seed(options.seed)
    reference = network(generator)
    models = {OURS: FusedMLP.from_sequential(twin(reference)), TORCH: reference}
    residuals = {OURS: fused_residual, TORCH: torch_residual}

    def batch_of() -> Batch:
        inside = torch.rand(points, 2, generator=generator)
        border = edges(generator)
        return inside, border, solution(border)

    def loss_of(method: str) -> Callable[[nn.Module, Batch], Tensor]:
        def loss(model: nn.Module, batch: Batch) -> Tensor:
            inside, border, expected = batch
            fit = (model(border) - expected).square().mean()
            return residuals[method](model, inside).square().mean() + EDGE_WEIGHT * fit

        return loss

    losses = {method: loss_of(method) for method in models}
    found = train(models, losses, batch_of, options.steps, learning_rate=2e-3)
    print(found.report())
    line = torch.linspace(0, 1, GRID)
    grid = torch.cartesian_prod(line, line)
    exact = solution(grid)
    images = {"solution": exact}
    with torch.no_grad():
        for method, model in models.items():
            images[method] = model(grid)
            error = (images[method] - exact).norm() / exact.norm()
            print(f"error        {method} {error.item():.3e} relative L2, against the solution")
    save_images(options.out, {n: i.reshape(GRID, GRID) for n, i in images.items()}, "inferno")


if __name__ == "__main__":
    main()
