"""The template: a fused MLP's forward pass on CPU (kind llvm)."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from tunerplugin.errors import ScheduleError
from tunerplugin.space import Constraint, Domain, ListSpace, Prefix

from ..description import MLP
from ..template import FusedKernel, Template, check_batch
from .machine import Machine
from .plan import (
    Knobs,
    Plan,
    default_knobs,
    fits_cache,
    fits_registers,
    must_stage,
    tile_rows,
)

KNOBS = tuple(item.name for item in fields(Knobs))
"""The knobs in the order in which the space asks for them."""

_BLOCK_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28)
_BLOCK_VECTORS = (1, 2, 3, 4, 6)
_UNROLL = (1, 2, 4, 8)


def fused_mlp(
    mlp: MLP,
    batch: int | None,
    target: Any,
    *,
    block_rows: int | None = None,
    block_vectors: int | None = None,
    unroll: int | None = None,
    rows: int | None = None,
    staged: int | None = None,
    prefetch: int | None = None,
) -> FusedKernel:
    """All layers of an MLP as one kernel, parallel over tiles of rows.

    The knobs are those of ``plan.Knobs``; what is None gets a default that suits the MLP and the
    target.  Activations stay float32 within a tile, and weights are packed to float32, whatever
    the MLP's dtype: only input and output are of that.  Raises ``ScheduleError`` for a target that
    is not of kind llvm, a batch below 1, and knobs that cannot be.
    """
    target = _target(target)
    if (reason := supports(mlp, target)) is not None:
        raise ScheduleError(reason)
    check_batch(batch)
    machine = Machine.of(target)
    given = {
        "block_rows": block_rows,
        "block_vectors": block_vectors,
        "unroll": unroll,
        "rows": rows,
        "staged": staged,
        "prefetch": prefetch,
    }
    knobs = default_knobs(mlp, machine, batch, {k: v for k, v in given.items() if v is not None})
    plan = Plan(mlp, machine, knobs)
    from .kernel import build

    return FusedKernel(mlp, batch, build(plan, batch), plan.packings, asdict(knobs))


def supports(mlp: MLP, target: Any) -> str | None:
    """None for a target of kind llvm, else why not; every MLP is possible."""
    kind = _target(target).kind.name
    return None if kind == "llvm" else f"expected a target of kind llvm, got {kind}"


def space(mlp: MLP, target: Any) -> ListSpace:
    """Register blocks that fit the registers, tiles that fit the cache, and for the rest all ways.

    The defaults for a symbolic batch are one of its candidates.
    """
    machine = Machine.of(_target(target))
    widest = max(-(-width // machine.lanes) for width in mlp.widths[1:])
    domains: list[Domain] = [
        tuple(rows for rows in _BLOCK_ROWS if fits_registers(machine, rows, 1)),
        tuple(vectors for vectors in _BLOCK_VECTORS if vectors <= widest),
        _UNROLL,
        lambda prefix: tile_rows(int(prefix[0])),
        (1,) if must_stage(mlp) else (0, 1),
        (0, 1),
    ]
    words = [(("kind", "fused_mlp"), ("knob", name)) for name in KNOBS]
    constraints = [RegisterBlock(machine), TileInCache(mlp, machine)]
    return ListSpace(KNOBS, domains, constraints, words, f"{mlp!r} {machine!r}")


class RegisterBlock(Constraint):
    """The register block fits the vector registers."""

    name = "registers"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``; one vector is always among those to come."""
        rows, vectors = (*(int(value) for value in prefix[:2]), 1, 1)[:2]
        return fits_registers(self._machine, rows, vectors)


class TileInCache(Constraint):
    """The tile of activations fits the cache."""

    name = "cache"

    def __init__(self, mlp: MLP, machine: Machine) -> None:
        self._mlp, self._machine = mlp, machine

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``; an input that is not staged takes no room."""
        if len(prefix) < KNOBS.index("rows") + 1:
            return True
        block_rows, vectors, unroll, rows, staged, prefetch = (
            *(int(value) for value in prefix),
            *(int(must_stage(self._mlp)), 0)[len(prefix) - 4 :],
        )
        if not fits_registers(self._machine, block_rows, vectors):
            return False
        knobs = Knobs(block_rows, vectors, unroll, rows, staged, prefetch)
        return fits_cache(Plan(self._mlp, self._machine, knobs))


def _target(target: Any) -> Any:
    from tvm.target import Target

    return target if isinstance(target, Target) else Target(target)


TEMPLATE = Template("cpu", fused_mlp, space, supports)
"""This template, for whoever lists them."""
