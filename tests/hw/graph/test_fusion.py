"""The fusion pass: cases by hand, and what holds for every graph."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tests.hw.graph.test_operator import DENSE, RELU, chain
from tests.hw.graph.test_torch_graph import cnn, mlp, train
from tunerplugin.hw.graph import (
    Core,
    Gemm,
    Kind,
    Operator,
    Phase,
    check,
    from_torch,
    fuse,
    operators,
)


def totals(graph: nx.DiGraph) -> tuple[int, int]:
    ops = list(operators(graph))
    return sum(op.total_flops for op in ops), sum(op.total_bytes for op in ops)


def test_dense_and_relu_become_one() -> None:
    graph = chain(DENSE, RELU)
    fused = fuse(graph)
    (op,) = operators(fused)
    assert op.name == "dense" and op.fused == (RELU,)
    assert op.cores == {Core.TENSOR, Core.VECTOR}
    # Input and weight in, relu's result out; the product itself never leaves the chip.
    assert (op.read_bytes, op.weight_bytes, op.written_bytes) == (256, 512, 128)
    assert len(graph) == 2  # unchanged


def test_a_second_reader_of_the_same_phase_prevents_fusion() -> None:
    graph = chain(DENSE, RELU)
    graph.add_node("other", op=Operator(**fields(RELU, name="other")))
    graph.add_edge("dense", "other", bytes=128)
    assert len(fuse(graph)) == 3


def test_a_later_phase_may_read_what_is_fused() -> None:
    graph = chain(DENSE, RELU)
    graph.add_node("mask", op=Operator(**fields(RELU, name="mask", phase=Phase.BACKWARD_DATA)))
    graph.add_edge("dense", "mask", bytes=128)
    fused = fuse(graph)
    assert set(fused) == {"dense", "mask"}
    # Both results reach memory, but relu does not read the product back.
    op = fused.nodes["dense"]["op"]
    assert (op.read_bytes, op.written_bytes) == (256, 256)
    assert fused.edges["dense", "mask"]["bytes"] == 128


def test_reductions_end_chains_and_products_take_none() -> None:
    total = Operator(
        **fields(RELU, name="sum", kind=Kind.REDUCTION, function="batch_sum", outputs=((4,),))
    )
    assert set(fuse(chain(DENSE, RELU, total))) == {"dense", "sum"}
    one = Operator(**fields(RELU, name="one"))
    after = Operator(**fields(RELU, name="after", inputs=((4,),), outputs=((4,),), elements=4))
    assert set(fuse(chain(one, RELU, total, after))) == {"one", "after"}
    # A softmax needs whole rows, so what follows may still use them.
    softmax = Operator(**fields(RELU, name="softmax", kind=Kind.SOFTMAX, function="softmax"))
    assert set(fuse(chain(softmax, RELU))) == {"softmax"}


def test_a_larger_space_is_not_joined() -> None:
    wide = Operator(**fields(RELU, name="wide", inputs=((4, 8), (9, 4, 8)), outputs=((9, 4, 8),)))
    assert len(fuse(chain(RELU, wide))) == 2


def test_copies_ride_and_the_head_computes() -> None:
    copy = Operator(**fields(RELU, name="copy", kind=Kind.COPY, function="move"))
    (op,) = operators(fuse(chain(copy, RELU)))
    assert op.name == "relu" and [member.name for member in op.fused] == ["copy"]
    assert (op.read_bytes, op.written_bytes) == (128, 128)


def test_an_update_is_one_operator() -> None:
    graph = fuse(train(mlp(), torch.zeros(4, 16), optimizer="adam"))
    updates = list(operators(graph, Phase.OPTIMIZER))
    assert len(updates) == 4  # two weights, two biases
    for op, count in zip(updates, (16 * 32, 32, 32 * 10, 10), strict=True):
        # Reads gradient, parameter and two moments, writes parameter and moments.
        assert (op.read_bytes, op.weight_bytes, op.written_bytes) == (
            4 * count,
            12 * count,
            12 * count,
        )


def test_training_steps_keep_flops_and_save_bytes() -> None:
    for module, x in ((mlp(), torch.zeros(4, 16)), (cnn(), torch.zeros(4, 3, 16, 16))):
        graph = train(module, x, optimizer="momentum")
        fused = fuse(graph)
        check(fused)
        assert totals(fused)[0] == totals(graph)[0]
        assert totals(fused)[1] < totals(graph)[1]
        assert len(fused) < len(graph)
        assert fused.graph == graph.graph
        phases = {op.name: op.phase for op in operators(graph)}
        for op in operators(fused):
            assert {phases[member.name] for member in op.fused} <= {op.phase}


def test_inference_chain_of_a_convolution() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.norm(self.conv(x))) + 1

    graph = fuse(from_torch(Net(), (torch.zeros(1, 3, 8, 8),), training=False))
    (op,) = operators(graph)
    assert [member.function for member in op.fused] == ["norm_inference", "alu", "alu"]
    assert op.gemm == Gemm(1, 64, 4, 27)


def fields(op: Operator, **changes: object) -> dict[str, object]:
    names = "name kind phase dtype inputs outputs elements function read_bytes written_bytes"
    return {name: getattr(op, name) for name in names.split()} | changes


KINDS = (
    {"kind": Kind.ELEMENTWISE},
    {"kind": Kind.COPY, "function": "move"},
    {"kind": Kind.SOFTMAX, "function": "softmax"},
    {"kind": Kind.REDUCTION, "function": "batch_sum"},
    None,  # a product
)


@st.composite
def graphs(draw: st.DrawFn) -> nx.DiGraph:
    """Random operators in execution order: phases never decrease, edges go forward."""
    count = draw(st.integers(1, 14))
    order = list(Phase)
    # Recomputation depends on no loss: keep it out here.
    order.remove(Phase.RECOMPUTE)
    phases = sorted(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    graph = nx.DiGraph()
    for index in range(count):
        change = draw(st.sampled_from(KINDS))
        sources = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        phase = order[phases[index]]
        extra = draw(st.integers(0, 64))
        read = extra + 128 * len(sources)
        if change is None:
            op = Operator(
                str(index), Kind.GEMM, phase, "float32", ((4, 8), (8, 8)), ((4, 8),),
                gemm=Gemm(1, 4, 8, 8), read_bytes=read, weight_bytes=256, written_bytes=128,
            )  # fmt: skip
        else:
            made = {"name": str(index), "phase": phase, "read_bytes": read} | change
            op = Operator(**fields(RELU, **made))
        graph.add_node(op.name, op=op)
        for source in sorted(sources):
            graph.add_edge(str(source), op.name, bytes=128)
    return graph


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_every_graph_keeps_its_work(graph: nx.DiGraph) -> None:
    fused = fuse(graph)
    check(fused)  # no cycle
    members = [m.name for op in operators(fused) for m in (op, *op.fused)]
    assert sorted(members) == sorted(graph)
    assert totals(fused)[0] == totals(graph)[0]
    assert totals(fused)[1] <= totals(graph)[1]
    position = {node: index for index, node in enumerate(fused)}
    assert all(position[a] < position[b] for a, b in fused.edges)
    # Dependences stay: whatever had to wait for an operator still does.
    home = {m.name: op.name for op in operators(fused) for m in (op, *op.fused)}
    for source, sink in graph.edges:
        assert home[source] == home[sink] or fused.has_edge(home[source], home[sink])
    again = fuse(fused)
    assert dict(again.nodes(data="op")) == dict(fused.nodes(data="op"))


def test_a_long_chain_is_one_group() -> None:
    ops = [Operator(**fields(RELU, name=str(index))) for index in range(50)]
    (op,) = operators(fuse(chain(*ops)))
    assert len(op.fused) == 49
    assert all(int(a.name) < int(b.name) for a, b in pairwise(op.fused))
