"""``tunerplugin report WORK_DIR``: the tuning curve, random search beside it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ..errors import InputError
from ..records import SQLiteStore, TaskKey
from . import curve, exits, options, render
from .exits import StopGuard
from .parser import Parser
from .progress import ProgressBar
from .records import store_path


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    verb = add(
        "report",
        parents=[options.common()],
        help="draw the tuning curve of a work directory",
        description="Write best latency against trials and against seconds as curve.csv and "
        "curve.png; random-search records of the work directory are drawn beside ours.",
    )
    verb.add_argument("work_dir", type=Path, metavar="WORK_DIR", help="of a tune run")
    verb.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: WORK_DIR)")
    verb.add_argument(
        "--baseline-trials",
        type=options.at_least(1),
        metavar="N",
        help="first measure N trials of random search over all tasks, earlier ones included",
    )
    verb.add_argument("--seed", type=options.at_least(0), default=0, help="of the baseline")
    verb.add_argument(
        "--jobs",
        type=options.at_least(1),
        help="CPU threads of the baseline (default: as the last run)",
    )
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Write the CSV and, with matplotlib, the picture."""
    path = store_path(args.work_dir)
    out = options.make_work_dir(args.out or args.work_dir, "--out")
    if args.baseline_trials is not None:
        _measure_baseline(args, guard, path)
    with SQLiteStore(path, read_only=True) as store:
        result = curve.curves(store)
    files = {"csv": str(out / "curve.csv")}
    curve.write_csv(out / "curve.csv", result)
    try:
        curve.write_png(out / "curve.png", result)
        files["png"] = str(out / "curve.png")
    except InputError as error:
        print(f"tunerplugin report: {error}", file=sys.stderr)
    last = {method: result.of(method)[-1] for method in result.methods()}
    rows = [
        (
            method,
            point.trial,
            render.duration(point.seconds),
            render.duration(point.best_s),
            render.ratio(result.untuned_s, point.best_s),
        )
        for method, point in last.items()
    ]
    text = [
        f"{len(result.weights)} tasks, {render.duration(result.untuned_s)} untuned",
        render.table(("method", "trials", "tuning time", "best", "speedup"), rows),
        f"Written: {', '.join(files.values())}",
    ]
    if result.left_out:
        text.append(
            f"{result.left_out} records left out: of another target, machine or version, or of a "
            "task whose untuned schedule could not be measured"
        )
    document = {
        "verb": "report",
        "untuned_s": result.untuned_s,
        "points": [asdict(point) for point in result.points],
        "files": files,
        "left_out": result.left_out,
    }
    render.emit(args.format, document, "\n".join(text))
    return exits.DONE


def _measure_baseline(args: argparse.Namespace, guard: StopGuard, path: Path) -> None:
    """Spread the trials evenly over the tasks: random search has no reason to favour one."""
    with SQLiteStore(path, read_only=True) as store:
        keys = list(curve.curves(store).weights)
        modules = {workload.key: workload.module for workload in store.workloads()}
        if args.jobs is None:  # as many as the run had that the baseline stands beside
            jobs = [run.info["jobs"] for run in store.runs() if run.info.get("jobs")]
            args.jobs = int(jobs[-1]) if jobs else None
    share, rest = divmod(args.baseline_trials, len(keys))
    for number, key in enumerate(keys):
        trials = share + (number < rest)
        if trials:
            _tune_randomly(args, guard, key, modules[key.workload], trials)


def _tune_randomly(
    args: argparse.Namespace, guard: StopGuard, key: TaskKey, module: str, trials: int
) -> None:
    with render.stdout_to_stderr():
        import tvm

        import tunerplugin

        target = tvm.target.Target(json.loads(key.target))
        with ProgressBar(guard, args.quiet) as bar:
            tunerplugin.tune(
                tvm.ir.load_json(module),
                target,
                work_dir=str(args.work_dir),
                trials=trials,
                seed=args.seed,
                jobs=args.jobs,
                method="random",
                progress=bar,
            )
