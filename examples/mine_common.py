"""One accelerator for several models, beside one for each.

    python examples/mine_common.py --models resnet18,vgg16=2 --area 200 --power 100

Weights say how much a model counts: the common design has the best weighted geometric mean.
"""

from __future__ import annotations

import argparse

from tunerplugin.hw.graph import workload
from tunerplugin.hw.mine import Workload, mine


def main() -> None:
    options = argparse.ArgumentParser(description="Mine one accelerator for several models.")
    options.add_argument("--models", default="resnet18,vgg16", help="NAME[=WEIGHT],...")
    options.add_argument("--batch", type=int, default=32, help="samples of one step (32)")
    options.add_argument("--area", type=float, default=200.0, help="mm^2 (200)")
    options.add_argument("--power", type=float, default=100.0, help="W (100)")
    args = options.parse_args()
    workloads = []
    for item in args.models.split(","):
        name, _, weight = item.partition("=")
        graph = workload(name, args.batch)
        workloads.append(Workload.of(graph, weight=float(weight or 1)))
    budget = {"area_mm2": args.area, "power_w": args.power}
    common = mine(workloads, **budget)
    print(f"common: {common.point}")
    for made, run in zip(workloads, common.best.runs, strict=True):
        own = mine(made, **budget)
        print(f"{made.name}: {own.point}")
        print(
            f"  {own.best.throughput:.4g} samples/s on its own design, "
            f"{run.throughput:.4g} ({run.throughput / own.best.throughput:.1%}) on the common one"
        )


if __name__ == "__main__":
    main()
