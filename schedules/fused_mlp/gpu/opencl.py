"""Fused MLPs in plain OpenCL: any device, any dtype it has, no sub-groups."""

from __future__ import annotations

import itertools
from typing import Any

from tunerplugin.errors import ScheduleError
from tunerplugin.space import ListSpace, Prefix, Value

from ..description import MLP
from ..packing import Packing
from ..template import FusedKernel, Launch, Template
from . import opencl_kernel
from .builder import chosen_knobs, too_many_arguments
from .opencl_kernel import Plan

# Sums of one work-item.  With addresses and operands they fit the 128 registers that a work-item
# of most GPUs has without loss of occupancy below that of one wave per scheduler.
MAX_SUMS = 64
_NAMES = ("threads_x", "threads_y", "rows_per_item", "depth")
_DOMAINS = ((8, 16, 32, 64), (1, 2, 4, 8, 16, 32), (1, 2, 4, 8), (32, 16, 8, 4, 0))


def supports(mlp: MLP, target: Any) -> str | None:
    """See ``Template.supports``."""
    import tvm

    made = tvm.target.Target(target)
    if made.kind.name != "opencl":
        return f"the target is of kind {made.kind.name}, not opencl"
    if (reason := too_many_arguments(mlp, target)) is not None:
        return reason
    if next(iter(_space(mlp, target).enumerate()), None) is None:
        limit = int(made.attrs["max_shared_memory_per_block"])
        return f"one row of activations does not fit {limit} bytes of shared memory"
    return None


def space(mlp: MLP, target: Any) -> ListSpace:
    """See ``Template.space``: work-items, sums and shared memory within the target's limits."""
    if (reason := supports(mlp, target)) is not None:
        raise ScheduleError(reason)
    return _space(mlp, target)


def _space(mlp: MLP, target: Any) -> ListSpace:
    import tvm

    attributes = tvm.target.Target(target).attrs
    threads = int(attributes["max_threads_per_block"])
    shared = int(attributes["max_shared_memory_per_block"])

    def completes(prefix: Prefix) -> bool:
        rest = itertools.product(*_DOMAINS[len(prefix) :])
        return any(_fits(mlp, Plan(*map(int, (*prefix, *r))), threads, shared) for r in rest)

    def domain(prefix: Prefix) -> tuple[Value, ...]:
        return tuple(value for value in _DOMAINS[len(prefix)] if completes((*prefix, value)))

    return ListSpace(_NAMES, (domain,) * len(_NAMES), version="opencl plain 1")


def _fits(mlp: MLP, plan: Plan, threads: int, shared: int) -> bool:
    sums = plan.rows_per_item * max(map(plan.padded, mlp.widths[1:])) // plan.threads_x
    return (
        plan.threads_x * plan.threads_y <= threads
        and sums <= MAX_SUMS
        and plan.shared_bytes(mlp) <= shared
    )


def defaults(mlp: MLP, target: Any) -> dict[str, Value]:
    """The untuned schedule: 16 by 8 work-items of 4 rows, weights staged 16 rows at a time.

    Where that does not fit: the nearest that does, rows given up last.
    """

    def distance(candidate: Prefix) -> tuple[int, ...]:
        x, y, rows, depth = (int(value).bit_length() for value in candidate)
        apart = [abs(x - 5), abs(y - 4), abs(rows - 3), abs(depth - 5)]  # of 16, 8, 4, 16
        return sum(apart), apart[2], apart[1]

    candidates: list[Prefix] = list(space(mlp, target).enumerate())
    nearest = min(candidates, key=distance)
    return dict(zip(_NAMES, nearest, strict=True))


def build(mlp: MLP, batch: int | None, target: Any, **knobs: Any) -> FusedKernel:
    """See ``Build``.  Knobs that are not given are those of ``defaults``."""
    chosen = chosen_knobs(space(mlp, target), defaults(mlp, target), knobs)
    plan = Plan(**chosen)
    packings = tuple(Packing.rows(k, n, k, plan.padded(n), mlp.dtype) for k, n in mlp.shapes)
    launch = Launch(
        rows=plan.rows,
        threads=(plan.threads_x, plan.threads_y, 1),
        shared_bytes=plan.shared_bytes(mlp),
    )
    func = opencl_kernel.build(mlp, batch, packings, plan)
    return FusedKernel(mlp, batch, func, packings, chosen, launch)


PLAIN = Template("opencl-plain", build, space, supports)
