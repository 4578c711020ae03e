"""``tunerplugin tune MODEL``: measure schedules for every task of a model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import models
from . import exits, options, render
from .exits import StopGuard
from .parser import Parser
from .progress import ProgressBar

DEFAULT_TRIALS = 64


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    parents = [options.compiling(), options.measuring(DEFAULT_TRIALS), options.common()]
    verb = add(
        "tune",
        parents=parents,
        help="measure schedules for a model",
        description="Measure schedules for every task of a model; the same command resumes.",
    )
    options.add_model(verb)
    verb.add_argument(
        "--work-dir", type=Path, help="where records are kept (default: MODEL's name + .tuned)"
    )
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Tune; 0 when something was measured, 1 when nothing could be."""
    file = models.check_model_path(args.model)
    options.check_weights(args.weights)
    work_dir = options.make_work_dir(args.work_dir or Path(f"{file.stem}.tuned"))
    with render.stdout_to_stderr():
        target = options.parse_target(args.target, args.jobs)
        model = models.load_model(file)
    document: dict[str, Any] = {"verb": "tune", "model": str(file), "work_dir": str(work_dir)}
    database, code = tune(args, guard, document, model, target, work_dir)
    if database is None:
        return code
    lines = usage_lines(str(file), args, work_dir)
    document |= {"use": lines}
    text = [render.coverage_table(database.coverage)]
    if code == exits.DONE:
        text += ["", "Use it:", *lines, threads_hint(args.jobs)]
    else:
        complain_nothing_measured(database.coverage)
    render.emit(args.format, document, "\n".join(text))
    return code


def tune(
    args: argparse.Namespace,
    guard: StopGuard,
    document: dict[str, Any],
    model: models.Model,
    target: Any,
    work_dir: Path,
) -> tuple[Any, int]:
    """Run ``tunerplugin.tune`` under a progress bar and fill ``document`` in.

    Returns the database and the exit code.  When the user stops it, everything measured is in the
    work directory already: the best so far is printed, and the database is ``None``.
    """
    import tunerplugin

    with ProgressBar(guard, args.quiet) as bar:
        try:
            with render.stdout_to_stderr():
                database = tunerplugin.tune(
                    model.mod,
                    target,
                    work_dir=str(work_dir),
                    trials=args.trials,
                    seed=args.seed,
                    jobs=args.jobs,
                    params=model.params or None,
                    progress=bar,
                    weights=args.weights,
                )
        except BaseException:
            # C++ in between may have turned the KeyboardInterrupt into an error of its own.
            if not guard.stopped:
                raise
            return None, _stopped(args.format, document, guard, bar, work_dir)
    if guard.stopped:
        return None, _stopped(args.format, document, guard, bar, work_dir)
    measured = any(task.best_s is not None for task in database.coverage)
    code = exits.DONE if measured else exits.FAILED
    document |= {"status": "done" if measured else "nothing_measured"}
    document |= {"trials": args.trials, **render.result_document(database.coverage)}
    return database, code


def _stopped(
    form: str, document: dict[str, Any], guard: StopGuard, bar: ProgressBar, work_dir: Path
) -> int:
    last = bar.last
    document |= {
        "status": "stopped",
        "trials": last.done if last else None,
        "untuned_s": last.untuned_s if last else None,
        "best_s": last.best_s if last else None,
    }
    text = (
        f"Stopped: {bar.best_so_far()}. Every record is kept in {work_dir}; "
        "the same command goes on from there."
    )
    render.emit(form, document, text)
    return guard.exit_code


def complain_nothing_measured(coverage: Sequence[render.Coverage]) -> None:
    """Say on stderr that and why the run has no result."""
    reasons = sorted({task.reason for task in coverage if task.reason})
    why = "; ".join(reasons) if reasons else "the module has no function that can be tuned"
    print(f"tunerplugin: failed: expected a measured schedule, got none: {why}", file=sys.stderr)


def threads_hint(jobs: int | None) -> str:
    """What to set where the tuned model will run on a CPU."""
    from ..measure import available_cores

    threads = available_cores() if jobs is None else jobs
    return (
        f"Measured with {threads} CPU threads: set TVM_NUM_THREADS={threads} where it runs, "
        "since TVM by itself may use fewer."
    )


def compile_line() -> str:
    """How a tuned model is compiled with this TVM."""
    from ..integrations.compat import COMPILE_LINE

    return COMPILE_LINE


def usage_lines(file: str, args: argparse.Namespace, work_dir: Path) -> list[str]:
    """Three lines of Python that compile the model with what was found."""
    jobs = "" if args.jobs is None else str(args.jobs)
    target = f"tunerplugin.measure.host_target({jobs})"
    if args.target is not None:
        text = args.target
        config = json.loads(text) if text.lstrip().startswith("{") else text
        target = f"tvm.target.Target({config!r})"
    return [
        f"(mod, params), target = tunerplugin.load_model({file!r}), {target}",
        f"database = tunerplugin.tune(mod, target, work_dir={str(work_dir)!r}, "
        f"trials={args.trials}, seed={args.seed}, jobs={args.jobs}, params=params)"
        "  # only compares the winners again",
        compile_line(),
    ]
