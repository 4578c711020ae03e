"""Tells weight gradients from data gradients in a traced backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import networkx as nx

from .operator import Operator, Phase

_NOTHING, _SEVERAL = -1, -2


def split_backward(graph: nx.DiGraph, writers: Mapping[str, tuple[int, int]]) -> None:
    """Mark as ``BACKWARD_WEIGHT`` what only makes one parameter's gradient, in place.

    ``writers``: operator that finishes a gradient -> (index, elements) of the parameter.  An
    operator counts when all its paths through the backward pass end in one parameter's gradient
    and its result already has the size of that parameter; what is left, down to the first
    layer, passes gradients of activations on.  Nodes are in execution order.
    """
    sizes = dict(writers.values())
    reach: dict[str, int] = {}
    for node in reversed(list(graph)):
        op: Operator = graph.nodes[node]["op"]
        if op.phase != Phase.BACKWARD_DATA:
            continue
        found = {reach[after] for after in graph.successors(node) if after in reach}
        if node in writers:
            found.add(writers[node][0])
        found.discard(_NOTHING)
        reach[node] = found.pop() if len(found) == 1 else (_SEVERAL if found else _NOTHING)
        if sizes.get(reach[node]) == prod(op.outputs[0]):
            graph.nodes[node]["op"] = replace(op, phase=Phase.BACKWARD_WEIGHT)
