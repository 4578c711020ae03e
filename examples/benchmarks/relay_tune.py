"""AutoTVM's tasks on this CPU: ours against XGBTuner, GATuner and RandomTuner (Relay-era TVM).

    python examples/benchmarks/relay_tune.py --format json

Every tuner gets the same task, the same measurement and the same number of trials.  XGBTuner plans
16 candidates at a time and GATuner breeds from 16, as their defaults (64 and 100) would leave both
at random draws for all of so few trials.  ``xgb`` has the knobs as features; those of the lowered
loops, ``xgb_itervar``, take minutes a plan, as thousands of candidates are lowered for each.

At the end the untuned configuration and every winner are timed again, in alternation; the figures
are of that.

``speedup_over_untuned_after_N_trials``: median and range over the seeds.
``speedup_over_best_rival_after_N_trials``: ours against whichever rival has the best median.  Case
``all`` holds geometric means.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from harness import Row, emit, geometric_mean, names, note, parser, positive, spread
from tvm import autotvm, relay  # noqa: F401  (relay: loads the templates)
from tvm.autotvm.measure import MeasureInput

from tunerplugin.autotvm import Seq2SeqTuner, measure_option
from tunerplugin.integrations.autotvm.task import TemplateTask
from tunerplugin.measure import available_cores, host_target

POINTS = (16, 32, 64)
QUICK_POINTS = (8, 16)
SEEDS, QUICK_SEEDS = 3, 1
ROUNDS, QUICK_ROUNDS = 15, 5
PLAN = 16
RIVALS = ("xgb", "xgb_itervar", "random", "ga")
METHODS = ("ours", "xgb", "random", "ga")
UNTUNED = "untuned"


def _tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, "float32")


#: template and arguments; none of these shapes is among those of the weights in the package
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dense": ("dense_pack.x86", (_tensor(256, 256), _tensor(256, 256), None, "float32")),
    "conv2d": (
        "conv2d_NCHWc.x86",
        (
            _tensor(1, 64, 56, 56),
            _tensor(64, 64, 3, 3),
            (1, 1),
            (1, 1, 1, 1),
            (1, 1),
            "NCHW",
            "NCHW",
            "float32",
        ),
    ),
    "dense_nopack": ("dense_nopack.x86", (_tensor(256, 256), _tensor(256, 256), None, "float32")),
}
TUNERS: dict[str, Callable[[Any, int], Any]] = {
    "ours": lambda task, seed: Seq2SeqTuner(task, seed=seed),
    "xgb": lambda task, seed: autotvm.tuner.XGBTuner(task, plan_size=PLAN, feature_type="knob"),
    "xgb_itervar": lambda task, seed: autotvm.tuner.XGBTuner(task, plan_size=PLAN),
    "random": lambda task, seed: autotvm.tuner.RandomTuner(task),
    "ga": lambda task, seed: autotvm.tuner.GATuner(task, pop_size=PLAN),
}


@dataclass
class Tuning:
    """One method's trials on one task: configurations and seconds (``None``: failed), in order."""

    configs: list[Any] = field(default_factory=list)
    latencies_s: list[float | None] = field(default_factory=list)
    total_s: float = 0.0

    def winner(self, trials: int) -> Any | None:
        """The fastest of the first ``trials`` configurations."""
        timed = [
            (latency, i)
            for i, latency in enumerate(self.latencies_s[:trials])
            if latency is not None
        ]
        return self.configs[min(timed)[1]] if timed else None


def tune(method: str, task: Any, trials: int, seed: int, option: dict[str, Any]) -> Tuning:
    """Run one tuner."""
    # the rivals draw from the global generators and take no seed; each from a start of its own
    own_seed = zlib.crc32(f"{method} {seed}".encode())
    random.seed(own_seed)
    np.random.seed(own_seed)
    done = Tuning()

    def keep(_: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for given, result in zip(inputs, results, strict=True):
            done.configs.append(given.config)
            ok = result.error_no == 0
            done.latencies_s.append(float(np.mean(result.costs)) if ok else None)

    started = time.monotonic()
    TUNERS[method](task, seed).tune(trials, option, callbacks=[keep])
    done.total_s = time.monotonic() - started
    return done


def compare(
    task: Any, tunings: dict[str, Tuning], points: Sequence[int], rounds: int, runner: Any
) -> dict[tuple[str, int], float]:
    """Speed over the untuned configuration of each winner, timed in alternation with all others."""
    template = TemplateTask(task)
    default = template.default()
    if default is None:
        raise SystemExit(f"expected a default configuration of {task.name}, got none")
    configs = {template.space.index_of(default): template.space.config(default)}
    chosen: dict[tuple[str, int], int | None] = {}
    for method, tuning in tunings.items():
        for point in points:
            config = tuning.winner(point)
            chosen[method, point] = None if config is None else int(config.index)
            if config is not None:
                configs.setdefault(int(config.index), config)
    inputs = [MeasureInput(task.target, task, config) for config in configs.values()]
    outcomes = dict(zip(configs, runner.compare(inputs, rounds), strict=True))
    untuned = outcomes[template.space.index_of(default)].samples_s
    ratios = {}
    for key, index in chosen.items():
        samples = outcomes[index].samples_s if index is not None else ()
        pairs = zip(untuned, samples, strict=True) if samples else [(1.0, 1.0)]
        # nothing that runs was found: the untuned one stays
        ratios[key] = statistics.median(before / after for before, after in pairs)
    return ratios


def rows_of(
    case: str,
    ratios: Sequence[dict[tuple[str, int], float]],
    methods: Sequence[str],
    points: Sequence[int],
) -> list[Row]:
    """The rows of one case; ``ratios`` by seed."""
    rows = []
    for point in points:
        metric = f"speedup_over_untuned_after_{point}_trials"
        for method in methods:
            rows.append(Row(case, method, metric, *_spread_row([r[method, point] for r in ratios])))
        rivals = [method for method in methods if method in RIVALS]
        if "ours" in methods and rivals:
            best = max(rivals, key=lambda m: statistics.median(r[m, point] for r in ratios))
            over = [r["ours", point] / r[best, point] for r in ratios]
            metric = f"speedup_over_best_rival_after_{point}_trials"
            rows.append(Row(case, "ours", metric, *_spread_row(over)))
    return rows


def _spread_row(samples: Sequence[float]) -> tuple[float, str, float, float]:
    middle = spread(samples)
    return middle.value, "x", middle.low, middle.high


def main() -> None:
    """Parse, run, print."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--seeds", type=positive, help=f"how many (default: {SEEDS})")
    options_parser.add_argument("--trials", type=positive, help=f"at most (default: {POINTS[-1]})")
    options_parser.add_argument("--threads", type=positive, default=available_cores())
    options_parser.add_argument("--cases", type=names(CASES), default=["dense", "conv2d"])
    options_parser.add_argument("--methods", type=names(TUNERS), default=list(METHODS))
    options = options_parser.parse_args()
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    points = QUICK_POINTS if options.quick else POINTS
    points = tuple(p for p in points if p <= (options.trials or points[-1])) or (options.trials,)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    target = tvm.target.Target(host_target(options.threads))
    option = measure_option(
        jobs=options.threads, build_deadline_s=10.0, repeats=3, min_repeat_ms=10.0
    )
    ratios: dict[str, list[dict[tuple[str, int], float]]] = {case: [] for case in options.cases}
    seconds: dict[str, list[float]] = {method: [] for method in options.methods}
    for turn in range(seeds):
        for case in options.cases:
            shift = turn % len(options.methods)
            tunings = {}
            for method in options.methods[shift:] + options.methods[:shift]:
                task = autotvm.task.create(*CASES[case], target)
                done = tune(method, task, points[-1], options.seed + turn, option)
                tunings[method] = done
                seconds[method].append(done.total_s)
                note(f"seed {turn}, {case}, {method}: {done.total_s:.0f} s")
            ratios[case].append(compare(task, tunings, points, rounds, option["runner"]))
            note(str({f"{m}@{p}": round(r, 2) for (m, p), r in sorted(ratios[case][-1].items())}))
    rows = [r for case in ratios for r in rows_of(case, ratios[case], options.methods, points)]
    every = [
        {key: geometric_mean([ratios[case][turn][key] for case in ratios]) for key in first}
        for turn, first in enumerate(ratios[options.cases[0]])
    ]
    rows += rows_of("all", every, options.methods, points)
    for method, spent in seconds.items():
        middle = spread(spent)
        rows.append(Row("all", method, "total_s", middle.value, "s", middle.low, middle.high))
    option["runner"].close()
    emit(rows, options)


if __name__ == "__main__":
    main()
