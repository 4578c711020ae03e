"""The register block: the inner loops that the inference and the training kernels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunerplugin.integrations.compat import T

Expression = Any
"""A TIR expression (the wheel has no types)."""
Buffer = Any
"""A TIR buffer."""


@dataclass(frozen=True)
class RegisterBlock:
    """``rows`` x (``vectors`` x ``lanes``) sums that stay in registers while k runs."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of the block."""
        return self.vectors * self.lanes

    def padded(self, width: int) -> int:
        """``width`` rounded up to whole vectors."""
        return -(-width // self.lanes) * self.lanes

    def sums(self) -> Buffer:
        """A buffer of the block's size; indexed by constants alone it becomes registers."""
        return T.alloc_buffer((self.rows, self.columns), "float32", scope="local")

    @contextmanager
    def each(self) -> Iterator[tuple[Expression, Expression, Expression]]:
        """Row, vector and lane; rows and vectors are unrolled, so that each sum is a register."""
        with T.unroll(0, self.rows) as r, T.unroll(0, self.vectors) as v:
            with T.vectorized(0, self.lanes) as lane:
                yield r, v, lane

    def accumulate(
        self,
        sums: Buffer,
        depth: int,
        left: Callable[[Expression, Expression], Expression],
        right: Callable[[Expression, Expression, Expression], Expression],
        unroll: int = 1,
    ) -> None:
        """sums[r, v lanes + lane] += sum of left(r, k) right(k, v, lane) for k < depth.

        ``unroll`` steps of k are written out at a time.
        """

        def step(k: Expression) -> None:
            with self.each() as (r, v, lane):
                total = sums[r, v * self.lanes + lane] + left(r, k) * right(k, v, lane)
                T.buffer_store(sums, total, [r, v * self.lanes + lane])

        if depth >= unroll:
            with T.serial(0, depth // unroll) as outer, T.unroll(0, unroll) as inner:
                step(outer * unroll + inner)
        for k in range(depth // unroll * unroll, depth):
            step(T.int32(k))
