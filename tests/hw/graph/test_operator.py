"""Operators and graphs as values: sizes, signatures, and the sentence for what is no graph."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import networkx as nx
import pytest

from tunerplugin.errors import GraphError
from tunerplugin.hw.graph import (
    Core,
    Gemm,
    Kind,
    Operator,
    Phase,
    check,
    count_kinds,
    gemm_flops,
    representatives,
    signatures,
)
from tunerplugin.hw.graph.functions import FUNCTIONS, Primitive, flops_per_element
from tunerplugin.hw.graph.matrix import (
    contraction,
    convolution,
    data_gradient,
    product,
    weight_gradient,
)

RELU = Operator(
    "relu",
    Kind.ELEMENTWISE,
    Phase.FORWARD,
    "float32",
    ((4, 8),),
    ((4, 8),),
    elements=32,
    function="alu",
    read_bytes=128,
    written_bytes=128,
)
DENSE = Operator(
    "dense",
    Kind.GEMM,
    Phase.FORWARD,
    "float32",
    ((4, 16), (16, 8)),
    ((4, 8),),
    gemm=Gemm(1, 4, 8, 16),
    read_bytes=256,
    weight_bytes=512,
    written_bytes=128,
)


def chain(*ops: Operator) -> nx.DiGraph:
    graph = nx.DiGraph()
    for op in ops:
        graph.add_node(op.name, op=op)
    for before, after in zip(ops, ops[1:], strict=False):
        graph.add_edge(before.name, after.name, bytes=before.written_bytes)
    return graph


def test_work_of_operators() -> None:
    assert DENSE.core == Core.TENSOR and RELU.core == Core.VECTOR
    assert DENSE.flops == 2 * 4 * 8 * 16 == DENSE.total_flops
    assert DENSE.total_bytes == 896
    assert DENSE.arithmetic_intensity == pytest.approx(1024 / 896)
    group = replace(DENSE, fused=(RELU,))
    assert group.cores == {Core.TENSOR, Core.VECTOR}
    assert group.flops == 1024 and group.total_flops == 1024 + 32
    assert list(group.vector_work) == [("alu", 32)]
    copy = replace(RELU, kind=Kind.COPY, function="move")
    assert copy.core == Core.NONE and copy.cores == frozenset() and copy.flops == 0


def test_functions_count_primitives() -> None:
    assert flops_per_element("move") == 0
    assert flops_per_element("sigmoid") == 3  # exponential, add, divide
    assert FUNCTIONS["gelu"][Primitive.ERF] == 1


def test_signature_ignores_name_layer_and_phase() -> None:
    again = replace(RELU, name="other", layer="7", phase=Phase.RECOMPUTE)
    graph = chain(RELU, DENSE, again, replace(RELU, name="long", elements=33))
    assert list(signatures(graph).values()) == [0, 1, 0, 2]
    assert [op.name for op in representatives(graph)] == ["relu", "dense", "long"]
    assert gemm_flops(graph) == 1024
    assert count_kinds(graph) == {Kind.ELEMENTWISE: 3, Kind.GEMM: 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gemm": None}, "expected GEMM sizes for gemm and conv only"),
        ({"kind": Kind.POOLING}, "expected GEMM sizes for gemm and conv only"),
        ({"dtype": "float33"}, "expected one of"),
        ({"read_bytes": -1}, "expected bytes of 0 or more"),
        ({"fused": (DENSE,)}, "expected plain vector operators and copies"),
    ],
)
def test_operators_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        replace(DENSE, **change)  # type: ignore[arg-type]


def test_unknown_function_and_size() -> None:
    with pytest.raises(GraphError, match="expected elements and one of"):
        replace(RELU, function="magic")
    with pytest.raises(GraphError, match="expected GEMM sizes of at least 1"):
        Gemm(1, 0, 2, 3)


def test_check_says_what_is_wrong() -> None:
    with pytest.raises(GraphError, match="got one without operators"):
        check(nx.DiGraph())
    graph = chain(DENSE, RELU)
    check(graph)
    graph.add_edge("relu", "dense", bytes=1)
    with pytest.raises(GraphError, match="got the cycle dense -> relu"):
        check(graph)
    graph.remove_edge("relu", "dense")
    graph.edges["dense", "relu"]["bytes"] = None
    with pytest.raises(GraphError, match="expected its bytes, got None"):
        check(graph)
    with pytest.raises(GraphError, match="expected known output shapes"):
        check(chain(replace(RELU, outputs=())))
    graph.add_node("bare")
    with pytest.raises(GraphError, match="node 'bare': expected an Operator"):
        check(graph)


def test_products() -> None:
    assert product("addmm", [(8,), (4, 16), (16, 8)]) == Gemm(1, 4, 8, 16)
    assert product("bmm", [(3, 4, 16), (3, 16, 8)]) == Gemm(3, 4, 8, 16)
    assert product("addbmm", [(4, 8), (3, 4, 16), (3, 16, 8)]) == Gemm(1, 4, 8, 48)
    assert product("mv", [(4, 16), (16,)]) == Gemm(1, 4, 1, 16)
    assert product("dot", [(16,), (16,)]) == Gemm(1, 1, 1, 16)
    assert contraction((2, 5, 4, 16), (16, 8)) == Gemm(1, 40, 8, 16)
    assert contraction((2, 1, 4, 16), (5, 16, 8)) == Gemm(10, 4, 8, 16)
    assert contraction((16,), (16, 8)) == Gemm(1, 1, 8, 16)
    with pytest.raises(GraphError, match="expected"):
        contraction((4, 16), (15, 8))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_work_is_equal_in_all_three_products(groups: int, transposed: bool) -> None:
    # Stride 2: what is counted must not grow with the stride.
    data, output = ((2, 6, 9, 9), (2, 4, 4, 4))
    weight = (4, 6 // groups, 3, 3)
    if transposed:
        data, output = output, data
    sizes = (data, weight, output, groups, transposed)
    forward = convolution(*sizes)
    # Multiply-adds by definition: every element of the smaller image meets the whole window.
    expected = 2 * 4 * 4 * (4 * 6 // groups) * 9
    assert forward.macs == data_gradient(*sizes).macs == weight_gradient(*sizes).macs == expected
    assert forward.batch == groups


def test_import_needs_neither_torch_nor_tvm() -> None:
    probe = (
        "import sys; from tunerplugin.hw.graph import fuse, WORKLOADS; "
        "assert not {'torch', 'tvm', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)
