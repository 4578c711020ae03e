"""``tunerplugin demo``: tune a small network here and show what it brought."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import require_relax
from . import exits, options, render
from .exits import StopGuard
from .parser import Parser
from .tune import compile_line, complain_nothing_measured, threads_hint, tune

if TYPE_CHECKING:
    from ..models import Model
    from .demo_net import Timing

DEFAULT_TRIALS = 96
QUICK_TRIALS = 18  # two for each of the network's nine tasks
ROUNDS = 21
WORK_DIR = Path("tunerplugin-demo")


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    parents = [options.compiling(), options.measuring(DEFAULT_TRIALS), options.common()]
    verb = add(
        "demo",
        parents=parents,
        help="tune a small network on this machine",
        description="Tune a small convolutional network on this machine's CPU and compare torch "
        "eager, TVM untuned and TVM tuned.",
    )
    verb.add_argument(
        "--work-dir", type=Path, default=WORK_DIR, help=f"where records are kept ({WORK_DIR})"
    )
    verb.add_argument(
        "--quick", action="store_true", help=f"{QUICK_TRIALS} trials, for a first look"
    )
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Tune, compile, time; 0 when a task was measured and all outputs equal torch's."""
    # TVM's thread pool would bind this process to one core, and torch's threads with it.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    with render.stdout_to_stderr():
        require_relax("for the demo")
    if args.quick:
        args.trials = QUICK_TRIALS
    options.check_weights(args.weights)
    work_dir = options.make_work_dir(args.work_dir)
    with render.stdout_to_stderr():
        target = _cpu_target(args.target, args.jobs)
        from . import demo_net

        net, image, model = demo_net.build_net(args.seed)
    document: dict[str, Any] = {"verb": "demo", "target": str(target), "work_dir": str(work_dir)}
    database, code = tune(args, guard, document, model, target, work_dir)
    if database is None:
        return code
    if code != exits.DONE:
        complain_nothing_measured(database.coverage)
    with render.stdout_to_stderr(), demo_net.threads(args.jobs):
        untuned, tuned = _compile(model, target, database)
        calls = {
            "torch eager": demo_net.torch_runner(net, image),
            "TVM untuned": demo_net.runner(untuned, image),
            "TVM tuned": demo_net.runner(tuned, image),
        }
        timings = demo_net.time_interleaved(calls, ROUNDS, "torch eager")
    wrong = [timing.name for timing in timings if not timing.equal]
    if wrong:
        print(
            f"tunerplugin: failed: expected the outputs of torch, got others from {wrong[0]}",
            file=sys.stderr,
        )
        code = exits.FAILED
    document |= {"latencies": [asdict(timing) for timing in timings]}
    text = _text(timings, database.coverage, work_dir)
    render.emit(args.format, document, f"{text}\n{threads_hint(args.jobs)}")
    return code


def _cpu_target(text: str | None, jobs: int | None) -> Any:
    target = options.parse_target(text, jobs)
    if target.kind.name != "llvm":
        from ..errors import TargetError

        raise TargetError(
            f"expected a CPU target (llvm) for the demo, got {text!r}; "
            "leave --target out, or tune a model of your own with: tunerplugin tune MODEL"
        )
    return target


def _compile(model: Model, target: Any, database: Any) -> tuple[Any, Any]:
    """TVM's own build of the network, and the build with the schedules that were found."""
    import tvm
    from tvm.s_tir.meta_schedule.relax_integration import compile_relax

    bound = tvm.relax.transform.BindParams("main", model.params)(model.mod)
    return (
        tvm.compile(bound, target=target),
        compile_relax(database, model.mod, target, model.params),
    )


def _text(timings: Sequence[Timing], coverage: Sequence[render.Coverage], work_dir: Path) -> str:
    untuned_s = next(timing.latency_s for timing in timings if timing.name == "TVM untuned")
    rows = [
        (
            timing.name,
            render.duration(timing.latency_s),
            f"{render.duration(timing.low_s)} .. {render.duration(timing.high_s)}",
            render.ratio(untuned_s, timing.latency_s),
            f"{timing.max_abs_error:.1e}",
        )
        for timing in timings
    ]
    headers = ("build", "latency", "range", "speedup over untuned", "max error")
    return "\n".join(
        [
            render.coverage_table(coverage),
            "",
            f"The whole network (median of {ROUNDS} interleaved rounds, error against torch):",
            render.table(headers, rows),
            "",
            f"Records are kept in {work_dir}. Tune a model of your own in three lines:",
            "target = tunerplugin.measure.host_target()",
            "database = tunerplugin.tune(mod, target, work_dir='work', trials=200, params=params)",
            compile_line(),
        ]
    )
