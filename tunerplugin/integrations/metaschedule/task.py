"""One tuning task: a workload on a target, its problem, its space, and schedules from values."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

import tvm

from ...errors import SpaceError, TunerError
from ...measure.script_speed import preload_tensor_intrinsics
from ...records import TaskKey, Workload
from ...space import Prefix, Problem, Space, UnionSpace
from ..compat import (
    Schedule,
    ScheduleError,
    compiler_version,
    ms,
    new_schedule,
    space_generator,
    structural_hash,
    target_config,
    tirx,
)
from .describe import block_family, describe_problem, main_block
from .hardware import hardware_constraints
from .limits import HardwareLimits
from .program import blocks
from .trace_space import TraceSpace

#: TVM samples the first decisions of a design space with it; no decision of ours depends on it
_SPACE_SEED = 1


class UntunableError(TunerError):
    """A function that no schedule can be searched for, with the reason in one sentence."""


class IllegalCandidate(TunerError):
    """TVM refused a candidate: which postprocessor, or the schedule error in one line."""


@dataclass(frozen=True)
class Scheduled:
    """A candidate that passed every postprocessor."""

    schedule: Schedule
    program: int


@dataclass(frozen=True)
class DesignSpace:
    """What TVM's space generator gives: the schedules whose traces sample, and the last judges."""

    designs: tuple[Any, ...]
    postprocs: tuple[Any, ...]


class TuningTask:
    """A workload with its design space.

    ``mod`` holds one PrimFunc called ``main``; ``design_space`` defaults to TVM's
    post-order-apply.  Raises ``UntunableError`` when the function has a dynamic shape or TVM finds
    no design space.
    """

    def __init__(
        self,
        name: str,
        mod: Any,
        target: Any,
        weight: int = 1,
        design_space: DesignSpace | None = None,
    ) -> None:
        self.name, self.mod, self.target, self.weight = name, mod, target, weight
        self._blocks = _static_blocks(name, mod)
        self.operator = block_family(main_block(self._blocks).name)
        self.limits = HardwareLimits.of(target)
        self.problem: Problem = describe_problem(self._blocks, target, self.limits)
        found = design_space or _generate(name, mod, target)
        self._postprocs = found.postprocs
        self.sketches = self._make_sketches(found.designs)
        self.space: Space = UnionSpace(self.sketches)

    def _make_sketches(self, designs: tuple[Any, ...]) -> list[TraceSpace]:
        by_name = {block.name: block for block in self._blocks}
        sketches: dict[str, TraceSpace] = {}
        for design in designs:
            space = TraceSpace(self.mod, design.trace, self._blocks)
            if space.version not in sketches:
                space.constraints = hardware_constraints(self.mod, space, by_name, self.limits)
                sketches[space.version] = space
        return list(sketches.values())

    @property
    def workload(self) -> Workload:
        """What the record store keeps of the workload."""
        return Workload(self.workload_key, self.name, tvm.ir.save_json(self.mod))

    @property
    def workload_key(self) -> str:
        """A hash that is equal for structurally equal functions."""
        return f"{structural_hash(self.mod):016x}"

    @property
    def target_text(self) -> str:
        """The target as JSON; sorted, as TVM names the attributes of equal targets in any order."""
        return json.dumps(target_config(self.target), sort_keys=True)

    def key(self, device: str) -> TaskKey:
        """What records of this task are filed under."""
        compiler, version = compiler_version(), self.space.version
        return TaskKey(self.workload_key, self.target_text, device, compiler, version)

    def schedule(self, values: Prefix) -> Scheduled:
        """The scheduled program of a candidate.

        Raises ``IllegalCandidate`` when TVM refuses it: the postprocessors are the last judge.
        """
        sketch = self._sketch(values)
        schedule = new_schedule(self.mod)
        stage = "the schedule"
        try:
            sketch.to_trace(values[1:]).apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            for postproc in self._postprocs:
                stage = type(postproc).__name__
                if not postproc.apply(schedule):
                    raise IllegalCandidate(f"refused by {stage}")
        except (ScheduleError, RuntimeError, ValueError, TypeError) as error:
            raise IllegalCandidate(f"refused by {stage}: {_one_line(error)}") from error
        return Scheduled(schedule, structural_hash(schedule.mod))

    def values_of(self, trace: Any) -> Prefix | None:
        """The candidate that a trace of MetaSchedule stands for, ``None`` for a foreign one."""
        for index, sketch in enumerate(self.sketches):
            values = sketch.from_trace(trace)
            if values is not None:
                return (index, *values)
        return None

    def _sketch(self, values: Prefix) -> TraceSpace:
        if not values or not isinstance(values[0], int) or values[0] >= len(self.sketches):
            raise SpaceError(f"expected a sketch in 0..{len(self.sketches) - 1}, got {values[:1]}")
        return self.sketches[values[0]]


def _static_blocks(name: str, mod: Any) -> list[Any]:
    functions = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    if len(functions) != 1:
        raise UntunableError(f"{name} has {len(functions)} functions where tuning needs one")
    try:
        found = blocks(functions[0])
    except ValueError as error:
        raise UntunableError(
            f"{name} has a dynamic shape ({error}); tuning needs static ones"
        ) from error
    if not found:
        raise UntunableError(f"{name} has no block that can be scheduled")
    return found


def _generate(name: str, mod: Any, target: Any) -> DesignSpace:
    preload_tensor_intrinsics()
    log = io.StringIO()
    try:
        with contextlib.redirect_stderr(log):
            context = ms.TuneContext(
                mod=mod,
                target=target,
                space_generator=space_generator(target),
                num_threads=1,
                rand_state=_SPACE_SEED,
                task_name=name,
            )
            designs = tuple(context.generate_design_space())
    except (ScheduleError, RuntimeError, ValueError, TypeError) as error:
        raise UntunableError(f"{name}: TVM finds no design space: {_one_line(error)}") from error
    if not designs:
        raise UntunableError(f"{name}: TVM's design space is empty")
    return DesignSpace(designs, tuple(p for p in context.space_generator.postprocs if _kept(p)))


def _kept(postproc: Any) -> bool:
    """Whether a postprocessor's effect reaches the compiled module.

    ``RewriteLayout`` packs weights in a block that measurement leaves out, trusting somebody to
    have packed them beforehand; ``compile_tir`` and ``compile_relax`` do not, so the module would
    be slower than what was measured.
    """
    return type(postproc).__name__ != "RewriteLayout"


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
