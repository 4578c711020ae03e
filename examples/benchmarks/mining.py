"""Mined accelerators against TPUv2 and NVDLA, and the search against black-box searches.

For each workload, a whole training step with Adam: our design within the area and power that TPUv2
has under the technology preset, at its clock, memory and bandwidth, against TPUv2 itself
(``speedup_over_tpuv2``) and as many NVDLA cores as fit the same (``speedup_over_nvdla``; at NVDLA's
own clock of 1 GHz, which ours may not choose, ``speedup_over_nvdla_own_clock``), all estimated by
the same model.  ``seconds`` is the wall-clock time of mining, without the graph.

For the workloads of ``--search``: designs scheduled, and CPU seconds, until a search is within 1%
of the best that any of them found; median and range over seeds.  A search that did not get there
counts with what it spent, so that ``search_speedup`` is then a lower bound: the best rival's median
over ours, with the seconds of our *whole* search.  Where ours did not get there, there is no such
row: ``best_over_best_known`` says what it lacks.  On a space small enough, ``gap_to_exhaustive``
is what ours lacks to the best of all its designs.  ``schedule_gap`` is BERT's schedule on
our design, and on TPUv2, over CP-SAT's certified bound.
"""

from __future__ import annotations

import argparse
import time

import networkx as nx
from harness import Row, Spread, emit, geometric_mean, names, note, parser, positive, spread
from mining_rivals import RIVALS, BlackBox, exhaustive, run

from tunerplugin.errors import InputError
from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.estimate.technology import technologies, technology
from tunerplugin.hw.graph import WHAM_WORKLOADS, fuse, workload
from tunerplugin.hw.mine import (
    Budget,
    DesignSpace,
    Evaluator,
    Point,
    Result,
    Search,
    Workload,
    mine,
    scaled,
)
from tunerplugin.hw.schedule import solve
from tunerplugin.hw.target import chip

#: a search is done when it is this close to the best known
_CLOSE = 0.99


def small_space(reference: Accelerator) -> DesignSpace:
    """A part of the space whose every design can be scheduled."""
    return DesignSpace(
        reference,
        tensor_rows=(32, 64, 128),
        tensor_columns=(32, 64, 128),
        tensor_cores=(1, 2, 4, 8, 16, 32),
        vector_lanes=(256, 1024),
        vector_cores=(1, 2, 4),
        shared_buffer_bytes=(1 << 20, 1 << 23, 1 << 25),
    )


def main() -> None:
    options = _options()
    tech, reference = technology(options.technology), chip("tpu-v2")
    budget = Budget.of(reference, tech)
    rows: list[Row] = []
    speedups: dict[str, list[float]] = {}
    for name in options.workloads:
        made = Workload.of(_graph(name))
        rows += _one(made, options, reference, budget, speedups)
        if name in options.search:
            rows += _search_cost(made, options, reference, budget)
            rows += _gap_to_exhaustive(made, options, reference, budget)
    for metric, values in speedups.items():
        rows.append(_row("geometric mean", "ours", metric, geometric_mean(values), "x"))
    emit(rows, options)


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    known = names(WHAM_WORKLOADS)
    made.add_argument("--workloads", type=known, help="(all eleven; --quick: resnet18, vgg16)")
    made.add_argument("--search", type=known, help="(bert-base, resnet18; --quick: resnet18)")
    made.add_argument("--technology", choices=technologies(), default="7nm-macro")
    made.add_argument("--seeds", type=positive, help="of each rival (3; --quick: 1)")
    made.add_argument("--evaluations", type=positive, help="a rival may make (1000; --quick: 200)")
    made.add_argument("--time-limit", type=positive, help="of CP-SAT, in s (120; --quick: 10)")
    options = made.parse_args()
    quick = options.quick
    defaults = {
        "workloads": ["resnet18", "vgg16"] if quick else list(WHAM_WORKLOADS),
        "search": ["resnet18"] if quick else ["bert-base", "resnet18"],
        "seeds": 1 if quick else 3,
        "evaluations": 200 if quick else 1000,
        "time_limit": 10 if quick else 120,
    }
    for key, value in defaults.items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    return options


def _graph(name: str) -> nx.DiGraph:
    note(f"{name}: graph")
    return fuse(workload(name))


def _row(case: str, method: str, metric: str, value: float | Spread, unit: str) -> Row:
    if not isinstance(value, Spread):
        value = Spread(value, value, value)
    return Row(case, method, metric, *value[:1], unit, *value[1:])


def _one(
    made: Workload,
    options: argparse.Namespace,
    reference: Accelerator,
    budget: Budget,
    speedups: dict[str, list[float]],
) -> list[Row]:
    note(f"{made.name}: mining")
    result = mine(
        made,
        area_mm2=budget.area_mm2,
        power_w=budget.power_w,
        technology=options.technology,
        reference=reference,
    )
    rivals = {"speedup_over_tpuv2": result.reference}
    for metric, own in (("speedup_over_nvdla", False), ("speedup_over_nvdla_own_clock", True)):
        tech = result.evaluator.technology
        nvdla = scaled(chip("nvdla-like"), reference, budget, tech, own_clock=own)
        rivals[metric] = result.evaluator.refine(nvdla)
    note(f"{made.name}: {result.point}, {result.best.throughput:.4g} samples/s")
    rows = []
    for metric, rival in rivals.items():
        ratio = result.best.throughput / rival.throughput
        speedups.setdefault(metric, []).append(ratio)
        rows.append(_row(made.name, "ours", metric, ratio, "x"))
    rows.append(_row(made.name, "ours", "seconds", result.seconds, "s"))
    if made.name == "bert-base":
        rows += _schedule_gaps(made.name, result, options.time_limit)
    return rows


def _schedule_gaps(case: str, result: Result, time_limit_s: float) -> list[Row]:
    """Our schedules over CP-SAT's bounds, on our design and on the reference."""
    rows = []
    for design in (result.design, result.reference.design):
        (made,) = result.evaluator.schedules(design)
        try:
            exact = solve(made.problem, time_limit_s, hint=made)
        except InputError as error:
            note(f"{case}: {error}")
            return []
        on = case if design == result.design else f"{case} on {design.name}"
        rows.append(_row(on, "ours", "schedule_gap", made.makespan / exact.bound - 1, "ratio"))
    return rows


def _search_cost(
    made: Workload, options: argparse.Namespace, reference: Accelerator, budget: Budget
) -> list[Row]:
    space = DesignSpace(reference)
    search, our_seconds = _ours(made, options, space, budget)
    # (evaluations, CPU seconds, score) of every new best
    traces = {"ours": [_trace(search, our_seconds)]}
    spent = {"ours": [(len(search.scheduled), our_seconds)]}
    for method, rival in RIVALS.items():
        for seed in range(options.seed, options.seed + options.seeds):
            note(f"{made.name}: {method}, seed {seed}")
            evaluator = Evaluator([made], options.technology)
            box = BlackBox(space, evaluator, budget, options.evaluations)
            try:
                run(rival, box, seed)
            except InputError as error:
                note(f"{method}: {error}")
                break
            traces.setdefault(method, []).append(box.trace)
            used = time.process_time() - box.began
            spent.setdefault(method, []).append((box.evaluations, used))
    return _cost_rows(made.name, traces, spent)


def _cost_rows(
    case: str,
    traces: dict[str, list[list[tuple[int, float, float]]]],
    spent: dict[str, list[tuple[int, float]]],
) -> list[Row]:
    best = max(score for runs in traces.values() for trace in runs for *_, score in trace)
    rows, medians = [], {}
    for method, runs in traces.items():
        costs = [
            next(((n, s) for n, s, score in trace if score >= _CLOSE * best), used)
            for trace, used in zip(runs, spent[method], strict=True)
        ]
        evaluations, seconds = (spread([float(cost[i]) for cost in costs]) for i in range(2))
        medians[method] = evaluations.value, seconds.value
        share = spread([trace[-1][2] / best for trace in runs])
        rows.append(_row(case, method, "evaluations_to_1%", evaluations, "designs"))
        rows.append(_row(case, method, "cpu_seconds_to_1%", seconds, "s"))
        rows.append(_row(case, method, "best_over_best_known", share, "ratio"))
    if max(score for trace in traces["ours"] for *_, score in trace) < _CLOSE * best:
        note(f"{case}: ours is not within 1% of the best known, so there is no search_speedup")
        return rows
    for i, unit in enumerate(("x evaluations", "x CPU seconds")):
        rival = min((medians[m][i] for m in medians if m != "ours"), default=float("nan"))
        rows.append(_row(case, "ours", "search_speedup", rival / medians["ours"][i], unit))
    return rows


def _ours(
    made: Workload, options: argparse.Namespace, space: DesignSpace, budget: Budget
) -> tuple[Search, float]:
    began = time.process_time()
    search = Search(space, Evaluator([made], options.technology), budget)
    search.run()
    return search, time.process_time() - began


def _trace(search: Search, seconds: float) -> list[tuple[int, float, float]]:
    """New bests in the order of scheduling, all at the seconds of the whole search."""
    trace: list[tuple[int, float, float]] = []
    for count, found in enumerate(search.scheduled.values(), 1):
        if not trace or found.throughput > trace[-1][2]:
            trace.append((count, seconds, found.throughput))
    return trace


def _gap_to_exhaustive(
    made: Workload, options: argparse.Namespace, reference: Accelerator, budget: Budget
) -> list[Row]:
    space = small_space(reference)
    note(f"{made.name}: all {len(space)} designs of the small space")
    search, seconds = _ours(made, options, space, budget)
    ours = max(found.throughput for found in search.scheduled.values())
    box = BlackBox(space, Evaluator([made], options.technology), budget, len(space))
    run(exhaustive, box, 0)
    scored: dict[Point, float] = {p: s for p, s in box.known.items() if s is not None}
    case = f"{made.name}, {len(scored)} designs"
    used = time.process_time() - box.began
    return [
        _row(case, "ours", "gap_to_exhaustive", 1 - ours / max(scored.values()), "ratio"),
        _row(case, "ours", "cpu_seconds", seconds, "s"),
        _row(case, "exhaustive", "cpu_seconds", used, "s"),
    ]


if __name__ == "__main__":
    main()
