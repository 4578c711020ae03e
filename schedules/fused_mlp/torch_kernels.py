"""Compiled training kernels, called on torch tensors, as a rule without copies."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .cpu.machine import Machine
from .cpu.training_plan import VALUE, Plan, Streams, TrainingKnobs
from .description import MLP

_TILE_BYTES = 192 << 10
"""What a tile may take of a core's second-level cache; the weights need the rest."""

_ALIGNMENT = 64
"""Bytes to which TVM's runtime wants the data of a tensor aligned; torch aligns what it allocates,
but not the parts that slices and flattened parameters are."""

_SMALLEST_TILE, _LARGEST_TILE = 16, 64
"""Rows of a tile over all streams: fewer pay for the weights' loads, more leave L1 and L2."""


def prepare_threads() -> None:
    """Let TVM's pool have torch's number of threads, and keep it from pinning this one.

    A pinned main thread hands its mask on to torch's workers, which then share one core.  TVM reads
    both variables when its pool starts, at the first parallel kernel of the process; what the user
    set stays.
    """
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_NUM_THREADS", str(torch.get_num_threads()))


@functools.cache
def _host() -> tuple[Any, Machine]:
    """This machine's target, and what a schedule has to know of it."""
    from tvm.target import Target

    from tunerplugin.measure import host_target

    target = Target(host_target())
    return target, Machine.of(target)


def make_plan(mlp: MLP, knobs: TrainingKnobs | None = None, streams: Streams = VALUE) -> Plan:
    """The plan for this machine; without knobs one thread per torch thread, tiles that fit L2.

    Raises ``ScheduleError`` for an MLP that is not float32.
    """
    lanes = _host()[1].lanes
    if knobs is not None:
        made = Plan(mlp, knobs, lanes)
        return made if streams == VALUE else replace(made.recomputing, streams=streams)
    rows = _LARGEST_TILE // streams.count
    plan = Plan(mlp, TrainingKnobs(rows=rows, chunks=torch.get_num_threads()), lanes, streams)
    while plan.tile_bytes > _TILE_BYTES and plan.tile_rows > _SMALLEST_TILE:
        plan = replace(plan, knobs=replace(plan.knobs, rows=plan.knobs.rows // 2))
    return plan


@functools.lru_cache(maxsize=256)
def _compiled(plan: Plan, wanted: tuple[bool, bool] | None) -> Any:
    """The forward kernel, or the backward kernel of the wanted gradients."""
    prepare_threads()
    import tvm

    from .cpu import training

    if wanted is None:
        name, func = training.FORWARD, training.forward(plan)
    else:
        name, func = training.BACKWARD, training.backward(plan, training.Wanted(*wanted))
    return tvm.compile(func, target=_host()[0])[name]


def _call(kernel: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Inputs are copied where they are a part of something else that TVM takes for misaligned."""
    from tvm.runtime import from_dlpack

    aligned = [t if t.data_ptr() % _ALIGNMENT == 0 else t.clone() for t in inputs]
    kernel(*[from_dlpack(tensor.detach()) for tensor in (*aligned, *outputs)])


def run_forward(
    plan: Plan, x: Tensor, parameters: Sequence[Tensor], directions: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """y (streams, batch, out), and what the backward kernel reads where the plan stores."""
    batch = x.shape[0]
    y = x.new_empty((plan.streams.count, batch, plan.mlp.widths[-1]))
    if batch == 0:
        return y, ()
    kept: tuple[Tensor, ...] = ()
    if plan.knobs.store:
        rows, tiles = plan.knobs.rows, plan.tiles(batch)
        kept = tuple(x.new_empty((tiles, rows, width)) for _, _, width in plan.kept)
    given = () if directions is None else (directions,)
    _call(_compiled(plan, None), [x, *parameters, *given], [y, *kept])
    return y, kept


def run_backward(
    plan: Plan,
    x: Tensor,
    parameters: Sequence[Tensor],
    dy: Tensor,
    kept: Sequence[Tensor],
    wanted: tuple[bool, bool],
    directions: Tensor | None = None,
) -> tuple[Tensor | None, list[Tensor]]:
    """dX and the parameters' gradients, as far as ``wanted`` (input, parameters)."""
    dx = torch.zeros_like(x) if wanted[0] else None
    found = [torch.zeros_like(parameter) for parameter in parameters] if wanted[1] else []
    if x.shape[0] and any(wanted):
        given = () if directions is None else (directions,)
        results = [*found] if dx is None else [dx, *found]
        _call(_compiled(plan, wanted), [x, *parameters, *given, dy, *kept], results)
    return dx, found
