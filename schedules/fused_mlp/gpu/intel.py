"""Fused MLPs on Intel's matrix engines (XMX), in 16-bit types with float32 sums.

``XMX_PVC`` for Xe-HPC (Data Center GPU Max; sub-groups of 16), ``XMX_DG2`` for Xe-HPG (Arc;
sub-groups of 8).  The scheme is that of Yuan et al. (arXiv 2403.17607), see ``xmx_kernel``; float32
takes the plain template in ``opencl``.  The target's ``model`` says which device it is:
``tvm.target.Target(target_config(PVC))``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tunerplugin.errors import ScheduleError
from tunerplugin.space import ListSpace, Prefix, Value

from ..description import MLP
from ..template import FusedKernel, Launch, Template
from . import xmx_kernel, xmx_source
from .builder import chosen_knobs, too_many_arguments
from .xmx_plan import DEPTH, Plan, padded, register_need, shared_bytes, weight_packing

LARGE_FILE = "-cl-intel-256-GRF-per-thread"

# Beyond this share of the register file IGC 1.0.12504 began to spill: it also holds addresses, and
# weights that it loads ahead.  Found with ocloc on widths 16 to 256 (tests/schedules/offline).
_DEFAULT_SHARE = 0.57
_WIDEST_OF_8_ROWS = 192  # at 256, 8 rows spilled even so


@dataclass(frozen=True)
class XMX:
    """A GPU generation with matrix engines.

    ``model``: the target's model, and the device's name for ``ocloc``.  ``lanes``: the sub-group
    size that DPAS needs.  ``register_bytes``: of one register.  ``shared_bytes``: shared memory of
    one work-group at most, ``core_shared_bytes`` of the work-groups of one core together.
    ``threads``: sub-groups of one core with 128 registers each; half of it with 256.
    """

    model: str
    lanes: int
    register_bytes: int
    shared_bytes: int
    core_shared_bytes: int
    threads: int


# Xe GPU architecture (oneAPI GPU optimization guide): an Xe-HPC core has 8 vector engines of 8
# threads with 128 registers of 64 bytes, an Xe-HPG core 16 of 8 with 128 of 32 bytes.  A work-group
# has at most 1024 work-items, and 128 KiB (64 KiB) of a core's 128 KiB of shared memory.
PVC = XMX("pvc", 16, 64, shared_bytes=128 * 1024, core_shared_bytes=128 * 1024, threads=64)
DG2 = XMX("dg2", 8, 32, shared_bytes=64 * 1024, core_shared_bytes=128 * 1024, threads=128)


def target_config(device: XMX) -> dict[str, Any]:
    """The TVM target of a device, with its limits (TVM assumes those of a phone)."""
    return {
        "kind": "opencl",
        "model": device.model,
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": device.shared_bytes,
        "host": "llvm",
    }


@dataclass(frozen=True)
class _XMXTemplate:
    """The functions of a template for one device."""

    device: XMX

    def supports(self, mlp: MLP, target: Any) -> str | None:
        """See ``Template.supports``."""
        return _target_refusal(self.device, target) or self._refusal(mlp, target)

    def _refusal(self, mlp: MLP, target: Any) -> str | None:
        if mlp.dtype == "float32":
            return "XMX multiplies 16-bit types; float32 takes the plain OpenCL template"
        if (reason := too_many_arguments(mlp, target)) is not None:
            return reason
        need = register_need(mlp, self._plan(4, 1, self._tile_counts(mlp)[0], 0))
        file = 256 * self.device.register_bytes
        if need > file:
            return f"{need} bytes of registers for 4 rows; a sub-group has {file}"
        return None

    def space(self, mlp: MLP, target: Any) -> ListSpace:
        """See ``Template.space``.  Only candidates that certainly spill are left out."""
        if (reason := self.supports(mlp, target)) is not None:
            raise ScheduleError(reason)
        shared = shared_bytes(mlp)
        tiles = self._tile_counts(mlp)

        def sub_groups(prefix: Prefix) -> tuple[Value, ...]:
            most = self.device.threads * 128 // int(prefix[1])
            return tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= most)

        def rows(prefix: Prefix) -> tuple[Value, ...]:
            return tuple(r for r in (4, 8, 16, 32) if accumulators((*prefix, r)))

        def accumulators(prefix: Prefix) -> tuple[Value, ...]:
            file = int(prefix[1]) * self.device.register_bytes
            plans = ((n, self._plan(int(prefix[3]), 1, n, 0)) for n in tiles)
            return tuple(n for n, plan in plans if register_need(mlp, plan) <= file)

        def registers(prefix: Prefix) -> tuple[Value, ...]:
            return tuple(n for n in (128, 256) if rows((*prefix, n, 1)))

        return ListSpace(
            ("staged", "registers", "sub_groups", "rows_per_sub_group", "accumulators"),
            ((1, 0) if shared <= self.device.shared_bytes else (0,), registers, sub_groups, rows)
            + (accumulators,),
            version=f"xmx {self.device.model} 1",
        )

    def _tile_counts(self, mlp: MLP) -> tuple[int, ...]:
        """Numbers of column tiles to sum up at once: pairs on 8 lanes, which make a block of 16."""
        most = max(padded(n) for _, n in mlp.shapes) // self.device.lanes
        least = DEPTH // self.device.lanes
        counts = [least << i for i in range(5) if least << i < most]
        return (*counts, most)

    def _plan(self, rows: int, sub_groups: int, accumulators: int, staged: int) -> Plan:
        return Plan(self.device.lanes, rows, sub_groups, accumulators, bool(staged))

    def defaults(self, mlp: MLP) -> dict[str, int]:
        """The untuned schedule: 8 rows, weights staged where they fit, no spills expected.

        The large register file only where the small one is tight: it halves the threads.
        """
        shared = shared_bytes(mlp)
        staged = int(shared <= self.device.shared_bytes)
        counts = self._tile_counts(mlp)
        wide = max(mlp.widths) > _WIDEST_OF_8_ROWS
        choices = [
            (registers, rows, tiles)
            for rows in ((4,) if wide else (8, 4))
            for registers in (128, 256)
            for tiles in reversed(counts[: counts.index(min(counts, key=lambda n: abs(n - 4))) + 1])
        ]
        for registers, rows, tiles in choices:
            need = register_need(mlp, self._plan(rows, 1, tiles, staged))
            if need <= _DEFAULT_SHARE * registers * self.device.register_bytes:
                break
        return {
            "staged": staged,
            "registers": registers,
            "sub_groups": min(32, self.device.threads * 128 // registers),
            "rows_per_sub_group": rows,
            "accumulators": tiles,
        }

    def build(self, mlp: MLP, batch: int | None, target: Any, **knobs: Any) -> FusedKernel:
        """See ``Build``.  Knobs that are not given are those of ``defaults``."""
        chosen = chosen_knobs(self.space(mlp, target), self.defaults(mlp), knobs)
        plan = self._plan(
            chosen["rows_per_sub_group"],
            chosen["sub_groups"],
            chosen["accumulators"],
            chosen["staged"],
        )
        packings = tuple(weight_packing(k, n, plan.lanes, mlp.dtype) for k, n in mlp.shapes)
        shared = shared_bytes(mlp) if plan.staged else 0
        options = ["-cl-std=CL2.0", *([LARGE_FILE] if chosen["registers"] == 256 else [])]
        launch = Launch(
            rows=plan.rows,
            threads=(plan.lanes, plan.sub_groups, 1),
            sub_group=plan.lanes,
            shared_bytes=shared,
            amend=functools.partial(
                xmx_source.amend, sub_group=plan.lanes, rows=plan.tile_rows, dtype=mlp.dtype
            ),
            build_options=tuple(options),
        )
        func = xmx_kernel.build(mlp, batch, packings, plan)
        return FusedKernel(mlp, batch, func, packings, chosen, launch)


def _target_refusal(device: XMX, target: Any) -> str | None:
    import tvm

    made = tvm.target.Target(target)
    if made.kind.name != "opencl":
        return f"the target is of kind {made.kind.name}, not opencl"
    model = made.attrs.get("model", "unknown")
    if model != device.model:
        return f"the target's model is {model}, not {device.model}"
    return None


def _template(device: XMX) -> Template:
    functions = _XMXTemplate(device)
    return Template(
        f"opencl-xmx-{device.model}",
        functions.build,
        functions.space,
        functions.supports,
        standalone=True,
    )


XMX_PVC = _template(PVC)
XMX_DG2 = _template(DG2)
