"""Kernel Tuner's benchmark hub: tune for a GPU that was never seen, one GPU left out at a time.

Every space was measured exhaustively on several GPUs, so a tuner can be replayed and its result
compared with the true optimum.  For each GPU the predictor is trained on all other GPUs' recordings
(of all spaces), and nothing of the GPU itself is known before the first trial.

Methods: ``ours``; ``mean_rank``, the configurations in the order of their mean relative speed on
the other GPUs; ``random`` configurations; each strategy of the package kernel_tuner in its
simulation mode.  Failed configurations count as trials, for all of them.

Metrics (fractions of the GPU's optimum, 1 is best; median over seeds, ``low`` and ``high`` the
range; case ``all``: mean over the cases):

fraction_at_0   of the one configuration proposed before any trial
best_of_10      best of the ten proposed before any trial
fraction_at_N   best after N trials
train_s         training, per GPU left out
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hub_rivals
import numpy as np
from harness import Row, emit, note, parser, positive, spread

from tunerplugin.errors import TunerError
from tunerplugin.predictor import Predictor
from tunerplugin.search import Tuner, TunerOptions, replay
from tunerplugin.sources.kernel_tuner import (
    Recording,
    References,
    find_gpu,
    problem_of,
    read_cache,
    space_of_recordings,
    train,
    transfer_scorer,
)
from tunerplugin.sources.kernel_tuner.training import EPOCHS, EXAMPLES
from tunerplugin.space import Value

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "kernel_tuner_hub"
SEEDS, QUICK_SEEDS = 3, 1
QUICK_EPOCHS = 2
QUICK_EXAMPLES = 100
QUICK_SPACES = ("convolution_milo",)
AT_TRIALS = (10, 25, 50, 100)
PROPOSED = 10
#: the pool is all of the best; one trial at a time, as the rivals have it
OPTIONS = TunerOptions(pool=16, explore=0.0)


@dataclass(frozen=True)
class Case:
    """A recording of one GPU to be left out, as ``space/GPU``."""

    space: str
    gpu: str
    recording: Recording

    @property
    def name(self) -> str:
        """As the rows have it."""
        return f"{self.space}/{self.gpu}"

    @property
    def device(self) -> str:
        """What identifies the GPU across spaces."""
        known = find_gpu(self.recording.device) or find_gpu(self.gpu)
        return known.name if known else self.recording.device


@dataclass
class Table:
    """Fractions by case, method and metric, one per seed."""

    samples: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def add(self, case: str, method: str, metric: str, value: float) -> None:
        """One sample."""
        self.samples.setdefault((case, method, metric), []).append(value)

    def add_curve(self, case: str, method: str, qualities: Sequence[float]) -> None:
        """What a run found: ``qualities`` of its trials in order."""
        for trials in AT_TRIALS:
            self.add(case, method, f"fraction_at_{trials}", max(qualities[:trials], default=0.0))

    def add_proposal(self, case: str, method: str, qualities: Sequence[float]) -> None:
        """What a method proposes before any trial."""
        self.add(case, method, "fraction_at_0", qualities[0])
        self.add(case, method, "best_of_10", max(qualities[:PROPOSED]))

    def rows(self, cases: Sequence[str]) -> list[Row]:
        """A row for each, then the means over the cases of what has a sample in each."""
        rows = []
        for (case, method, metric), values in self.samples.items():
            middle = spread(values)
            unit = "s" if metric.endswith("_s") else "fraction"
            rows.append(Row(case, method, metric, middle.value, unit, middle.low, middle.high))
        for method, metric in dict.fromkeys((m, k) for _, m, k in self.samples):
            columns = [self.samples.get((case, method, metric)) for case in cases]
            known = [column for column in columns if column is not None]
            if len(known) == len(cases) and not metric.endswith("_s"):
                middle = spread([statistics.fmean(seed) for seed in zip(*known, strict=True)])
                rows.append(
                    Row("all", method, metric, middle.value, "fraction", middle.low, middle.high)
                )
        return rows


def read_cases(folder: Path) -> list[Case]:
    """Every cache file of the hub, by space and GPU."""
    files = sorted(folder.glob("*/*.json.gz"))
    if not files:
        raise SystemExit(
            f"expected cache files SPACE/GPU.json.gz in {folder}, got none: set --data"
        )
    return [_case(path, path.parent.name) for path in files]


def _case(path: Path, space: str) -> Case:
    return Case(space, path.name.split(".")[0], read_cache(path))


def outside_case(path: Path, known: Sequence[Case]) -> Case:
    """A cache file that is not of the hub, with the space of its kernel there."""
    case = _case(path, "")
    for other in known:
        same = (other.recording.kernel, other.recording.names)
        if same == (case.recording.kernel, case.recording.names):
            return Case(other.space, case.gpu, case.recording)
    raise SystemExit(
        f"expected a recording of one of the hub's kernels in {path}, got "
        f"{case.recording.kernel} with {', '.join(case.recording.names)}"
    )


def others_of(case: Case, cases: Iterable[Case]) -> list[Case]:
    """The recordings of other GPUs, of all spaces."""
    return [other for other in cases if other.device != case.device]


class Trained:
    """One predictor for each GPU left out, trained when first asked for."""

    def __init__(self, cases: Sequence[Case], seed: int, quick: bool) -> None:
        self._cases, self._seed = cases, seed
        self._epochs = QUICK_EPOCHS if quick else EPOCHS
        self._per_recording = QUICK_EXAMPLES if quick else EXAMPLES
        self._predictors: dict[str, tuple[Predictor, float]] = {}

    def without(self, case: Case) -> tuple[Predictor, float]:
        """The predictor and the seconds that its training took."""
        if case.device not in self._predictors:
            begin = time.monotonic()
            recordings = [other.recording for other in others_of(case, self._cases)]
            trained = train(recordings, self._seed, self._epochs, self._per_recording)
            seconds = time.monotonic() - begin
            note(
                f"without {case.device}: {trained.examples} examples, loss {trained.loss:.3f}, "
                f"{seconds:.0f} s"
            )
            self._predictors[case.device] = trained.predictor, seconds
        return self._predictors[case.device]


def run_ours(
    case: Case, others: Sequence[Recording], predictor: Predictor, seeds: Sequence[int], out: Table
) -> None:
    """Propose, then tune by replay."""
    recording = case.recording
    references = References(recording.device, others)
    space = space_of_recordings([recording], references)
    problem = problem_of(
        recording.kernel, recording.device, recording.names, recording.problem_size
    )
    prior = transfer_scorer(problem, space, references, predictor)
    proposed = [recording.quality(values) for values in prior.best(PROPOSED)]
    for seed in seeds:
        tuner = Tuner(problem, space, prior.copy(), seed=seed, options=OPTIONS)
        replay(tuner, recording.outcomes, max(AT_TRIALS), batch=1)
        out.add_proposal(case.name, "ours", proposed)
        out.add_curve(case.name, "ours", _tried(recording, tuner.history.outcomes))


def _tried(recording: Recording, outcomes: Iterable[tuple[Value, ...]]) -> list[float]:
    return [recording.quality(values) for values in outcomes]


def run_baselines(
    case: Case, others: Sequence[Recording], seeds: Sequence[int], out: Table
) -> None:
    """Mean relative speed on the other GPUs, and random configurations."""
    recording = case.recording
    configurations = list(recording.outcomes)
    ranked = sorted(configurations, key=lambda values: -_mean_quality(values, others))
    orders = {"mean_rank": [ranked] * len(seeds)}
    permutations = [np.random.default_rng(seed).permutation(len(ranked)) for seed in seeds]
    orders["random"] = [[configurations[i] for i in order] for order in permutations]
    for method, runs in orders.items():
        for run in runs:
            qualities = _tried(recording, run[: max(AT_TRIALS)])
            out.add_proposal(case.name, method, qualities)
            out.add_curve(case.name, method, qualities)


def _mean_quality(values: tuple[Value, ...], others: Sequence[Recording]) -> float:
    known = [other.quality(values) for other in others if values in other.outcomes]
    return statistics.fmean(known) if known else 0.0


def run_rivals(case: Case, strategies: Sequence[str], seeds: Sequence[int], out: Table) -> None:
    """Each strategy of Kernel Tuner; one that fails on a case has no rows there."""
    with tempfile.TemporaryDirectory(prefix="hub_") as folder:
        simulation = hub_rivals.Simulation(case.recording, Path(folder))
        for strategy in strategies:
            try:
                runs = [simulation.run(strategy, max(AT_TRIALS), seed) for seed in seeds]
            except Exception as error:  # noqa: BLE001 - a rival's bug is a finding, not ours
                note(f"{case.name} {strategy}: {type(error).__name__}: {error}")
                continue
            for run in runs:
                out.add_curve(case.name, strategy, run)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print."""
    made = parser(__doc__)
    made.add_argument("--data", type=Path, default=DATA, help="the hub's folder of cache files")
    made.add_argument("--cache", type=Path, help="of another GPU, instead of the hub's")
    made.add_argument("--seeds", type=positive, help="runs of each method (default: 3)")
    made.add_argument("--alone", action="store_true", help="without Kernel Tuner's strategies")
    options = made.parse_args(arguments)
    try:
        rows = _rows(options)
    except TunerError as error:  # of the files that were named
        made.error(str(error))
    emit(rows, options)


def _rows(options: argparse.Namespace) -> list[Row]:
    """Run every method on every case asked for."""
    cases = read_cases(options.data)
    tested = [outside_case(options.cache, cases)] if options.cache else cases
    if options.quick:
        tested = [case for case in tested if options.cache or case.space in QUICK_SPACES]
    if not tested:
        spaces = ", ".join(QUICK_SPACES)
        raise SystemExit(f"expected recordings of {spaces} in {options.data}: run without --quick")
    count = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    seeds = range(options.seed, options.seed + count)
    reason = "as asked" if options.alone else hub_rivals.missing_reason()
    strategies = [] if reason else hub_rivals.strategy_names()
    if reason:
        note(f"without the strategies of Kernel Tuner: {reason}")
    trained, table = Trained(cases, options.seed, options.quick), Table()
    for case in tested:
        others = [other.recording for other in others_of(case, cases) if other.space == case.space]
        predictor, seconds = trained.without(case)
        table.add(case.name, "ours", "train_s", seconds)
        run_ours(case, others, predictor, seeds, table)
        run_baselines(case, others, seeds, table)
        run_rivals(case, strategies, seeds, table)
        note(f"{case.name}: done")
    return table.rows([case.name for case in tested])


if __name__ == "__main__":
    main()
