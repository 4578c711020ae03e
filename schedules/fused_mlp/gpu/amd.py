"""Fused MLPs on AMD GPUs: matrix instructions (MFMA, WMMA) where there are any, plain elsewhere.

``MATRIX`` keeps the activations of a wave's rows in registers through all layers (``amd_kernel``);
float32 has it on CDNA alone.  ``PLAIN`` is the plain OpenCL schedule, which runs on any of them.
"""

from __future__ import annotations

from typing import Any

from tunerplugin.errors import ScheduleError, TargetError
from tunerplugin.space import Constraint, ListSpace, Prefix, Value

from ...offline.amd import DEVICE_THREADS, compute_unit, register_limit
from ..description import MLP
from ..template import FusedKernel, Launch, Template
from . import opencl
from .amd_isa import MatrixInstruction, instructions
from .amd_plan import LDS_BYTES, WEIGHTS, Plan, Weights
from .builder import chosen_knobs

_NAMES = ("tile", "row_tiles", "waves", "weights")
_ROW_TILES = (1, 2, 4)
_SMALL_NETWORK_BYTES = 16384
"""Weights that are staged once: four work-groups still share a compute unit's LDS."""


class _Fits(Constraint):
    """The registers of a wave and the LDS of a work-group."""

    name = "registers and LDS"

    def __init__(self, mlp: MLP, processor: str) -> None:
        self.mlp, self.processor = mlp, processor

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``: exact once row tiles and weights are known."""
        if not prefix:
            return True
        given = [*prefix, *(1, 1, "memory")[len(prefix) - 1 :]]
        plan = _plan(self.mlp, self.processor, dict(zip(_NAMES, given, strict=True)))
        return plan.registers <= register_limit(self.processor) and plan.shared_bytes <= LDS_BYTES


def processor_of(target: Any) -> str:
    """LLVM's name of the target's processor.  Raises ``TargetError`` for another kind of target."""
    import tvm

    made = tvm.target.Target(target)
    if made.kind.name != "rocm" or "mcpu" not in made.attrs:
        raise TargetError(f"expected a rocm target with an mcpu such as gfx942, got {made}")
    return str(made.attrs["mcpu"])


def supports(mlp: MLP, target: Any) -> str | None:
    """See ``Template.supports``."""
    try:
        processor = processor_of(target)
        compute_unit(processor)
    except TargetError as error:
        return str(error)
    if not instructions(processor, mlp.dtype):
        return f"{processor} has no matrix instruction for {mlp.dtype}"
    if next(iter(_space(mlp, processor).enumerate()), None) is None:
        return (
            f"activations of widths up to {max(mlp.widths)} do not fit the "
            f"{register_limit(processor)} registers of a work-item on {processor}"
        )
    return None


def space(mlp: MLP, target: Any) -> ListSpace:
    """See ``Template.space``: within the registers of a wave and the LDS of a work-group."""
    if (reason := supports(mlp, target)) is not None:
        raise ScheduleError(reason)
    return _space(mlp, processor_of(target))


def _space(mlp: MLP, processor: str) -> ListSpace:
    wave = compute_unit(processor).wave
    tiles = tuple(one.tile for one in instructions(processor, mlp.dtype))
    waves = tuple(2**i for i in range(6) if 2**i * wave <= DEVICE_THREADS)
    domains = (tiles, _ROW_TILES, waves, WEIGHTS)
    return ListSpace(_NAMES, domains, (_Fits(mlp, processor),), version="amd matrix 1")


def defaults(mlp: MLP, target: Any) -> dict[str, Value]:
    """The untuned schedule.

    Two tiles of rows share each operand of weights where registers are plenty; a small network's
    weights are staged once, others layer by layer; the more LDS a work-group takes, the more waves
    share it.
    """
    processor = processor_of(target)
    isa = instructions(processor, mlp.dtype)[0]

    def plan(row_tiles: int, weights: Weights) -> Plan:
        return Plan(mlp, isa, row_tiles, 1, weights)

    # LLVM takes up to half as much again as it must; gfx11's replicated operands leave no room.
    roomy = plan(2, "layer").registers * 3 // 2 <= register_limit(processor)
    row_tiles = 2 if roomy and not isa.replicated else 1
    small = plan(1, "network").shared_bytes <= _SMALL_NETWORK_BYTES
    weights: Weights = "network" if small else "layer"
    shared = plan(row_tiles, weights).shared_bytes
    waves = 4 if shared <= 16384 else 8 if shared <= 32768 else 16
    return {"tile": isa.tile, "row_tiles": row_tiles, "waves": waves, "weights": weights}


def build(mlp: MLP, batch: int | None, target: Any, **knobs: Any) -> FusedKernel:
    """See ``Build``.  Knobs that are not given are those of ``defaults``."""
    from .amd_dialect import LLVM
    from .amd_kernel import emit

    chosen = chosen_knobs(space(mlp, target), defaults(mlp, target), knobs)
    plan = _plan(mlp, processor_of(target), chosen)
    return kernel_of(plan, batch, emit(mlp, batch, plan, LLVM()), chosen)


def kernel_of(plan: Plan, batch: int | None, func: Any, knobs: dict[str, Value]) -> FusedKernel:
    """A plan's kernel with what starts it."""
    wave = plan.instruction.wave
    launch = Launch(plan.rows, (wave, plan.waves, 1), wave, plan.shared_bytes)
    return FusedKernel(plan.mlp, batch, func, plan.packings, knobs, launch)


def _plan(mlp: MLP, processor: str, knobs: dict[str, Any]) -> Plan:
    isa = _instruction(processor, mlp, int(knobs["tile"]))
    return Plan(mlp, isa, int(knobs["row_tiles"]), int(knobs["waves"]), knobs["weights"])


def _instruction(processor: str, mlp: MLP, tile: int) -> MatrixInstruction:
    return next(one for one in instructions(processor, mlp.dtype) if one.tile == tile)


def _plain_target(target: Any) -> dict[str, Any]:
    """The OpenCL target whose limits are those of a rocm target."""
    import tvm

    processor_of(target)
    limits = tvm.target.Target(target).attrs
    names = ("max_threads_per_block", "max_shared_memory_per_block")
    return {"kind": "opencl", **{name: int(limits[name]) for name in names}}


def _plain_supports(mlp: MLP, target: Any) -> str | None:
    try:
        return opencl.supports(mlp, _plain_target(target))
    except TargetError as error:
        return str(error)


def _plain_space(mlp: MLP, target: Any) -> ListSpace:
    return opencl.space(mlp, _plain_target(target))


def _plain_build(mlp: MLP, batch: int | None, target: Any, **knobs: Any) -> FusedKernel:
    # Staged weights make LLVM spill here: 319 registers of gfx1100 at width 64, none from memory.
    return opencl.build(mlp, batch, _plain_target(target), **{"depth": 0, **knobs})


MATRIX = Template("amd-matrix", build, space, supports, standalone=True)
PLAIN = Template("amd-plain", _plain_build, _plain_space, _plain_supports)
