"""What the fused-training examples share: a loop that trains our net and torch's side by side."""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

OURS, TORCH = "fused", "torch"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Comparison:
    """How training went: by method the losses of all steps and the median seconds of a step."""

    losses: Mapping[str, list[float]]
    step_s: Mapping[str, float]

    def report(self) -> str:
        """Both losses, and our speed beside torch's."""
        ours, theirs = self.losses[OURS], self.losses[TORCH]
        last = [statistics.fmean(losses[-10:]) for losses in (ours, theirs)]
        ratio = self.step_s[TORCH] / self.step_s[OURS]
        times = [self.step_s[method] * 1e3 for method in (OURS, TORCH)]
        return (
            f"first loss   {OURS} {ours[0]:.6g}   {TORCH} {theirs[0]:.6g}\n"
            f"last losses  {OURS} {last[0]:.6g}   {TORCH} {last[1]:.6g}   (mean of 10)\n"
            f"step         {OURS} {times[0]:.2f} ms   {TORCH} {times[1]:.2f} ms   "
            f"speed beside torch {ratio:.2f}x"
        )


def seeded(network: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    """Weights of variance 2 / (inputs + outputs), biases of zero, from a generator of our own."""
    with torch.no_grad():
        for module in network:
            if isinstance(module, nn.Linear):
                deviation = (2 / (module.in_features + module.out_features)) ** 0.5
                module.weight.normal_(0, deviation, generator=generator)
                module.bias.zero_()
    return network


def train(
    models: Mapping[str, nn.Module],
    loss_of: Mapping[str, Callable[[nn.Module, Any], Tensor]],
    batch_of: Callable[[], Any],
    steps: int,
    learning_rate: float,
) -> Comparison:
    """Adam on both, on the same batches, a step of each in turn; a first step each is not timed.

    What is timed is the whole step: encoding, network, loss, backward and optimiser.
    """
    optimisers = {
        method: torch.optim.Adam(model.parameters(), lr=learning_rate)
        for method, model in models.items()
    }
    losses: dict[str, list[float]] = {method: [] for method in models}
    taken: dict[str, list[float]] = {method: [] for method in models}
    for step in range(steps):
        batch = batch_of()
        order = list(models) if step % 2 else list(reversed(models))
        for method in order:
            start = time.perf_counter()
            optimisers[method].zero_grad()
            loss = loss_of[method](models[method], batch)
            loss.backward()
            optimisers[method].step()
            taken[method].append(time.perf_counter() - start)
            losses[method].append(loss.item())
    return Comparison(losses, {m: statistics.median(s[1:] or s) for m, s in taken.items()})


def twin(model: Model) -> Model:
    """A copy with the same weights."""
    return copy.deepcopy(model)


def options_of(description: str | None, picture: str, steps: int, quick: int) -> argparse.Namespace:
    """The options that all three take; ``steps`` follows from ``--quick`` unless given."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small run, for a first look")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    parser.add_argument("--steps", type=_positive, help=f"training steps (default: {steps})")
    parser.add_argument("--out", type=_picture, default=Path(picture), help="the picture (PNG)")
    options = parser.parse_args()
    options.steps = options.steps or (quick if options.quick else steps)
    return options


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def _picture(text: str) -> Path:
    """A PNG file's path, its folder made: better to fail here than behind the training."""
    path = Path(text)
    if path.suffix.lower() != ".png" or path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file name ending in .png, got {text!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"expected a folder that can be written, got {str(path.parent)!r}: {error.strerror}"
        ) from error
    return path


def save_images(path: Path, images: Mapping[str, Tensor], colour_map: str | None = None) -> None:
    """Pictures side by side, (height, width) or (height, width, 3), if matplotlib is there."""
    if find_spec("matplotlib") is None:
        print("matplotlib is not installed: no picture")
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(images), 4), layout="constrained")
    for index, (title, image) in enumerate(images.items()):
        axes = figure.add_subplot(1, len(images), index + 1)
        axes.imshow(image.detach().numpy(), cmap=colour_map)
        axes.set_title(title)
        axes.set_axis_off()
    figure.savefig(path, dpi=100)
    print(f"picture      {path}")
