"""Mine an accelerator for a model of your own, and use it as a TVM target.

    python examples/mine_model.py --area 200 --power 100 --out mined

The operator graph is a whole training step: forward, both gradients of every layer, and the
optimiser.  It is traced on shapes alone; the model needs no weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from tvm.target import Target

from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.graph import from_torch
from tunerplugin.hw.mine import mine, write_csv

BATCH, FEATURES, HIDDEN, CLASSES = 256, 784, 4096, 10


def build() -> tuple[nn.Module, tuple[torch.Tensor], object, tuple[torch.Tensor]]:
    """The model, its inputs, its loss and the loss's targets; ``tunerplugin mine`` reads it too:

    tunerplugin mine examples/mine_model.py:build --train --batch 256
    """
    with torch.device("meta"):
        model = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, CLASSES),
        ).to(torch.bfloat16)
        images = torch.empty(BATCH, FEATURES, dtype=torch.bfloat16)
        labels = torch.empty(BATCH, dtype=torch.int64)
    return model, (images,), nn.functional.cross_entropy, (labels,)


def main() -> None:
    options = argparse.ArgumentParser(description="Mine an accelerator for one model.")
    options.add_argument("--area", type=float, default=200.0, help="mm^2 (200)")
    options.add_argument("--power", type=float, default=100.0, help="W (100)")
    options.add_argument("--technology", default="7nm-macro")
    options.add_argument("--out", type=Path, help="write the design and the Pareto front there")
    args = options.parse_args()
    model, inputs, loss, targets = build()
    graph = from_torch(model, inputs, loss=loss, targets=targets, optimizer="adam", name="mlp")
    graph.graph["batch"] = BATCH
    result = mine(
        graph,
        area_mm2=args.area,
        power_w=args.power,
        technology=args.technology,
        name="mined-mlp",
    )
    for step in result.steps:
        print(f"{step.action}: {step.reason}")
    (run,) = result.best.runs
    print(f"\nbest: {result.point}")
    print(f"{result.best.area_mm2:.1f} mm^2, {result.best.power_w:.1f} W")
    print(f"{result.best.throughput:.4g} samples/s, {result.speedup:.2f}x TPUv2")
    print(f"schedule within {run.seconds / run.bound_s - 1:.2%} of its lower bound")
    result.register(override=True)
    target = Target("tunerplugin/mined-mlp")
    print(f"as a target: {Accelerator.from_target(target).peak_flops / 1e12:.1f} TFLOPS")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        write_csv(args.out / "front.csv", result.front)
        print(f"written: {result.save(args.out / 'mined-mlp.toml')}")


if __name__ == "__main__":
    main()
