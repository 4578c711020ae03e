"""One operator of a workload: what it computes, on what shapes, and the bytes that it moves.

A graph is a ``networkx.DiGraph`` whose nodes carry an ``Operator`` in attribute ``op`` and whose
edges carry the ``bytes`` that flow; ``hw/graph/checks.py`` says what makes one valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ...errors import GraphError
from .functions import FUNCTIONS, flops_per_element

Shape = tuple[int, ...]

DTYPE_BYTES: dict[str, float] = {
    "float64": 8,
    "float32": 4,
    "tfloat32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "int4": 0.5,
    "bool": 1,
}


class Core(StrEnum):
    """The unit that an operator occupies."""

    TENSOR = "tensor"
    VECTOR = "vector"
    NONE = "none"  # moves bytes only: memory time, no arithmetic


class Kind(StrEnum):
    """The class of an operator; decides its core."""

    GEMM = "gemm"
    CONV = "conv"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    POOLING = "pooling"
    EMBEDDING = "embedding"
    COPY = "copy"
    OPTIMIZER = "optimizer"
    LOSS = "loss"
    COLLECTIVE = "collective"


class Phase(StrEnum):
    """The part of a training step that an operator belongs to; inference is all forward."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    LOSS = "loss"
    BACKWARD_DATA = "backward_data"
    BACKWARD_WEIGHT = "backward_weight"
    OPTIMIZER = "optimizer"


_MATRIX = frozenset({Kind.GEMM, Kind.CONV})
# A gather, a layout change or a transfer between chips occupies no lane.
_MOVING = frozenset({Kind.EMBEDDING, Kind.COPY, Kind.COLLECTIVE})


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` independent products (m, k) x (k, n) -> (m, n).

    Convolutions are im2col products with one ``batch`` per group: forward m = N*P*Q,
    n = Cout/groups, k = Cin/groups*R*S; data gradient m = N*P*Q, n = Cin/groups*R*S,
    k = Cout/groups (the col2im form, whose work does not grow with the stride); weight gradient
    m = Cout/groups, n = Cin/groups*R*S, k = N*P*Q.
    """

    batch: int
    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.batch, self.m, self.n, self.k) < 1:
            raise GraphError(f"expected GEMM sizes of at least 1, got {self}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.m * self.n * self.k

    @property
    def flops(self) -> int:
        """Two per multiply-accumulate; a bias is where the accumulator starts and costs none."""
        return 2 * self.macs


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, or a fused group named after its head.

    ``inputs`` and ``outputs`` are tensor shapes of the head; ``dtype`` is that of its (first)
    output.  Matrix operators (gemm, conv) have ``gemm``; vector operators have ``elements`` and a
    ``function`` of ``functions.FUNCTIONS``.  ``fused`` are the vector operators, and copies that
    cost nothing there, that ride on the head, in order; they keep their own sizes.

    Bytes are those of the whole group to and from memory, each distinct tensor once:
    ``read_bytes`` activations, gradients and inputs; ``weight_bytes`` parameters and optimiser
    state read; ``written_bytes`` everything written.  Convolutions count their true input, not
    the im2col matrix.  ``layer`` is the path of the module instance that the operator comes from.

    Raises ``GraphError`` when these do not fit together.
    """

    name: str
    kind: Kind
    phase: Phase
    dtype: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    gemm: Gemm | None = None
    elements: int = 0
    function: str = ""
    read_bytes: int = 0
    weight_bytes: int = 0
    written_bytes: int = 0
    fused: tuple[Operator, ...] = ()
    layer: str = ""

    def __post_init__(self) -> None:
        if (self.gemm is not None) != (self.kind in _MATRIX):
            raise GraphError(
                f"operator {self.name!r}: expected GEMM sizes for gemm and conv only, "
                f"got {self.gemm} for {self.kind}"
            )
        if self.core == Core.VECTOR and (self.function not in FUNCTIONS or self.elements < 0):
            raise GraphError(
                f"operator {self.name!r}: expected elements and one of {sorted(FUNCTIONS)}, "
                f"got {self.elements} and {self.function!r}"
            )
        if self.dtype not in DTYPE_BYTES:
            raise GraphError(
                f"operator {self.name!r}: expected one of {list(DTYPE_BYTES)}, got {self.dtype!r}"
            )
        if min(self.read_bytes, self.weight_bytes, self.written_bytes) < 0:
            raise GraphError(f"operator {self.name!r}: expected bytes of 0 or more")
        if any(member.core == Core.TENSOR or member.fused for member in self.fused):
            raise GraphError(
                f"operator {self.name!r}: expected plain vector operators and copies to be fused"
            )

    @property
    def core(self) -> Core:
        """The core of the head.  A tensor head with ``fused`` members takes a vector core too."""
        if self.kind in _MATRIX:
            return Core.TENSOR
        return Core.NONE if self.kind in _MOVING else Core.VECTOR

    @property
    def cores(self) -> frozenset[Core]:
        """All cores that the group occupies at once."""
        used = {self.core} | {member.core for member in self.fused}
        return frozenset(used - {Core.NONE})

    @property
    def flops(self) -> int:
        """Arithmetic operations of the head alone."""
        if self.gemm is not None:
            return self.gemm.flops
        return self.elements * flops_per_element(self.function) if self.function else 0

    @property
    def total_flops(self) -> int:
        """Arithmetic operations of the group."""
        return self.flops + sum(member.flops for member in self.fused)

    @property
    def total_bytes(self) -> int:
        """Bytes of the group to and from memory."""
        return self.read_bytes + self.weight_bytes + self.written_bytes

    @property
    def arithmetic_intensity(self) -> float:
        """Operations per byte; infinite where nothing is moved."""
        return self.total_flops / self.total_bytes if self.total_bytes else math.inf

    @property
    def vector_work(self) -> Iterator[tuple[str, int]]:
        """(function, elements) of every vector operator of the group."""
        for member in (self, *self.fused):
            if member.core == Core.VECTOR:
                yield member.function, member.elements

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for operators of equal cost: everything but name, layer and phase."""
        return (
            self.kind,
            self.dtype,
            self.inputs,
            self.outputs,
            self.gemm,
            self.elements,
            self.function,
            self.read_bytes,
            self.weight_bytes,
            self.written_bytes,
            tuple(member.signature for member in self.fused),
        )
