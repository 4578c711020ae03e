"""Tuning single operators on this CPU: ours against stock MetaSchedule, random search, untuned.

Every method gets the same number of trials; runs of the methods are interleaved, each in a process
of its own.  The winners of all methods and the untuned build are then timed once more, side by side
in one process in alternation, and only those times enter ``latency_s`` and the ratios.  Curves are
of candidates only (not of the untuned schedule), as each tuning loop measured them.

Metrics (median over seeds, ``low`` and ``high`` the range; case ``all``: geometric mean over
operators, with the range over seeds):

latency_s                     of the winner
speedup_over_untuned          untuned latency / latency
speedup_over_stock, _random   stock (random) latency / ours: above 1, ours is faster
latency_s_after_N_trials      best so far
latency_s_after_N_s           best so far, N seconds after the start of the loop
seconds_after_N_trials        when N candidates had been measured
seconds_to_first_measurement  from the start of the loop, imports done, to a measured candidate
total_s                       of the whole run, choosing the winner included
failed_runs                   runs without a usable winner; they count with the untuned latency
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from cpu_operators import OPERATORS, operator_module
from harness import Row, emit, geometric_mean, names, note, paired_ratio, parser, positive, spread
from tuning_run import METHODS, TuningRun, start

from tunerplugin.measure import Measurer, MeasureTask, host_target

TRIALS, QUICK_TRIALS = 32, 8
SEEDS, QUICK_SEEDS = 3, 1
QUICK_OPERATORS = ("dense", "softmax")
ROUNDS, QUICK_ROUNDS = 9, 3
TRIAL_POINTS = (8, 16, 32, 64, 128)
SECOND_POINTS = (15, 30, 60, 120)
UNTUNED = "untuned"
RIVALS = ("stock", "random")


@dataclass(frozen=True)
class Trial:
    """One seed on one operator: each method's run, and final samples in seconds of its winner.

    ``samples_s[method][r]`` were taken side by side in round ``r``.
    """

    runs: dict[str, TuningRun]
    samples_s: dict[str, tuple[float, ...]]
    failed: frozenset[str]

    def speedup(self, method: str, over: str) -> float:
        """How many times faster ``method``'s winner is than that of ``over``."""
        return paired_ratio(self.samples_s[over], self.samples_s[method]).value


def tune_all(operator: str, methods: Sequence[str], trials: int, seed: int) -> dict[str, TuningRun]:
    """One run of every method, in the order given."""
    runs: dict[str, TuningRun] = {}
    for method in methods:
        with tempfile.TemporaryDirectory(prefix="tune_cpu_") as folder:
            runs[method] = start(method, operator, trials, seed, Path(folder))
        best = runs[method].best_after(trials)
        found = "nothing measured" if best is None else f"best {best * 1e3:.3f} ms"
        note(
            f"{operator} seed {seed} {method}: {found}, {runs[method].total_s:.0f} s "
            f"{runs[method].error}".rstrip()
        )
    return runs


def compare(operator: str, runs: dict[str, TuningRun], measurer: Measurer, rounds: int) -> Trial:
    """Time the winners and the untuned build side by side."""
    untuned = tvm.ir.save_json(operator_module(operator))
    task = MeasureTask(operator, untuned, str(tvm.target.Target(host_target())))
    winners = {method: run.module for method, run in runs.items() if run.module is not None}
    outcomes = measurer.time_pair(task, [untuned, *winners.values()], rounds)
    if not outcomes[0].ok:
        raise RuntimeError(f"the untuned {operator} does not run: {outcomes[0].reason}")
    samples = dict.fromkeys([UNTUNED, *runs], outcomes[0].samples_s)
    failed = {method for method, run in runs.items() if run.error}
    for method, outcome in zip(winners, outcomes[1:], strict=True):
        if outcome.ok:
            samples[method] = outcome.samples_s
        else:
            failed.add(method)
            note(f"{operator} {method}: the winner ends as {outcome.status.value}")
    return Trial(runs, samples, frozenset(failed))


def operator_rows(operator: str, done: Sequence[Trial]) -> list[Row]:
    """The rows of one operator over all seeds."""
    rows: list[Row] = []

    def add(method: str, metric: str, unit: str, values: Sequence[float | None]) -> None:
        known = [value for value in values if value is not None]
        if known:
            middle = spread(known)
            rows.append(Row(operator, method, metric, middle.value, unit, middle.low, middle.high))

    for method in done[0].samples_s:
        finals = [spread(trial.samples_s[method]).value for trial in done]
        add(method, "latency_s", "s", finals)
        for metric, over in _ratios(method, done[0]):
            add(method, metric, "x", [trial.speedup(method, over) for trial in done])
        if method != UNTUNED:
            _add_curves(method, [trial.runs[method] for trial in done], add)
            if failures := sum(method in trial.failed for trial in done):
                add(method, "failed_runs", "runs", [failures])
    return rows


def _ratios(method: str, trial: Trial) -> list[tuple[str, str]]:
    """(metric, against whom) for one method."""
    if method == UNTUNED:
        return []
    against = [UNTUNED]
    if method == "ours":
        against += [rival for rival in RIVALS if rival in trial.samples_s]
    return [(f"speedup_over_{over}", over) for over in against]


def _add_curves(
    method: str,
    runs: Sequence[TuningRun],
    add: Callable[[str, str, str, Sequence[float | None]], None],
) -> None:
    measured = max(len(run.seconds) for run in runs)
    for point in [p for p in TRIAL_POINTS if p <= measured]:
        add(method, f"latency_s_after_{point}_trials", "s", [r.best_after(point) for r in runs])
        reached = [r.seconds[point - 1] for r in runs if len(r.seconds) >= point]
        add(method, f"seconds_after_{point}_trials", "s", reached)
    for point in SECOND_POINTS:
        add(method, f"latency_s_after_{point}_s", "s", [r.best_at(point) for r in runs])
    add(method, "seconds_to_first_measurement", "s", [r.first_s for r in runs])
    add(method, "total_s", "s", [r.total_s for r in runs if not r.error])


def summary_rows(results: dict[str, list[Trial]]) -> list[Row]:
    """Case ``all``: geometric means of the ratios, and the seconds over all runs."""
    by_seed = list(zip(*results.values(), strict=True))
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trials in by_seed:
        for method in trials[0].samples_s:
            for metric, over in _ratios(method, trials[0]):
                mean = geometric_mean([trial.speedup(method, over) for trial in trials])
                ratios[method, metric].append(mean)
    rows = []
    for (method, metric), means in ratios.items():
        middle = spread(means)
        rows.append(Row("all", method, metric, middle.value, "x", middle.low, middle.high))
    for method in by_seed[0][0].runs:
        runs = [trial.runs[method] for trials in by_seed for trial in trials]
        seconds = {
            "seconds_to_first_measurement": [r.first_s for r in runs if r.first_s is not None],
            "total_s": [r.total_s for r in runs if not r.error],
        }
        for metric, values in seconds.items():
            if values:
                middle = spread(values)
                rows.append(Row("all", method, metric, middle.value, "s", middle.low, middle.high))
    return rows


def main() -> None:
    """Parse, run, print."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--trials", type=positive, help=f"default: {TRIALS}")
    options_parser.add_argument("--seeds", type=positive, help=f"how many (default: {SEEDS})")
    options_parser.add_argument(
        "--operators", type=names(OPERATORS), help=f"of {', '.join(OPERATORS)}"
    )
    options_parser.add_argument(
        "--methods",
        type=names(METHODS),
        default=list(METHODS),
        help=f"of {', '.join(METHODS)}; the untuned build is always there",
    )
    options = options_parser.parse_args()
    trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    operators = options.operators or list(QUICK_OPERATORS if options.quick else OPERATORS)
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    results: dict[str, list[Trial]] = {operator: [] for operator in operators}
    with Measurer(seed=options.seed) as measurer:
        for turn in range(seeds):
            for index, operator in enumerate(operators):
                shift = (turn + index) % len(options.methods)
                methods = options.methods[shift:] + options.methods[:shift]
                runs = tune_all(operator, methods, trials, options.seed + turn)
                ordered = {method: runs[method] for method in options.methods}
                results[operator].append(compare(operator, ordered, measurer, rounds))
    rows = [row for operator, done in results.items() for row in operator_rows(operator, done)]
    emit([*rows, *summary_rows(results)], options)


if __name__ == "__main__":
    main()
