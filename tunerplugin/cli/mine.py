"""``tunerplugin mine MODEL``: the best accelerator for a model under area and power."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import exits, mine_models, options, render
from .exits import StopGuard
from .parser import Parser

if TYPE_CHECKING:
    from tunerplugin.hw.mine import Evaluation, Result, Workload
    from tunerplugin.hw.schedule import ExactSchedule

METRICS = ("throughput", "throughput-per-watt", "energy-delay")
_HEADERS = ("design", "area", "power", "throughput", "per watt", "energy-delay")


def positive(text: str) -> float:
    """An argparse type: a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    verb = add(
        "mine",
        parents=[options.common()],
        help="find the best accelerator for a model under area and power",
        description="Search tensor cores, vector cores and the shared buffer of an accelerator "
        "for the best throughput (or other metric) of a model within area and power.",
    )
    verb.add_argument(
        "model", metavar="MODEL", help="a built-in workload, model.py:FUNCTION, .onnx or .json"
    )
    _add_graph_options(verb)
    _add_search_options(verb)
    return verb


def _add_graph_options(verb: Parser) -> None:
    verb.add_argument("--train", action="store_true", help="a whole training step")
    verb.add_argument(
        "--batch",
        type=options.at_least(1),
        help="samples of one step (of a file: what its first input says)",
    )
    verb.add_argument("--sequence", type=options.at_least(1), help="tokens of one sample")
    verb.add_argument(
        "--optimizer", choices=("sgd", "momentum", "adam", "none"), help="with --train (adam)"
    )
    verb.add_argument(
        "--loss", choices=("cross_entropy",), help="for .onnx and .json models, with --train"
    )
    verb.add_argument(
        "--recompute",
        choices=("none", "block", "whole"),
        help="activations that the backward pass makes again, with --train (none)",
    )
    verb.add_argument(
        "--dtype",
        choices=("bfloat16", "float16", "float32"),
        help="of a built-in workload (bfloat16)",
    )
    verb.add_argument(
        "--common",
        metavar="MODEL[=WEIGHT],...",
        help="find one design for these models too, with weights (1)",
    )


def _add_search_options(verb: Parser) -> None:
    verb.add_argument("--area", type=positive, metavar="MM2", help="budget (the reference's)")
    verb.add_argument("--power", type=positive, metavar="W", help="budget (the reference's)")
    verb.add_argument("--metric", choices=METRICS, default=METRICS[0], help="what is best")
    verb.add_argument("--floor", type=positive, metavar="N", help="least throughput, samples/s")
    verb.add_argument(
        "--technology", default="7nm-macro", metavar="NAME", help="preset or .toml (7nm-macro)"
    )
    verb.add_argument(
        "--reference",
        default="tpu-v2",
        metavar="CHIP",
        help="chip that gives clock, memory and bandwidth, and is compared with (tpu-v2)",
    )
    verb.add_argument(
        "--mode",
        choices=("serial", "drain-once", "pipelined"),
        default="pipelined",
        help="of the systolic arrays (pipelined)",
    )
    verb.add_argument("--exact", action="store_true", help="certify the schedule with CP-SAT")
    verb.add_argument(
        "--time-limit", type=positive, default=60.0, metavar="S", help="of --exact (60)"
    )
    verb.add_argument("--explain", action="store_true", help="say why each step was taken")
    verb.add_argument("--name", help="of the design (its sizes)")
    verb.add_argument("--out", type=Path, metavar="DIR", help="write design, front and plot there")


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Mine, and show the result."""
    # what costs no time is refused first
    from tunerplugin.hw.estimate.technology import technology
    from tunerplugin.hw.mine import mine
    from tunerplugin.hw.target import chip

    tech, reference = technology(args.technology), chip(args.reference)
    out = options.make_work_dir(args.out, "--out") if args.out else None
    with render.stdout_to_stderr():
        result = mine(
            _workloads(args),
            area_mm2=args.area,
            power_w=args.power,
            metric=args.metric,
            technology=tech,
            reference=reference,
            floor=args.floor,
            name=args.name,
            mode=args.mode,
        )
        certified = result.certify(args.time_limit) if args.exact else []
    files = _write(result, out) if out else {}
    render.emit(
        args.format,
        _document(result, certified, files),
        _text(result, certified, files, args.explain),
    )
    return exits.DONE


def _workloads(args: argparse.Namespace) -> list[Workload]:
    from tunerplugin.hw.mine import Workload

    wanted = {args.model: 1.0}
    for item in filter(None, (args.common or "").split(",")):
        name, _, weight = item.strip().partition("=")
        try:
            wanted[name] = positive(weight) if weight else 1.0
        except argparse.ArgumentTypeError as error:
            raise InputError(f"--common {item}: {error}") from error
    mine_models.check_options(wanted, args)
    return [Workload.of(mine_models.read(m, args), weight=w) for m, w in wanted.items()]


def _write(result: Result, out: Path) -> dict[str, str]:
    from tunerplugin.hw.mine import write_csv, write_plot

    files = {
        "design": result.save(out / f"{result.design.name}.toml"),
        "evaluated": out / "evaluated.csv",
        "front": out / "front.csv",
    }
    write_csv(files["evaluated"], result.evaluated)
    write_csv(files["front"], result.front)
    try:
        marked = (result.best, result.reference)
        write_plot(out / "front.png", result.evaluated, result.front, marked)
        files["plot"] = out / "front.png"
    except InputError as error:
        print(f"tunerplugin mine: {error}", file=sys.stderr)
    return {key: str(path) for key, path in files.items()}


def _text(
    result: Result, certified: list[ExactSchedule], files: dict[str, str], explain: bool
) -> str:
    lines = []
    if explain:
        for step in result.steps:
            lines.append(f"{step.action}: {step.reason} [{step.point}: {step.value:.4g}]")
        lines.append("")
    rows = [_cells(result.best), _cells(result.reference)]
    lines += [
        f"best {result.metric.value} within {result.budget}, technology {result.best.technology}:",
        f"  {result.point}",
        "",
        render.table(_HEADERS, rows),
        "",
        f"{result.speedup:.3g}x the throughput of {result.reference.design.name}; "
        f"{result.evaluations} designs scheduled, {result.estimates} estimated, "
        f"{result.seconds:.3g} s",
    ]
    for run in result.best.runs:
        samples = "1 sample" if run.samples == 1 else f"{run.samples} samples"
        lines.append(
            f"{run.workload}: {render.duration(run.seconds)} a step of {samples}, no schedule of "
            f"it takes less than {render.duration(run.bound_s)} "
            f"(gap {run.seconds / run.bound_s - 1:.2%})"
        )
    for run, exact in zip(result.best.runs, certified, strict=False):
        lines.append(
            f"{run.workload}: exact solver, certified gap {exact.gap:.2%} "
            f"after {exact.seconds:.3g} s"
        )
    lines += ["", "Pareto front:", render.table(_HEADERS, [_cells(e) for e in result.front])]
    if files:
        lines.append(f"Written: {', '.join(files.values())}")
    return "\n".join(lines)


def _cells(evaluation: Evaluation) -> tuple[str, ...]:
    return (
        evaluation.design.name,
        f"{evaluation.area_mm2:.1f} mm^2",
        f"{evaluation.power_w:.1f} W",
        f"{evaluation.throughput:.4g}/s",
        f"{evaluation.throughput_per_watt:.4g}",
        f"{evaluation.energy_delay_js:.4g} Js",
    )


def _document(
    result: Result, certified: list[ExactSchedule], files: dict[str, str]
) -> dict[str, Any]:
    return {
        "verb": "mine",
        "metric": result.metric.value,
        "technology": result.best.technology,
        "budget": asdict(result.budget),
        "floor": result.floor,
        "best": _evaluation(result.best),
        "reference": _evaluation(result.reference),
        "speedup_over_reference": result.speedup,
        "front": [_evaluation(found) for found in result.front],
        "steps": [
            {"action": s.action, "reason": s.reason, "value": s.value, "scheduled": s.scheduled}
            for s in result.steps
        ],
        "certified": [
            {"gap": e.gap, "optimal": e.optimal, "seconds": e.seconds} for e in certified
        ],
        "evaluations": result.evaluations,
        "estimates": result.estimates,
        "seconds": result.seconds,
        "files": files,
    }


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "design": evaluation.design.values(),
        "area_mm2": evaluation.area_mm2,
        "power_w": evaluation.power_w,
        "throughput": evaluation.throughput,
        "throughput_per_watt": evaluation.throughput_per_watt,
        "energy_delay_js": evaluation.energy_delay_js,
        "runs": [
            {
                "workload": run.workload,
                "samples": run.samples,
                "seconds": run.seconds,
                "bound_s": run.bound_s,
                "energy_j": run.energy_j,
                "throughput": run.throughput,
            }
            for run in evaluation.runs
        ],
    }
