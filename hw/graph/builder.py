"""Collects operators and the bytes between them while a program is traced or read.

Front ends say which *buffers* an operator reads and writes; views are the same buffer, so they
become edges, not operators.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import networkx as nx

from .operator import Gemm, Kind, Operator, Phase, Shape


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as an operator sees it: its buffer, shape, dtype and distinct bytes.

    ``part`` says where in the buffer it lies; slices of one buffer differ in it.
    """

    buffer: Hashable
    shape: Shape
    dtype: str
    size_bytes: int
    part: Hashable = 0

    @property
    def elements(self) -> int:
        """Number of elements, repeated ones counted."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator computes: the fields of ``Operator`` that shapes alone do not give."""

    kind: Kind
    function: str = ""
    elements: int = 0
    gemm: Gemm | None = None


@dataclass
class Builder:
    """The graph so far, and which operator wrote each buffer last.

    ``weights`` are the buffers of parameters and optimiser state: reading them counts as
    ``weight_bytes``.
    """

    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    weights: set[Hashable] = field(default_factory=set)
    writer: dict[Hashable, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        title: str,
        work: Work,
        phase: Phase,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        *,
        layer: str = "",
        after: Sequence[Hashable] = (),
        limit: Mapping[Hashable, int] | None = None,
    ) -> Operator:
        """Add one operator and its edges.

        ``after``: buffers whose writers come before this operator although it does not read them
        (it overwrites part of them).  ``limit``: at most so many bytes are read of a buffer.
        """
        moved = _distinct_bytes(reads, limit or {})
        op = Operator(
            name=self._name(title, layer),
            kind=work.kind,
            phase=phase,
            dtype=writes[0].dtype,
            inputs=tuple(tensor.shape for tensor in reads),
            outputs=tuple(tensor.shape for tensor in writes),
            gemm=work.gemm,
            elements=work.elements,
            function=work.function,
            read_bytes=sum(n for buffer, n in moved.items() if buffer not in self.weights),
            weight_bytes=sum(n for buffer, n in moved.items() if buffer in self.weights),
            written_bytes=sum(tensor.size_bytes for tensor in writes),
            layer=layer,
        )
        self.graph.add_node(op.name, op=op)
        for buffer, count in [*moved.items(), *((buffer, 0) for buffer in after)]:
            source = self.writer.get(buffer)
            if source is not None:
                already = self.graph.get_edge_data(source, op.name, {"bytes": 0})["bytes"]
                self.graph.add_edge(source, op.name, bytes=already + count)
        for tensor in writes:
            self.writer[tensor.buffer] = op.name
        return op

    def _name(self, title: str, layer: str) -> str:
        """``layer/title``, with a running number from the second use on."""
        base = f"{layer}/{title}" if layer else title
        count = self._counts[base] = self._counts.get(base, 0) + 1
        return base if count == 1 else f"{base}.{count}"


def _distinct_bytes(reads: Sequence[Tensor], limit: Mapping[Hashable, int]) -> dict[Hashable, int]:
    """Bytes per buffer; one part once, whatever its shape, different parts added."""
    moved: dict[Hashable, int] = {}
    for buffer, _, count in dict.fromkeys((t.buffer, t.part, t.size_bytes) for t in reads):
        moved[buffer] = moved.get(buffer, 0) + count
    return {buffer: min(n, limit.get(buffer, n)) for buffer, n in moved.items()}
