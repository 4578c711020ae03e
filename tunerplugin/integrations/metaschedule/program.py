"""Reading TIR: statements, kernels, blocks and their affine accesses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm

from ..compat import SBlock, SBlockRealize, detect_linear_equation, region_buffer, tirx

#: The block that wraps a whole function.
ROOT_BLOCK = "root"


def statements(stmt: Any) -> Iterator[Any]:
    """Every statement below (and with) ``stmt``, parents first."""
    pending = [stmt]
    while pending:
        node = pending.pop()
        yield node
        for name in ("block", "body", "seq", "then_case", "else_case"):
            child = getattr(node, name, None)
            if child is None or isinstance(child, str):
                continue
            if name == "seq":
                pending.extend(reversed(list(child)))
            else:
                pending.append(child)


def kernels(func: Any) -> list[Any]:
    """The top-level loop nests of a scheduled function; on a GPU each becomes one kernel."""
    body = func.body
    while isinstance(body, (SBlockRealize, SBlock, tirx.AttrStmt)):
        body = body.block if isinstance(body, SBlockRealize) else body.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def has_dynamic_loop(mod: Any) -> bool:
    """Whether some loop's extent is not a constant, which TVM refuses on a GPU."""
    return any(
        not isinstance(stmt.extent, tirx.IntImm)
        for func in mod.functions.values()
        for stmt in statements(func.body)
        if hasattr(stmt, "loop_var")
    )


@dataclass(frozen=True)
class Access:
    """An affine read or write of a block: element bytes, buffer shape, one row a dimension.

    ``coefficients[d][i]`` is by how much index ``d`` grows with iteration variable ``i``; a
    dimension that is not affine has ``None``.
    """

    buffer: str
    element_bytes: int
    shape: tuple[int, ...]
    coefficients: tuple[tuple[int, ...] | None, ...]
    is_write: bool


@dataclass(frozen=True)
class Block:
    """A block of the unscheduled program: iteration extents, their kinds and its accesses.

    ``kinds`` has one letter per iteration variable: ``S`` spatial, ``R`` reduction, ``O`` other.
    """

    name: str
    extents: tuple[int, ...]
    kinds: str
    accesses: tuple[Access, ...]

    @property
    def iterations(self) -> int:
        """How often the block's body runs."""
        return math.prod(self.extents)

    @property
    def reduces(self) -> bool:
        """Whether the block has a reduction axis."""
        return "R" in self.kinds


_KINDS = {0: "S", 2: "R"}  # IterVar.DataPar, IterVar.CommReduce


def blocks(func: Any) -> list[Block]:
    """Every block of a function but the root, in program order.

    Raises ``ValueError`` when an extent is not a constant (dynamic shape).
    """
    return [
        _read_block(stmt)
        for stmt in statements(func.body)
        if isinstance(stmt, SBlock) and stmt.name_hint != ROOT_BLOCK
    ]


def _read_block(block: Any) -> Block:
    variables = [iter_var.var for iter_var in block.iter_vars]
    extents = []
    for iter_var in block.iter_vars:
        extent = iter_var.dom.extent
        if not isinstance(extent, tirx.IntImm):
            raise ValueError(f"block {block.name_hint} has the dynamic extent {extent}")
        extents.append(int(extent))
    accesses = [_read_access(r, variables, False) for r in block.reads]
    accesses += [_read_access(w, variables, True) for w in block.writes]
    kinds = "".join(_KINDS.get(int(v.iter_type), "O") for v in block.iter_vars)
    return Block(str(block.name_hint), tuple(extents), kinds, tuple(accesses))


def _read_access(region: Any, variables: list[Any], is_write: bool) -> Access:
    buffer = region_buffer(region)
    shape = tuple(int(s) if isinstance(s, tirx.IntImm) else 0 for s in buffer.shape)
    rows: list[tuple[int, ...] | None] = []
    for dimension in region.region:
        linear = detect_linear_equation(dimension.min, variables)
        constant = linear and all(isinstance(c, tirx.IntImm) for c in linear[: len(variables)])
        rows.append(tuple(int(c) for c in linear[: len(variables)]) if constant else None)
    element_bytes = (int(tvm.DataType(str(buffer.dtype)).bits) + 7) // 8
    return Access(str(buffer.name), element_bytes, shape, tuple(rows), is_write)
