"""One tuning run of one method on one operator, in a process of its own.

A run in its own process starts like a user's: nothing is loaded or warm from another method's run.
The clock starts once everything is imported.  ``tune_cpu.py`` starts these and reads ``run.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULT_FILE, LOG_FILE = "run.json", "log.txt"
#: for the whole run; a hang ends the run, not the benchmark
_DEADLINE_S = 3600


@dataclass(frozen=True)
class TuningRun:
    """What a run gave.

    ``latencies_s[i]`` is the measured time of candidate ``i`` (``None``: it failed), ``seconds[i]``
    when that was known, since the start of the loop.  ``module`` is the ``save_json`` text of the
    winning schedule, ``None`` when the untuned one stays.  ``error`` says why a run failed.
    """

    latencies_s: list[float | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    total_s: float = 0.0
    module: str | None = None
    error: str = ""

    def best_after(self, trials: int) -> float | None:
        """The best latency among the first ``trials`` candidates."""
        return min((s for s in self.latencies_s[:trials] if s is not None), default=None)

    def best_at(self, seconds: float) -> float | None:
        """The best latency known ``seconds`` after the start."""
        return self.best_after(sum(s <= seconds for s in self.seconds))

    @property
    def first_s(self) -> float | None:
        """Seconds until a candidate had been measured."""
        pairs = zip(self.latencies_s, self.seconds, strict=True)
        return next((s for latency, s in pairs if latency is not None), None)


def start(method: str, operator: str, trials: int, seed: int, folder: Path) -> TuningRun:
    """Run in a child process, with ``folder`` as its (empty) work directory."""
    command = [sys.executable, __file__, method, operator, str(trials), str(seed), str(folder)]
    with (folder / LOG_FILE).open("w", encoding="utf-8") as log:
        try:
            code = subprocess.run(
                command, stdout=log, stderr=log, timeout=_DEADLINE_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return TuningRun(error=f"not done after {_DEADLINE_S} s")
    if code != 0:
        lines = (folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
        return TuningRun(error=f"exit code {code}: {lines[-1] if lines else 'no output'}")
    return TuningRun(**json.loads((folder / RESULT_FILE).read_text(encoding="utf-8")))


def run_ours(
    mod: Any, target: Any, trials: int, seed: int, folder: Path, method: str = "ours"
) -> TuningRun:
    """``tunerplugin.tune``."""
    import tunerplugin
    from tunerplugin.predictor import Predictor  # noqa: F401  (loads torch before the clock runs)
    from tunerplugin.records import STORE_NAME, SQLiteStore

    clocks: list[tuple[float, float]] = []
    started = time.monotonic()
    database = tunerplugin.tune(
        mod,
        target,
        work_dir=folder,
        trials=trials,
        seed=seed,
        method=method,
        progress=lambda at: clocks.append((time.monotonic() - started, at.elapsed_s)),
    )
    total_s = time.monotonic() - started
    # records count from when the session began, which is after the spaces were generated
    before_session_s = clocks[0][0] - clocks[0][1]
    with SQLiteStore(folder / STORE_NAME, read_only=True) as store:
        records = sorted(store.records(method=method), key=lambda record: record.trial)
    return TuningRun(
        [record.outcome.latency_s for record in records],
        [before_session_s + record.elapsed_s for record in records],
        total_s,
        _winner(database, mod, target),
    )


def run_random(mod: Any, target: Any, trials: int, seed: int, folder: Path) -> TuningRun:
    """Uniform random search with the same spaces, constraints and measurement."""
    return run_ours(mod, target, trials, seed, folder, "random")


def run_stock(mod: Any, target: Any, trials: int, seed: int, folder: Path) -> TuningRun:
    """TVM's own: evolutionary search with its XGBoost model, given a fair chance.

    The builder does without the import that makes stock builds time out on slow cores.  By default
    64 trials make a batch and the model stays silent until 100 samples: in so small a budget it
    would never be used, so half of the trials make a batch, and the model works from the second on.
    Candidates that do not build are not in the curve: TVM never hands them to its runner.
    """
    from tunerplugin.integrations.compat import derived_object, ms
    from tunerplugin.integrations.metaschedule import local_builder
    from tunerplugin.measure import preload_tensor_intrinsics

    latencies: list[float | None] = []
    seconds: list[float] = []

    @derived_object
    class TimedRunner(ms.runner.PyRunner):  # type: ignore[misc]
        """TVM's local runner, with a note of when each candidate was done."""

        def __init__(self) -> None:
            super().__init__()
            self.local = ms.runner.LocalRunner()

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            futures = []
            for runner_input in runner_inputs:
                (future,) = self.local.run([runner_input])
                costs = future.result().run_secs
                latencies.append(_median(costs) if costs else None)
                seconds.append(time.monotonic() - started)
                futures.append(future)
            return futures

    batch = max(1, trials // 2)
    started = time.monotonic()
    preload_tensor_intrinsics()
    database = ms.tune_tir(
        mod,
        target,
        str(folder),
        max_trials_global=trials,
        num_trials_per_iter=batch,
        builder=local_builder(),
        runner=TimedRunner(),
        cost_model=ms.cost_model.XGBModel(num_warmup_samples=batch),
        seed=seed + 1,
    )
    total_s = time.monotonic() - started
    return TuningRun(latencies, seconds, total_s, _winner(database, mod, target))


def _median(costs: Any) -> float:
    ordered = sorted(float(cost) for cost in costs)
    return ordered[len(ordered) // 2]


def _winner(database: Any, mod: Any, target: Any) -> str | None:
    import tvm

    found = database.query_ir_module(mod, target, "main")
    return None if found is None else str(tvm.ir.save_json(found))


METHODS: dict[str, Callable[[Any, Any, int, int, Path], TuningRun]] = {
    "ours": run_ours,
    "random": run_random,
    "stock": run_stock,
}


def main() -> None:
    """The child process."""
    options_parser = argparse.ArgumentParser(description="one tuning run; see tune_cpu.py")
    options_parser.add_argument("method", choices=METHODS)
    options_parser.add_argument("operator")
    options_parser.add_argument("trials", type=int)
    options_parser.add_argument("seed", type=int)
    options_parser.add_argument("folder", type=Path)
    options = options_parser.parse_args()

    import xgboost  # noqa: F401  (loaded before the clock runs, for every method alike)
    from cpu_operators import operator_module
    from tvm.target import Target

    from tunerplugin.measure import host_target

    run = METHODS[options.method](
        operator_module(options.operator),
        Target(host_target()),
        options.trials,
        options.seed,
        options.folder,
    )
    (options.folder / RESULT_FILE).write_text(json.dumps(asdict(run)), encoding="utf-8")


if __name__ == "__main__":
    main()
