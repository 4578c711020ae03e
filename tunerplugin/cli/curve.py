"""Tuning curves out of a record store: best latency against trials and against seconds."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..records import Record, RecordStore, TaskKey

UNTUNED = "untuned"
# Methods whose records are no step of a search: the start, and the comparison at the end.
NO_SEARCH = (UNTUNED, "final")
COLUMNS = ("method", "trial", "seconds", "best_s")


@dataclass(frozen=True)
class Point:
    """After ``trial`` measurements of ``method``, in tuning-loop seconds, the weighted sum over
    tasks of the best latency so far, in seconds."""

    method: str
    trial: int
    seconds: float
    best_s: float


@dataclass(frozen=True)
class Curves:
    """The curves of one machine, target and compiler.

    ``weights`` tells how often each workload occurs, ``untuned_s`` is where every curve starts,
    ``left_out`` counts records of others (another target, device, compiler or space version, or a
    task whose untuned schedule could not be measured).
    """

    points: tuple[Point, ...]
    untuned_s: float
    weights: Mapping[TaskKey, float]
    left_out: int

    def methods(self) -> list[str]:
        """Methods that measured something, ours first."""
        return sorted({point.method for point in self.points}, key=lambda m: (m != "ours", m))

    def of(self, method: str) -> list[Point]:
        """The points of one method in order."""
        return [point for point in self.points if point.method == method]


def curves(store: RecordStore) -> Curves:
    """Compute the curves of the machine and target that has most records.

    Raises ``InputError`` when no task has an untuned latency to start from.
    """
    tasks = store.tasks()
    counts: Counter[tuple[str, ...]] = Counter()
    for key, count in tasks.items():
        counts[_machine(key)] += count
    if not counts:
        raise InputError("expected records to report on, got none; run tunerplugin tune first")
    machine = counts.most_common(1)[0][0]
    chosen: dict[str, TaskKey] = {}
    for key, _ in sorted(tasks.items(), key=lambda item: item[1]):
        if _machine(key) == machine:
            chosen[key.workload] = key  # of several space versions the one with most records
    start: dict[TaskKey, float] = {}
    for record in store.records(method=UNTUNED):
        latency_s = record.outcome.latency_s
        if latency_s is not None and chosen.get(record.key.workload) == record.key:
            start[record.key] = latency_s
    if not start:
        raise InputError(
            "expected a measured untuned schedule of some task, got none; "
            "run tunerplugin tune on this work directory again"
        )
    weights = _weights(store, list(start))
    points: list[Point] = []
    methods = dict.fromkeys(record.method for record in store.records())
    for method in methods:
        if method not in NO_SEARCH:
            records = [r for r in store.records(method=method) if r.key in start]
            points += _points(method, records, start, weights)
    untuned_s = sum(weights[key] * latency_s for key, latency_s in start.items())
    left_out = sum(count for key, count in tasks.items() if key not in start)
    return Curves(tuple(points), untuned_s, weights, left_out)


def _machine(key: TaskKey) -> tuple[str, ...]:
    return key.target, key.device, key.compiler


def _weights(store: RecordStore, keys: Sequence[TaskKey]) -> dict[TaskKey, float]:
    """How often each workload occurs, as the last run that knew it noted; 1 where none did."""
    known: dict[str, float] = {}
    for run in store.runs():
        known |= json.loads(run.info.get("weights", "{}"))
    return {key: float(known.get(key.workload, 1.0)) for key in keys}


def _points(
    method: str,
    records: Sequence[Record],
    start: Mapping[TaskKey, float],
    weights: Mapping[TaskKey, float],
) -> list[Point]:
    best = dict(start)
    points: list[Point] = []
    offset_s = last_s = 0.0
    for number, record in enumerate(records, 1):
        if record.elapsed_s < last_s:  # another tuning loop with a clock of its own
            offset_s += last_s
        last_s = record.elapsed_s
        latency_s = record.outcome.latency_s
        if latency_s is not None:
            best[record.key] = min(best[record.key], latency_s)
        total_s = sum(weights[key] * value for key, value in best.items())
        points.append(Point(method, number, offset_s + last_s, total_s))
    return points


def write_csv(path: Path, result: Curves) -> None:
    """Write every point, the untuned start of each method as trial 0 included."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for method in result.methods():
            writer.writerow((method, 0, 0.0, result.untuned_s))
            for point in result.of(method):
                writer.writerow((method, point.trial, point.seconds, point.best_s))


def write_png(path: Path, result: Curves) -> None:
    """Draw both curves side by side.

    Raises ``InputError`` without matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "expected matplotlib to draw the curve, got none; "
            "run: pip install 'tunerplugin[plot]' (the CSV is written)"
        ) from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(1, 2, sharey=True)
    for axis, label in zip(axes, ("measurements", "tuning time [s]"), strict=True):
        for method in result.methods():
            points = result.of(method)
            seconds = label != "measurements"
            x = [0.0, *(point.seconds if seconds else point.trial for point in points)]
            y = [result.untuned_s * 1e3, *(point.best_s * 1e3 for point in points)]
            axis.step(x, y, where="post", label=method)
        axis.axhline(result.untuned_s * 1e3, color="grey", linestyle=":", label=UNTUNED)
        axis.set_xlabel(label)
        axis.set_yscale("log")
        axis.grid(True, which="both", alpha=0.3)
    axes[0].set_ylabel("best latency, all tasks [ms]")
    axes[1].legend()
    figure.savefig(path, dpi=120)
