"""Compress a picture into a grid encoding and a fused MLP, beside the same model in torch.

    python examples/fused_image.py --out image.png

The picture is made here (no download).  The encoding is a pyramid of learnt grids, read by bilinear
interpolation in torch (the dense form of Mueller et al., arXiv 2201.05989); the MLP behind it is
one fused kernel forward and one backward, which hands the gradient on to the grids.
"""

from __future__ import annotations

import math

import torch
from fused_training import OURS, TORCH, options_of, save_images, seeded, train, twin
from torch import Tensor, nn

from tunerplugin.schedules.fused_mlp.torch_module import FusedMLP

SIZE, QUICK_SIZE = 256, 64
BATCH, QUICK_BATCH = 1 << 14, 1 << 12
RESOLUTIONS = (8, 16, 32, 64)
FEATURES = 4
WIDTH = 64


class Encoded(nn.Module):
    """Learnt grids of growing resolution, and a network that turns their features into colours."""

    def __init__(self, network: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        self.network = network
        self.grids = nn.ParameterList(
            0.1 * torch.randn(1, FEATURES, size, size, generator=generator) for size in RESOLUTIONS
        )

    def forward(self, places: Tensor) -> Tensor:
        """Colours (batch, 3) at places (batch, 2) within [-1, 1]."""
        features = [
            nn.functional.grid_sample(grid, places[None, None], align_corners=True)[0, :, 0]
            for grid in self.grids
        ]
        return self.network(torch.cat(features).t())  # type: ignore[no-any-return]


def picture(places: Tensor) -> Tensor:
    """Colours of a landscape of rings, waves and a hard edge."""
    x, y = places.unbind(-1)
    radius = torch.hypot(x - 0.2, y + 0.1)
    rings = 0.5 + 0.5 * torch.cos(24 * radius**1.5)
    waves = 0.5 + 0.5 * torch.sin(9 * x + 3 * torch.sin(5 * y))
    edge = (y > 0.3 * torch.sin(math.pi * x) + 0.4).float()
    colours = torch.stack([rings * (1 - edge), waves, 0.2 + 0.6 * edge + 0.2 * rings], -1)
    return colours.clamp(0, 1)


def all_places(size: int) -> Tensor:
    """The centres of size x size pixels."""
    line = (torch.arange(size) + 0.5) / size * 2 - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)


def main() -> None:
    """Train both, print losses, speed and quality, save the pictures."""
    options = options_of(__doc__, "fused_image.png", steps=400, quick=20)
    size = QUICK_SIZE if options.quick else SIZE
    batch = QUICK_BATCH if options.quick else BATCH
    generator = torch.Generator().manual_seed(options.seed)
    inputs = FEATURES * len(RESOLUTIONS)
    plain = seeded(
        nn.Sequential(
            nn.Linear(inputs, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 3),
            nn.Sigmoid(),
        ),
        generator,
    )
    reference = Encoded(plain, generator)
    fused = twin(reference)
    fused.network = FusedMLP.from_sequential(fused.network)  # type: ignore[arg-type]
    models = {OURS: fused, TORCH: reference}
    places = all_places(size)
    colours = picture(places)

    def batch_of() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(places), (batch,), generator=generator)
        return places[chosen], colours[chosen]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    losses = dict.fromkeys(models, loss)
    print(train(models, losses, batch_of, options.steps, learning_rate=1e-2).report())
    images = {"picture": colours}
    with torch.no_grad():
        for method, model in models.items():
            images[method] = model(places)
            error = nn.functional.mse_loss(images[method], colours)
            print(f"quality      {method} {-10 * math.log10(error.item()):.2f} dB PSNR")
    numbers = sum(parameter.numel() for parameter in fused.parameters())
    print(f"size         {numbers} numbers for {size}x{size} pixels of 3 colours")
    save_images(options.out, {name: i.reshape(size, size, 3) for name, i in images.items()})


if __name__ == "__main__":
    main()
