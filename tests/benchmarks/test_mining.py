"""The mining benchmark: black boxes that count right, rivals that search, and its arithmetic."""

from __future__ import annotations

import mining
import networkx as nx
import pytest
from mining_rivals import RIVALS, BlackBox, exhaustive, run

from tunerplugin.hw.graph import Gemm, Kind, Operator, Phase
from tunerplugin.hw.mine import Budget, DesignSpace, Evaluator, Point, Workload
from tunerplugin.hw.target import chip


@pytest.fixture
def workload() -> Workload:
    operator = Operator(
        "product",
        Kind.GEMM,
        Phase.FORWARD,
        "bfloat16",
        inputs=((512, 768), (768, 3072)),
        outputs=((512, 3072),),
        gemm=Gemm(1, 512, 3072, 768),
        read_bytes=2 * (512 * 768 + 768 * 3072),
        written_bytes=2 * 512 * 3072,
    )
    graph = nx.DiGraph(name="one", batch=1)
    graph.add_node("product", op=operator)
    return Workload.of(graph)


def box_of(workload: Workload, most: int) -> BlackBox:
    space = DesignSpace(
        chip("tpu-v2"),
        tensor_rows=(32, 64, 128),
        tensor_columns=(32, 64, 128),
        tensor_cores=(1, 2, 4, 8),
        vector_lanes=(128,),
        vector_cores=(1,),
        shared_buffer_bytes=(1 << 20, 1 << 24),
    )
    return BlackBox(space, Evaluator([workload]), Budget(90.0, 60.0), most)


def test_a_black_box_counts_what_it_schedules(workload: Workload) -> None:
    box = box_of(workload, 10)
    small, large = Point(32, 32, 1, 128, 1, 1 << 20), Point(128, 128, 8, 128, 1, 1 << 24)
    assert box(large) is None and box.evaluations == 0
    first = box(small)
    assert first is not None and first > 0
    assert box(small) == first and box.evaluations == 1
    run(exhaustive, box, 0)
    assert box.evaluations == 10
    scores = [score for score in box.known.values() if score is not None]
    assert box.trace[-1][2] == max(scores)
    assert [score for *_, score in box.trace] == sorted(score for *_, score in box.trace)


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_search_and_follow_their_seed(name: str, workload: Workload) -> None:
    if name == "tpe":
        pytest.importorskip("optuna")
    best = run(exhaustive, box_of(workload, 10**6), 0).trace[-1][2]
    found = [run(RIVALS[name], box_of(workload, 34), seed) for seed in (1, 1, 2)]
    assert list(found[0].known) == list(found[1].known) != list(found[2].known)
    for box in found:
        assert box.evaluations == 34
        assert 0.8 * best <= box.trace[-1][2] <= best


def test_costs_are_counted_to_one_percent() -> None:
    traces = {
        "ours": [[(1, 0.5, 50.0), (3, 0.5, 99.5)]],
        "slow": [[(10, 1.0, 60.0), (40, 5.0, 100.0)], [(20, 2.0, 99.0)], [(5, 1.0, 70.0)]],
        "never": [[(1, 0.1, 10.0)]],
    }
    spent = {"ours": [(5, 0.5)], "slow": [(90, 9.0)] * 3, "never": [(200, 8.0)]}
    rows = {(r.method, r.metric, r.unit): r for r in mining._cost_rows("x", traces, spent)}
    ours = rows["ours", "evaluations_to_1%", "designs"]
    assert (ours.value, ours.low, ours.high) == (3, 3, 3)
    slow = rows["slow", "evaluations_to_1%", "designs"]
    assert (slow.value, slow.low, slow.high) == (40, 20, 90)  # the third never got there
    assert rows["never", "evaluations_to_1%", "designs"].value == 200
    assert rows["slow", "best_over_best_known", "ratio"].low == pytest.approx(0.7)
    assert rows["ours", "search_speedup", "x evaluations"].value == pytest.approx(40 / 3)
    assert rows["ours", "search_speedup", "x CPU seconds"].value == pytest.approx(5 / 0.5)


def test_no_speedup_is_claimed_where_ours_did_not_get_there() -> None:
    traces = {"ours": [[(3, 0.5, 98.0)]], "slow": [[(40, 5.0, 100.0)]]}
    rows = mining._cost_rows("x", traces, {"ours": [(5, 0.5)], "slow": [(90, 9.0)]})
    assert "search_speedup" not in {row.metric for row in rows}
    (share,) = (r for r in rows if (r.method, r.metric) == ("ours", "best_over_best_known"))
    assert share.value == pytest.approx(0.98)


def test_the_small_space_holds_neighbours_of_the_reference() -> None:
    reference = chip("tpu-v2")
    space = mining.small_space(reference)
    assert Point(128, 128, 2, 1024, 2, 32 << 20) in space
    assert len(space) < 1000
