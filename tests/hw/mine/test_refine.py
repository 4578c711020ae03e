"""Refined schedules, workloads that share a name, and budgets that a message names."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
import pytest

from tunerplugin.errors import BudgetError
from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.mine import DesignSpace, Evaluator, Point, Workload, mine
from tunerplugin.hw.mine.space import upwards

Graphs = dict[str, nx.DiGraph]


def test_refined_results_are_no_worse(graphs: Graphs, reference: Accelerator) -> None:
    evaluator = Evaluator([Workload.of(graph) for graph in graphs.values()])
    listed, refined = evaluator.evaluate(reference), evaluator.refine(reference)
    assert all(a.seconds <= b.seconds for a, b in zip(refined.runs, listed.runs, strict=True))
    assert evaluator.evaluations == 1
    result = mine(list(graphs.values()), reference=reference)
    for made in (result.best, result.reference, *result.front):
        listed = result.evaluator.evaluate(made.design)
        assert made == result.evaluator.refine(made.design)
        assert made.throughput >= listed.throughput
    assert result.best.throughput == max(made.throughput for made in result.front)
    assert result.best == result.evaluator.refine(result.design)


def test_workloads_of_one_name_are_kept_apart(graphs: Graphs, reference: Accelerator) -> None:
    named = [Workload.of(graph, name="same") for graph in graphs.values()]
    others = [Workload.of(graph, name=name) for name, graph in graphs.items()]
    design = DesignSpace(reference).design(Point(64, 64, 4, 512, 2, 1 << 24))
    found = []
    for workloads in (named, others):
        evaluator = Evaluator(workloads)
        evaluator.evaluate(reference)
        evaluator.recalibrate()
        found.append(evaluator.estimate(design))
    same, apart = found
    assert [run.seconds for run in same.runs] == [run.seconds for run in apart.runs]
    assert [run.bound_s for run in same.runs] == [run.bound_s for run in apart.runs]


def test_a_budget_that_is_named_is_enough(graphs: Graphs) -> None:
    """Rounded to the nearest, the figures in the message were too small half of the time."""
    for tech in ("7nm-macro", "7nm-cache", "wham-45nm"):
        for name in ("tpu-v2", "h100", "nvdla-like"):
            options: dict[str, Any] = {"technology": tech, "reference": name}
            with pytest.raises(BudgetError, match="the smallest design") as caught:
                mine(graphs["branches"], area_mm2=1e-3, power_w=1e-3, **options)
            stated = re.search(r"takes (\S+) mm\^2 and (\S+) W in", str(caught.value))
            assert stated is not None
            area_mm2, power_w = map(float, stated.groups())
            mine(graphs["branches"], area_mm2=area_mm2, power_w=power_w, **options)


def test_upwards() -> None:
    assert [upwards(x) for x in (34.222, 34.22, 158.61, 1234.1, 0.89961)] == [
        "34.23",
        "34.22",
        "158.7",
        "1235",
        "0.8997",
    ]
    assert all(float(upwards(x)) >= x for x in (1e-9, 0.1, 1 / 3, 99.999, 99999.1))
