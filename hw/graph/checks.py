"""What makes an operator graph valid, and which of its operators are the same."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from ...errors import GraphError
from .operator import Kind, Operator, Phase


def check(graph: nx.DiGraph) -> None:
    """Raise ``GraphError``, in one sentence, unless ``graph`` is a usable operator graph.

    Usable: not empty, no cycle, every node with an ``Operator`` that has output shapes with
    sizes of at least 0, every edge with ``bytes`` of at least 0.
    """
    if graph.number_of_nodes() == 0:
        raise GraphError("expected an operator graph, got one without operators")
    for node, data in graph.nodes(data=True):
        op = data.get("op")
        if not isinstance(op, Operator):
            raise GraphError(f"node {node!r}: expected an Operator in attribute 'op', got {op!r}")
        if not op.outputs or any(size < 0 for shape in op.outputs for size in shape):
            raise GraphError(
                f"operator {op.name!r}: expected known output shapes, got {op.outputs}; "
                "give every input a fixed shape"
            )
    for source, sink, moved in graph.edges(data="bytes"):
        if not isinstance(moved, int) or moved < 0:
            raise GraphError(f"edge {source!r} -> {sink!r}: expected its bytes, got {moved!r}")
    if not nx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(str(edge[0]) for edge in nx.find_cycle(graph))
        raise GraphError(f"expected an acyclic graph, got the cycle {cycle}")


def operators(graph: nx.DiGraph, phase: Phase | None = None) -> Iterator[Operator]:
    """The operators of a graph, in its node order (``phase``: only those)."""
    for _, op in graph.nodes(data="op"):
        if phase is None or op.phase == phase:
            yield op


def gemm_flops(graph: nx.DiGraph, phase: Phase | None = None) -> int:
    """Floating-point operations in matrix products and convolutions (2 per multiply-add)."""
    return sum(op.gemm.flops for op in operators(graph, phase) if op.gemm is not None)


def signatures(graph: nx.DiGraph) -> dict[object, int]:
    """Node -> id; nodes with one id cost the same (the layers of a transformer share theirs).

    Ids count up from 0 in node order, so they are the same in every process.
    """
    known: dict[tuple[object, ...], int] = {}
    return {node: known.setdefault(op.signature, len(known)) for node, op in graph.nodes(data="op")}


def representatives(graph: nx.DiGraph) -> list[Operator]:
    """One operator per id of ``signatures``: cost these, then look up by id."""
    known: dict[tuple[object, ...], Operator] = {}
    for op in operators(graph):
        known.setdefault(op.signature, op)
    return list(known.values())


def count_kinds(graph: nx.DiGraph) -> dict[Kind, int]:
    """Operators of each kind, largest count first."""
    counts: dict[Kind, int] = {}
    for op in operators(graph):
        counts[op.kind] = counts.get(op.kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
