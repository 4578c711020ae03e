"""Learn a radiance field of a small analytic scene, fused and in torch.

    python examples/fused_nerf.py --out nerf.png

The scene is three soft, coloured balls.  Rays from cameras around it are cut into samples; a
frequency encoding (Mildenhall et al., ECCV 2020) and an MLP give density and colour of each, and
volume rendering turns them into the pixel that is compared.  The MLP is the fused kernel.
"""

from __future__ import annotations

import math

import torch
from fused_training import OURS, TORCH, options_of, save_images, seeded, train, twin
from torch import Tensor, nn

from tunerplugin.schedules.fused_mlp.torch_module import FusedMLP

FREQUENCIES = 5
WIDTH, HIDDEN = 64, 4
SAMPLES = 32
RAYS, QUICK_RAYS = 2048, 256
VIEW, QUICK_VIEW = 96, 32
NEAR, FAR, DISTANCE = 1.0, 3.0, 2.0
CENTRES = torch.tensor([[0.35, 0.0, 0.0], [-0.3, 0.25, 0.1], [-0.1, -0.35, -0.15]])
RADII = torch.tensor([0.35, 0.28, 0.22])
COLOURS = torch.tensor([[0.9, 0.3, 0.2], [0.2, 0.7, 0.9], [0.9, 0.8, 0.2]])
DENSITY, SOFTNESS = 20.0, 0.03

Rays = tuple[Tensor, Tensor]
"""Origins and unit directions, (rays, 3) each."""


def scene(places: Tensor) -> tuple[Tensor, Tensor]:
    """Density (...) and colour (..., 3): inside a ball 20 and its colour, shaded from above."""
    offsets = places[..., None, :] - CENTRES
    inside = torch.sigmoid((RADII - offsets.norm(dim=-1)) / SOFTNESS)
    shade = 0.7 + 0.3 * offsets[..., 1:2] / RADII[:, None]
    weights = inside / inside.sum(-1, keepdim=True).clamp_min(1e-6)
    return DENSITY * inside.amax(-1), (weights[..., None] * COLOURS * shade).sum(-2).clamp(0, 1)


def render(density: Tensor, colour: Tensor) -> Tensor:
    """Pixels (rays, 3) of densities (rays, samples) and colours (rays, samples, 3), on white."""
    opacity = 1 - torch.exp(-density * ((FAR - NEAR) / SAMPLES))
    through = torch.cumprod(1 - opacity + 1e-10, dim=1)
    reaching = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=1)
    return ((reaching * opacity)[..., None] * colour).sum(1) + through[:, -1:]


def samples_of(rays: Rays, generator: torch.Generator | None = None) -> Tensor:
    """Places (rays, samples, 3), at the middle of each interval or anywhere in it."""
    origins, directions = rays
    shift = torch.full((len(origins), SAMPLES), 0.5)
    if generator is not None:
        shift = torch.rand(len(origins), SAMPLES, generator=generator)
    depth = NEAR + (torch.arange(SAMPLES) + shift) * ((FAR - NEAR) / SAMPLES)
    return origins[:, None] + depth[..., None] * directions[:, None]


def encode(places: Tensor) -> Tensor:
    """x, sin(2^k pi x) and cos(2^k pi x), 3 + 6 x frequencies columns."""
    scales = math.pi * 2.0 ** torch.arange(FREQUENCIES)
    angles = (places[..., None] * scales).flatten(-2)
    return torch.cat([places, angles.sin(), angles.cos()], -1)


def field(model: nn.Module, places: Tensor) -> tuple[Tensor, Tensor]:
    """Density and colour that a network gives."""
    found = model(encode(places))
    return DENSITY * nn.functional.softplus(found[..., 0]), torch.sigmoid(found[..., 1:])


def camera(angle: float, height: float, size: int) -> Rays:
    """The rays of a square view from outside towards the origin."""
    eye = torch.tensor([math.sin(angle), height, math.cos(angle)])
    eye = DISTANCE * eye / eye.norm()
    forward = -eye / eye.norm()
    right = torch.linalg.cross(forward, torch.tensor([0.0, 1.0, 0.0]))
    right = right / right.norm()
    up = torch.linalg.cross(right, forward)
    line = ((torch.arange(size) + 0.5) / size - 0.5) * 0.8
    y, x = torch.meshgrid(-line, line, indexing="ij")
    directions = forward + x[..., None] * right + y[..., None] * up
    directions = (directions / directions.norm(dim=-1, keepdim=True)).reshape(-1, 3)
    return eye.expand_as(directions), directions


def random_rays(count: int, generator: torch.Generator) -> Rays:
    """One pixel each from many cameras."""
    angles = torch.rand(count, generator=generator) * 2 * math.pi
    heights = torch.rand(count, generator=generator) * 1.2 - 0.6
    eyes = torch.stack([angles.sin(), heights, angles.cos()], -1)
    eyes = DISTANCE * eyes / eyes.norm(dim=-1, keepdim=True)
    aims = (torch.rand(count, 3, generator=generator) - 0.5) * 1.4
    directions = aims - eyes
    return eyes, directions / directions.norm(dim=-1, keepdim=True)


def network(generator: torch.Generator) -> nn.Sequential:
    """33 - 64 - 64 - 64 - 64 - 4 with ReLU, as the paper's NeRF case."""
    modules: list[nn.Module] = []
    widths = [3 + 6 * FREQUENCIES, *[WIDTH] * HIDDEN]
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return seeded(nn.Sequential(*modules, nn.Linear(WIDTH, 4)), generator)


def main() -> None:
    """Train both, print losses, speed and quality of a view never seen, save the pictures."""
    options = options_of(__doc__, "fused_nerf.png", steps=400, quick=20)
    rays, size = (QUICK_RAYS, QUICK_VIEW) if options.quick else (RAYS, VIEW)
    generator = torch.Generator().manual_seed(options.seed)
    reference = network(generator)
    models = {OURS: FusedMLP.from_sequential(twin(reference)), TORCH: reference}

    def batch_of() -> tuple[Tensor, Tensor]:
        places = samples_of(random_rays(rays, generator), generator)
        return places, render(*scene(places))

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(render(*field(model, batch[0])), batch[1])

    losses = dict.fromkeys(models, loss)
    print(train(models, losses, batch_of, options.steps, learning_rate=2e-3).report())
    places = samples_of(camera(0.7, 0.4, size))
    images = {"scene": render(*scene(places))}
    with torch.no_grad():
        for method, model in models.items():
            images[method] = render(*field(model, places))
            error = nn.functional.mse_loss(images[method], images["scene"])
            print(
                f"quality      {method} {-10 * math.log10(error.item()):.2f} dB PSNR, unseen view"
            )
    save_images(options.out, {name: i.reshape(size, size, 3) for name, i in images.items()})


if __name__ == "__main__":
    main()
