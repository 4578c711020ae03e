"""The Pareto front of designs: least area, least power, most throughput; as CSV and as a plot."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import InputError
from .evaluation import Evaluation

COLUMNS = (
    "design",
    "tensor_cores",
    "tensor_rows",
    "tensor_columns",
    "vector_cores",
    "vector_lanes",
    "shared_buffer_bytes",
    "area_mm2",
    "power_w",
    "throughput_samples_s",
    "throughput_per_watt",
    "energy_delay_js",
)


def pareto_front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Those that no other beats in one of area, power and throughput without losing in another.

    By area; of several that are equal in all three the first is kept.
    """
    order = sorted(evaluations, key=lambda e: (e.area_mm2, e.power_w, -e.throughput))
    front: list[Evaluation] = []
    for candidate in order:
        # all before it have no more area, so one with no more power must have less throughput
        if all(
            other.power_w > candidate.power_w or other.throughput < candidate.throughput
            for other in front
        ):
            front.append(candidate)
    return front


def row(evaluation: Evaluation) -> tuple[str | int | float, ...]:
    """The values of ``COLUMNS``."""
    design = evaluation.design
    return (
        design.name,
        *(getattr(design, name) for name in COLUMNS[1:7]),
        evaluation.area_mm2,
        evaluation.power_w,
        evaluation.throughput,
        evaluation.throughput_per_watt,
        evaluation.energy_delay_js,
    )


def write_csv(path: Path, evaluations: Sequence[Evaluation]) -> None:
    """Write ``COLUMNS``, a line a design.  Raises ``InputError`` where it cannot be written."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(row(evaluation) for evaluation in evaluations)
    except OSError as error:
        raise InputError(f"expected a file that can be written, got {path}: {error}") from error


def write_plot(
    path: Path,
    evaluated: Sequence[Evaluation],
    front: Sequence[Evaluation],
    marked: Sequence[Evaluation] = (),
) -> None:
    """Throughput against area, power as colour, the front as a line, ``marked`` with their names.

    Raises ``InputError`` where matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "expected matplotlib for a plot, which is not installed; run "
            "pip install 'tunerplugin[plot]'"
        ) from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = axes.scatter(
        [e.area_mm2 for e in evaluated],
        [e.throughput for e in evaluated],
        c=[e.power_w for e in evaluated],
        s=18,
        cmap="viridis",
    )
    figure.colorbar(points, label="power (W)")
    line = sorted(front, key=lambda e: e.area_mm2)
    axes.plot([e.area_mm2 for e in line], [e.throughput for e in line], linewidth=0.8, color="0.5")
    for evaluation in marked:
        place = (evaluation.area_mm2, evaluation.throughput)
        axes.annotate(evaluation.design.name, place, fontsize=8)
        axes.plot(*place, marker="*", markersize=11, color="tab:red")
    axes.set_xlabel("area (mm²)")
    axes.set_ylabel("throughput (samples/s)")
    figure.savefig(path, dpi=150)
