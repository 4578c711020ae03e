"""Fusion as a pass over an operator graph.

The rules are those of TVM's operator fusion (Chen et al. 2018, arXiv 1802.04799, section 3),
extended to two kinds of core and to training:

* a matrix operator takes the chain of elementwise operators that follows it, while each is the
  only reader *in its phase* of the one before: the vector core works on the tiles that the tensor
  core delivers;
* elementwise operators chain in the same way on the vector core alone; a reduction, softmax or
  normalisation, which needs whole rows, may end such a chain or start one;
* what an optimiser does to one parameter is one operator, branches included;
* copies ride along: a producer can write in the layout that its reader wants.

An activation that the backward pass reads later is still written, but not read back by the next
member of its group.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod

import networkx as nx

from .operator import Core, Kind, Operator, Phase

# Work on each element by itself, so they can ride anywhere in a chain.
_INJECTIVE = frozenset({Kind.ELEMENTWISE, Kind.COPY, Kind.OPTIMIZER})
# Need all elements of a row, so they can only end or start a chain.
_WHOLE_ROWS = frozenset({Kind.REDUCTION, Kind.SOFTMAX, Kind.NORMALISATION, Kind.LOSS})
# No operator depends on one of a higher rank.
_RANK = {
    Phase.FORWARD: 0,
    Phase.RECOMPUTE: 1,
    Phase.LOSS: 1,
    Phase.BACKWARD_DATA: 2,
    Phase.BACKWARD_WEIGHT: 3,
    Phase.OPTIMIZER: 4,
}


def fuse(graph: nx.DiGraph) -> nx.DiGraph:
    """A new graph in which every group is one operator, named after its head.

    The sum of ``total_flops`` stays, the sum of ``total_bytes`` never grows: what members of a
    group hand to each other is not read, and not written unless others read it too.  Nodes are in
    a topological order.  ``graph`` itself is unchanged.
    """
    group_of: dict[Hashable, Hashable] = _optimizer_groups(graph)
    for node in nx.topological_sort(graph):
        if node not in group_of:
            source = _producer_to_join(graph, node, group_of)
            group_of[node] = node if source is None else group_of[source]
    members: dict[Hashable, list[Hashable]] = {}
    for node in nx.topological_sort(graph):
        members.setdefault(group_of[node], []).append(node)
    return _contract(graph, group_of, members)


def _optimizer_groups(graph: nx.DiGraph) -> dict[Hashable, Hashable]:
    """Updates, each as far as its operators hang together.  One that holds more than vector
    work (a product, say) is left: fusing around it could make a cycle."""
    updates = [node for node, op in graph.nodes(data="op") if op.phase == Phase.OPTIMIZER]
    groups: dict[Hashable, Hashable] = {}
    for part in nx.weakly_connected_components(graph.subgraph(updates)):
        ops = [graph.nodes[node]["op"] for node in part]
        if all(_injective(op) and not op.fused for op in ops):
            groups |= dict.fromkeys(part, min(part, key=str))
    return groups


def _producer_to_join(
    graph: nx.DiGraph, node: Hashable, group_of: Mapping[Hashable, Hashable]
) -> Hashable | None:
    """The producer whose group ``node`` joins, if any.

    No cycle can arise: all that leaves a group before its last member goes to operators of a
    higher rank, on which no member depends.
    """
    op: Operator = graph.nodes[node]["op"]
    if op.kind not in _INJECTIVE | _WHOLE_ROWS:
        return None
    source: Hashable
    for source in graph.predecessors(node):
        last: Operator = graph.nodes[source]["op"]
        head: Operator = graph.nodes[group_of[source]]["op"]
        others = (graph.nodes[n]["op"].phase for n in graph.successors(source) if n != node)
        if (
            last.phase == op.phase != Phase.OPTIMIZER
            and all(_RANK[phase] > _RANK[op.phase] for phase in others)
            and _may_follow(op, last, head)
            and _same_space(op, last)
        ):
            return source
    return None


def _injective(op: Operator) -> bool:
    return op.kind in _INJECTIVE or op.function == "norm_inference"


def _may_follow(op: Operator, last: Operator, head: Operator) -> bool:
    """Whether ``op`` may come after ``last``, at the end of the group that ``head`` starts.

    What was fused before stays as it is, so the pass is idempotent.
    """
    if op.fused or last.fused:
        return False
    if head.core == Core.TENSOR:
        return _injective(op) and (last is head or _injective(last))
    if last is head:
        return _injective(op) or (_injective(last) and op.kind in _WHOLE_ROWS)
    return _injective(last)


def _same_space(op: Operator, last: Operator) -> bool:
    """A chain has one iteration space: its members handle no more elements than are handed on."""
    return max(map(prod, (*op.inputs, *op.outputs))) <= prod(last.outputs[0])


def _contract(
    graph: nx.DiGraph,
    group_of: Mapping[Hashable, Hashable],
    members: Mapping[Hashable, Sequence[Hashable]],
) -> nx.DiGraph:
    names = {root: _head(graph, nodes) for root, nodes in members.items()}
    result = nx.DiGraph(**graph.graph)
    position = {node: index for index, node in enumerate(graph)}
    links = nx.DiGraph()
    links.add_nodes_from(members)
    for source, sink, moved in graph.edges(data="bytes"):
        start, end = group_of[source], group_of[sink]
        if start != end:
            # Members that read one tensor share the read.
            known = links.get_edge_data(start, end, {"from": {}})["from"]
            known[source] = max(known.get(source, 0), moved)
            links.add_edge(start, end, **{"from": known})
    order = {root: max(position[node] for node in nodes) for root, nodes in members.items()}
    for root in nx.lexicographical_topological_sort(links, key=order.__getitem__):
        op = _fused(graph, members[root], names[root], links.in_edges(root, data="from"))
        result.add_node(names[root], op=op)
    for start, end, known in links.edges(data="from"):
        result.add_edge(names[start], names[end], bytes=sum(known.values()))
    return result


def _head(graph: nx.DiGraph, nodes: Sequence[Hashable]) -> Hashable:
    """The first member that computes; the first of all in a group of copies."""
    computing = (node for node in nodes if graph.nodes[node]["op"].core != Core.NONE)
    return next(computing, nodes[0])


def _written_bytes(graph: nx.DiGraph, node: Hashable, inside: set[Hashable]) -> int:
    """Bytes of a member's results that must reach memory: all of a result of the step, else what
    is read outside the group."""
    op: Operator = graph.nodes[node]["op"]
    if graph.nodes[node].get("kept") or graph.out_degree(node) == 0:
        return op.written_bytes
    edges = graph.out_edges(node, data="bytes")
    outside: int = sum(moved for _, sink, moved in edges if sink not in inside)
    return min(op.written_bytes, outside)


def _fused(
    graph: nx.DiGraph,
    nodes: Sequence[Hashable],
    head: Hashable,
    incoming: Sequence[tuple[Hashable, Hashable, Mapping[Hashable, int]]],
) -> Operator:
    """The group's operator: the head with the other members, and the bytes of the whole."""
    first: Operator = graph.nodes[head]["op"]
    if len(nodes) == 1:
        return first
    inside = set(nodes)
    read = sum(n for _, _, known in incoming for n in known.values())
    written = 0
    for node in nodes:
        op: Operator = graph.nodes[node]["op"]
        # What has no producer in the graph is an input of the whole step.
        read += max(0, op.read_bytes - sum(n for *_, n in graph.in_edges(node, data="bytes")))
        written += _written_bytes(graph, node, inside)
    others = [graph.nodes[node]["op"] for node in nodes if node != head]
    return replace(
        first,
        read_bytes=read,
        weight_bytes=sum(graph.nodes[node]["op"].weight_bytes for node in nodes),
        written_bytes=written,
        fused=tuple(others),
    )
