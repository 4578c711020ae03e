"""Kernel Tuner's own strategies, replayed on a recording in its simulation mode.

The package is no dependency of ours; without it these rows are left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import random
import signal
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunerplugin.sources.kernel_tuner import Recording

#: takes no budget: it walks the space in order
_UNBOUNDED = "brute_force"
#: for 100 trials, each a look-up
DEADLINE_S = 60.0


def missing_reason() -> str | None:
    """Why the strategies cannot run here; ``None`` when they can."""
    if importlib.util.find_spec("kernel_tuner") is None:
        return "the package kernel_tuner is not installed (pip install kernel_tuner)"
    return None


def strategy_names() -> list[str]:
    """Every strategy that the installed package knows."""
    interface = importlib.import_module("kernel_tuner.interface")
    return list(interface.strategy_map)


class Simulation:
    """One recording as a cache file of Kernel Tuner's, and the strategies on it."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording = recording
        self._path = folder / "cache.json"
        names = recording.names
        entries = {
            ",".join(map(str, values)): dict(zip(names, values, strict=True)) | _result(outcome)
            for values, outcome in recording.outcomes.items()
        }
        content = {
            "device_name": recording.device,
            "kernel_name": recording.kernel,
            "problem_size": list(recording.problem_size),
            "tune_params_keys": list(names),
            "tune_params": dict(zip(names, map(list, recording.domains), strict=True)),
            "cache": entries,
        }
        self._path.write_text(json.dumps(content), encoding="utf-8")

    def run(self, strategy: str, trials: int, seed: int) -> list[float]:
        """The quality of each distinct configuration in the order in which it was tried.

        The legal set is that of the recording, failures included, as it is for every method.
        Raises whatever the strategy raises, and ``TimeoutError`` when it does not come back: some
        never do once they have tried all that they can reach.
        """
        kernel_tuner = importlib.import_module("kernel_tuner")
        constraint = importlib.import_module("constraint")
        recording = self._recording
        legal = frozenset(recording.outcomes)
        options = {} if strategy == _UNBOUNDED else {"max_fevals": trials}
        random.seed(seed)  # the strategies draw from the global generators
        np.random.seed(seed)
        with _silent(), _deadline(DEADLINE_S):
            results, _ = kernel_tuner.tune_kernel(
                recording.kernel,
                "",
                tuple(recording.problem_size),
                [],
                dict(zip(recording.names, map(list, recording.domains), strict=True)),
                restrictions=[constraint.FunctionConstraint(lambda *values: values in legal)],
                cache=str(self._path),
                simulation_mode=True,
                strategy=strategy,
                strategy_options=options,
                quiet=True,
            )
        return _qualities(recording, results)[:trials]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise ``TimeoutError`` within the block after that long (in the main thread)."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _qualities(recording: Recording, results: Sequence[dict[str, Any]]) -> list[float]:
    tried = dict.fromkeys(tuple(r[name] for name in recording.names) for r in results)
    return [recording.quality(values) for values in tried]


def _result(outcome: Any) -> dict[str, Any]:
    if outcome.ok:
        milliseconds = outcome.latency_s * 1e3
        return {"time": milliseconds, "times": [milliseconds]} | dict.fromkeys(
            ("compile_time", "verification_time", "benchmark_time"), 0.0
        )
    kinds = {"illegal": "InvalidConfig", "compile_error": "CompilationFailedConfig"}
    return {"time": kinds.get(outcome.status.value, "RuntimeFailedConfig")}
