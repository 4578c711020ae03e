"""A mined accelerator against TPUv2 and NVDLA at the same area, power, memory and bandwidth.

    python examples/mine_compare.py --model resnet18 --out comparison.png

All three are estimated by the same model under the same technology preset; ``--technology all``
shows how far the answer hangs on the preset.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tunerplugin.hw.estimate.technology import technologies
from tunerplugin.hw.graph import workload
from tunerplugin.hw.mine import Workload, mine, scaled, write_plot
from tunerplugin.hw.target import chip


def main() -> None:
    options = argparse.ArgumentParser(description="Compare a mined accelerator with known ones.")
    options.add_argument("--model", default="resnet18")
    options.add_argument("--batch", type=int, help="samples of one step")
    options.add_argument("--technology", default="7nm-macro", help="a preset, or all")
    options.add_argument("--out", type=Path, help="a picture of all designs, of the last preset")
    args = options.parse_args()
    made = Workload.of(workload(args.model, args.batch))
    tpu, nvdla = chip("tpu-v2"), chip("nvdla-like")
    for name in technologies() if args.technology == "all" else [args.technology]:
        result = mine(made, technology=name, reference=tpu)
        evaluator = result.evaluator
        rival = evaluator.refine(scaled(nvdla, tpu, result.budget, evaluator.technology))
        print(f"{name}: {args.model} within {result.budget}")
        for found in (result.best, result.reference, rival):
            print(
                f"  {found.design.name:28} {found.throughput:9.4g} samples/s  "
                f"{found.area_mm2:6.1f} mm^2  {found.power_w:6.1f} W  "
                f"{result.best.throughput / found.throughput:5.2f}x"
            )
    if args.out:
        marked = (result.best, result.reference, rival)
        write_plot(args.out, (*result.evaluated, rival), result.front, marked)
        print(f"written: {args.out}")


if __name__ == "__main__":
    main()
