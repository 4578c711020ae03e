"""Mining: exact cost tables, the heuristic against all designs, budgets, metrics, fronts."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from tunerplugin.errors import BudgetError, GraphError, InputError, SpaceError
from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.datasheet import load
from tunerplugin.hw.estimate.design import area, power
from tunerplugin.hw.estimate.estimator import Estimator
from tunerplugin.hw.estimate.technology import technology
from tunerplugin.hw.mine import (
    Budget,
    DesignSpace,
    Evaluation,
    Evaluator,
    Metric,
    Point,
    Search,
    Workload,
    mine,
    pareto_front,
    scaled,
    write_csv,
    write_plot,
)
from tunerplugin.hw.mine.space import core_counts, powers_of_two, upwards
from tunerplugin.hw.mine.workload import CostModel
from tunerplugin.hw.schedule import Resource
from tunerplugin.hw.target import chip

Graphs = dict[str, nx.DiGraph]


def all_scored(
    space: DesignSpace, evaluator: Evaluator, budget: Budget, metric: Metric, floor: float
) -> dict[Point, float]:
    found = {}
    for point in space.points():
        design = space.design(point)
        if budget.allows(*evaluator.area_and_power(design)):
            found[point] = evaluator.evaluate(design).score(metric, floor)
    return found


@pytest.mark.parametrize("name", ["chain", "branches", "skewed"])
@pytest.mark.parametrize("metric", Metric)
def test_within_a_percent_of_all_designs(
    graphs: Graphs, name: str, metric: Metric, space: DesignSpace
) -> None:
    workload = Workload.of(graphs[name], name=name)
    evaluator = Evaluator([workload])
    budget = Budget(90.0, 60.0)
    floor = 0.0
    if metric == Metric.THROUGHPUT_PER_WATT:
        floor = evaluator.evaluate(space.design(Point(32, 64, 4, 512, 1, 1 << 20))).throughput
    scores = all_scored(space, evaluator, budget, metric, floor)
    assert 100 < len(scores) < len(space)
    search = Search(space, Evaluator([workload]), budget, metric, floor)
    best = search.run()
    assert scores[best] >= 0.99 * max(scores.values())
    assert len(search.scheduled) < len(scores) / 2


def test_the_same_search_twice_is_the_same(graphs: Graphs, space: DesignSpace) -> None:
    runs = [mine(graphs["skewed"], area_mm2=90.0, power_w=60.0, space=space) for _ in range(2)]
    assert runs[0].best == runs[1].best
    assert runs[0].steps == runs[1].steps
    assert runs[0].front == runs[1].front


@pytest.mark.parametrize(
    "design", ["tpu-v2", "tpu-v4", "nvdla-like", Point(32, 64, 7, 128, 5, 1 << 22)]
)
def test_cost_tables_are_the_estimators(
    graphs: Graphs, design: str | Point, reference: Accelerator
) -> None:
    made = chip(design) if isinstance(design, str) else DesignSpace(reference).design(design)
    for graph in (graphs["chain"], graphs["skewed"]):
        workload = Workload.of(graph)
        tech = technology("7nm-macro")
        table = CostModel(workload, tech, "pipelined").table(made)
        costs = Estimator(made, tech).costs(workload.operators, table.cores)
        assert np.array_equal(table.cycles, costs.cycles)
        assert np.array_equal(table.parts, costs.parts)
        np.testing.assert_allclose(table.energy_j, costs.energy_j, rtol=1e-9)
        products = [i for i, op in enumerate(workload.operators) if op.gemm]
        assert np.array_equal(table.tensor[products], costs.splits[products].prod(axis=2))
        assert table.tensor.max() <= made.tensor_cores
        assert table.vector.max() <= made.vector_cores


def test_an_evaluation_adds_up(graphs: Graphs, reference: Accelerator) -> None:
    evaluator = Evaluator([Workload.of(graphs["chain"])])
    found = evaluator.refine(reference)
    (run,) = found.runs
    (schedule,) = evaluator.schedules(reference)
    assert run.seconds == schedule.makespan / reference.frequency_hz
    assert run.bound_s <= run.seconds
    assert run.throughput == pytest.approx(4 / run.seconds)
    assert found.throughput == pytest.approx(run.throughput)
    assert found.energy_delay_js == pytest.approx(run.energy_j * run.seconds)
    assert found.area_mm2 == area(reference, evaluator.technology).total_mm2
    assert found.power_w == power(reference, evaluator.technology).total_w
    assert sum(run.limits) == pytest.approx(1)
    # the mean power cannot be more than the sustained maximum, nor less than the static part
    assert power(reference, evaluator.technology).static_w <= run.energy_j / run.seconds
    assert run.energy_j / run.seconds <= found.power_w
    for resource in Resource:
        assert run.utilisation[resource] == pytest.approx(schedule.utilisation(resource))


def test_a_chain_of_large_products_is_split_over_all_cores(
    graphs: Graphs, reference: Accelerator
) -> None:
    evaluator = Evaluator([Workload.of(graphs["chain"])])
    space = DesignSpace(reference)
    times = [
        evaluator.evaluate(space.design(Point(64, 64, n, 2048, 1, 1 << 24))).runs[0].seconds
        for n in (1, 16)
    ]
    # only two products, one after the other: all that 16 cores can do is to share each of them
    assert 12 * times[1] < times[0] <= 16.5 * times[1]


def test_the_reference_is_never_better(graphs: Graphs, reference: Accelerator) -> None:
    for graph in (graphs["chain"], graphs["branches"]):
        result = mine(graph, reference=reference)
        assert result.budget == Budget.of(reference, technology("7nm-macro"))
        assert result.speedup >= 1
        assert result.best.area_mm2 <= result.reference.area_mm2 * (1 + 1e-9)
        assert result.best.power_w <= result.reference.power_w * (1 + 1e-9)
        assert result.design.memory_bytes_s == reference.memory_bytes_s


def test_a_model_that_the_memory_cannot_hold_is_warned_about(
    graphs: Graphs, space: DesignSpace, caplog: pytest.LogCaptureFixture
) -> None:
    mine(graphs["chain"], area_mm2=90.0, power_w=60.0, space=space)
    assert not caplog.records
    graphs["chain"].graph |= {"parameter_bytes": 16 << 30, "state_bytes": 1}
    mine(graphs["chain"], area_mm2=90.0, power_w=60.0, space=space)
    (record,) = caplog.records
    assert "take 17.2 GB, the memory of tpu-v2 holds 17.2 GB" in record.getMessage()


def test_a_common_design_serves_several(graphs: Graphs, space: DesignSpace) -> None:
    budget = {"area_mm2": 90.0, "power_w": 60.0}
    one, other = Workload.of(graphs["chain"], name="a"), Workload.of(graphs["skewed"], name="b")
    common = mine([one, other], space=space, **budget)
    assert [run.workload for run in common.best.runs] == ["a", "b"]
    product = math.prod(run.throughput for run in common.best.runs)
    assert common.best.throughput == pytest.approx(product**0.5)
    alone = mine(one, space=space, **budget)
    assert common.best.runs[0].throughput <= alone.best.throughput * 1.01
    # with all the weight on one, the design is that one's
    heavy = mine([replace(one, weight=1e6), other], space=space, **budget)
    assert heavy.best.runs[0].throughput >= alone.best.throughput * 0.99


def test_impossible_budgets_say_the_smallest(graphs: Graphs, space: DesignSpace) -> None:
    smallest = space.design(space.smallest)
    tech = technology("7nm-macro")
    size, watts = area(smallest, tech).total_mm2, power(smallest, tech).total_w
    with pytest.raises(BudgetError, match=f"takes {upwards(size)} mm.2 and {upwards(watts)} W"):
        mine(graphs["chain"], area_mm2=5.0, power_w=300.0, space=space)
    with pytest.raises(BudgetError, match="got 600 mm.2 and 1 W"):
        mine(graphs["chain"], area_mm2=600.0, power_w=1.0, space=space)
    only = mine(graphs["chain"], area_mm2=size, power_w=watts, space=space)
    assert only.point == space.smallest
    with pytest.raises(BudgetError, match="the best found reaches"):
        mine(graphs["chain"], area_mm2=90.0, power_w=60.0, space=space, floor=1e9)


def test_bad_arguments_are_refused(
    graphs: Graphs, space: DesignSpace, reference: Accelerator
) -> None:
    with pytest.raises(InputError, match="area_mm2: expected a budget above 0, got -1"):
        mine(graphs["chain"], area_mm2=-1)
    with pytest.raises(InputError, match="power_w: expected a budget above 0, got nan"):
        mine(graphs["chain"], power_w=math.nan)
    with pytest.raises(InputError, match="expected a metric of throughput, "):
        mine(graphs["chain"], metric="speed")
    with pytest.raises(InputError, match="at least one workload"):
        mine([])
    with pytest.raises(GraphError, match="without operators"):
        mine(nx.DiGraph())
    with pytest.raises(InputError, match="weight above 0"):
        Workload.of(graphs["chain"], weight=0)
    with pytest.raises(SpaceError, match="tensor_rows: expected ascending"):
        DesignSpace(reference, tensor_rows=(64, 32))
    cyclic = graphs["chain"]
    cyclic.add_edge("out", "up", bytes=1)
    with pytest.raises(GraphError, match="cycle"):
        mine(cyclic)


def test_the_space_holds_the_reference(reference: Accelerator) -> None:
    space = DesignSpace(reference)
    point = space.nearest(reference)
    assert point == Point(128, 128, 2, 1024, 2, 32 << 20)
    unknown = {"tdp_w": None, "area_mm2": None, "process_nm": None}
    assert space.design(point, "tpu-v2") == replace(reference, **unknown)
    assert point in space and replace(point, tensor_rows=100) not in space
    assert len(space) == sum(1 for _ in replace(space, tensor_cores=(1,)).points()) * len(
        space.tensor_cores
    )
    assert powers_of_two(3, 24) == (3, 6, 12, 24)
    assert core_counts(41) == (*range(1, 17), 18, 20, 22, 24, 26, 28, 30, 32, 36, 40)


def point_of(area_mm2: float, power_w: float, throughput: float) -> Evaluation:
    return Evaluation(
        chip("tpu-v2"), "none", area_mm2, power_w, throughput, 1.0, runs=(), scheduled=True
    )


def test_pareto_front_by_hand() -> None:
    small, cool, fast = point_of(1, 9, 1), point_of(5, 1, 2), point_of(9, 9, 9)
    beaten = [point_of(9, 9, 8), point_of(5, 2, 2), point_of(6, 1, 2), point_of(1, 9, 1)]
    assert pareto_front([fast, *beaten, cool, small]) == [small, cool, fast]
    assert pareto_front([]) == []


def test_pareto_front_of_a_search(graphs: Graphs, space: DesignSpace) -> None:
    result = mine(graphs["skewed"], area_mm2=90.0, power_w=60.0, space=space)
    front = result.front
    for one in front:
        for other in result.evaluated:
            no_worse = (
                other.area_mm2 <= one.area_mm2
                and other.power_w <= one.power_w
                and other.throughput >= one.throughput
            )
            same = (other.area_mm2, other.power_w, other.throughput) == (
                one.area_mm2,
                one.power_w,
                one.throughput,
            )
            assert not no_worse or same
    assert max(found.throughput for found in front) == result.best.throughput
    assert len(front) > 3


def test_designs_are_saved_and_registered(
    graphs: Graphs, space: DesignSpace, tmp_path: Path
) -> None:
    from tvm.target import Target

    result = mine(graphs["branches"], area_mm2=90.0, power_w=60.0, space=space, name="mined-here")
    read = load(result.save(tmp_path / "mined.toml"))
    assert read == replace(result.design, area_mm2=result.best.area_mm2, tdp_w=result.best.power_w)
    result.register(override=True)
    assert Accelerator.from_target(Target("tunerplugin/mined-here")) == result.design
    write_csv(tmp_path / "front.csv", result.front)
    with (tmp_path / "front.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["area_mm2"]) for line in lines] == [e.area_mm2 for e in result.front]
    pytest.importorskip("matplotlib")
    write_plot(tmp_path / "front.png", result.evaluated, result.front, [result.best])
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_every_step_has_a_reason(graphs: Graphs, space: DesignSpace) -> None:
    result = mine(graphs["chain"], area_mm2=90.0, power_w=60.0, space=space)
    assert {"start", "size", "grow", "schedule"} <= {step.action for step in result.steps}
    for step in result.steps:
        assert step.reason and "\n" not in step.reason and step.value > 0
        assert step.point in space


def test_certified_gap(graphs: Graphs, space: DesignSpace) -> None:
    pytest.importorskip("ortools")
    result = mine(graphs["branches"], area_mm2=90.0, power_w=60.0, space=space)
    (exact,) = result.certify(10.0)
    (run,) = result.best.runs
    assert exact.schedule.makespan / result.design.frequency_hz <= run.seconds
    assert exact.bound / result.design.frequency_hz >= run.bound_s * (1 - 1e-9)
    assert exact.gap >= 0


def test_scaled_chips_fill_the_budget(reference: Accelerator) -> None:
    tech = technology("7nm-macro")
    budget = Budget.of(reference, tech)
    made = scaled(chip("nvdla-like"), reference, budget, tech)
    assert budget.allows(area(made, tech).total_mm2, power(made, tech).total_w)
    more = replace(made, tensor_cores=made.tensor_cores + 1, vector_cores=made.vector_cores + 1)
    assert not budget.allows(area(more, tech).total_mm2, power(more, tech).total_w)
    assert made.memory_bytes_s == reference.memory_bytes_s
    assert made.shared_buffer_bytes == made.tensor_cores * chip("nvdla-like").shared_buffer_bytes
    assert made.frequency_hz == reference.frequency_hz
    faster = scaled(chip("nvdla-like"), reference, budget, tech, own_clock=True)
    assert faster.frequency_hz == 1e9 and faster.tensor_cores < made.tensor_cores
    assert scaled(reference, reference, budget, tech).tensor_cores == 2
    with pytest.raises(BudgetError, match="one core of tpu-v2"):
        scaled(reference, reference, Budget(10.0, 10.0), tech)
