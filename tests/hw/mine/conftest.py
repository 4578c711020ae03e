"""Small graphs and a small design space, whose every design can be scheduled."""

from __future__ import annotations

import networkx as nx
import pytest

from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.graph import Gemm, Kind, Operator, Phase
from tunerplugin.hw.mine import DesignSpace
from tunerplugin.hw.target import chip


def matrix(name: str, m: int, n: int, k: int, batch: int = 1) -> Operator:
    return Operator(
        name,
        Kind.GEMM,
        Phase.FORWARD,
        "bfloat16",
        inputs=((batch, m, k), (batch, k, n)),
        outputs=((batch, m, n),),
        gemm=Gemm(batch, m, n, k),
        read_bytes=2 * batch * (m * k + k * n),
        written_bytes=2 * batch * m * n,
    )


def vector(
    name: str, elements: int, function: str = "tanh", phase: Phase = Phase.FORWARD
) -> Operator:
    return Operator(
        name,
        Kind.ELEMENTWISE,
        phase,
        "bfloat16",
        inputs=((elements,),),
        outputs=((elements,),),
        elements=elements,
        function=function,
        read_bytes=2 * elements,
        written_bytes=2 * elements,
    )


def graph_of(operators: list[Operator], edges: list[tuple[int, int]], batch: int = 4) -> nx.DiGraph:
    graph = nx.DiGraph(name="small", batch=batch)
    for operator in operators:
        graph.add_node(operator.name, op=operator)
    for before, after in edges:
        moved = operators[before].written_bytes
        graph.add_edge(operators[before].name, operators[after].name, bytes=moved)
    return graph


def chain() -> nx.DiGraph:
    """A multilayer perceptron with a large activation between its layers."""
    operators = [
        matrix("up", 2048, 4096, 1024),
        vector("act", 2048 * 4096),
        matrix("down", 2048, 1024, 4096),
        vector("out", 2048 * 1024, "alu"),
    ]
    return graph_of(operators, [(0, 1), (1, 2), (2, 3)])


def branches() -> nx.DiGraph:
    """Eight small products side by side, as heads or the branches of Inception."""
    operators = [vector("in", 1 << 16)]
    operators += [matrix(f"b{i}", 192, 96 + 32 * i, 300) for i in range(8)]
    operators.append(vector("join", 1 << 18, "alu"))
    return graph_of(operators, [(0, i) for i in range(1, 9)] + [(i, 9) for i in range(1, 9)])


def skewed() -> nx.DiGraph:
    """Tall and thin products with batches, and heavy vector work beside them."""
    operators = [
        matrix("scores", 512, 512, 64, batch=48),
        vector("soft", 48 * 512 * 512, "exp"),
        matrix("mix", 512, 64, 512, batch=48),
        vector("side", 1 << 22, "sqrt"),
        matrix("thin", 16, 4096, 1024),
    ]
    return graph_of(operators, [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4)])


@pytest.fixture
def graphs() -> dict[str, nx.DiGraph]:
    return {"chain": chain(), "branches": branches(), "skewed": skewed()}


@pytest.fixture
def reference() -> Accelerator:
    return chip("tpu-v2")


@pytest.fixture
def space(reference: Accelerator) -> DesignSpace:
    return DesignSpace(
        reference,
        tensor_rows=(32, 128),
        tensor_columns=(32, 64, 128),
        tensor_cores=(1, 2, 4, 8, 16),
        vector_lanes=(128, 512),
        vector_cores=(1, 2, 4),
        shared_buffer_bytes=(1 << 20, 1 << 24),
    )
