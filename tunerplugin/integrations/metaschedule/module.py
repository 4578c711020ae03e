"""From a user's module to tuning tasks, and why some functions are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm

from ...errors import InputError
from ..compat import RELAY, extract_tasks, gpu_default_schedule, is_graph, normalize_mod, tirx
from .database import TaskCoverage
from .limits import is_gpu
from .task import TuningTask, UntunableError


@dataclass(frozen=True)
class ModuleTasks:
    """The tunable tasks of a module, and a ``skipped`` entry for every other function."""

    tasks: tuple[TuningTask, ...]
    skipped: tuple[TaskCoverage, ...]


def module_tasks(mod: Any, target: Any, params: Mapping[str, Any] | None = None) -> ModuleTasks:
    """Every task of a PrimFunc, a TIR module or a Relax module, most called first.

    A Relax module goes through the passes that ``compile_relax`` puts before
    ``MetaScheduleApplyDatabase``, so that what is tuned is what will be looked up.  Raises
    ``InputError`` when there is no function at all.
    """
    functions = _functions(mod, target, params)
    if not functions:
        raise InputError(
            "expected a module with at least one function to tune, got one without any: "
            "give a Relax module with operators or a TIR function"
        )
    tasks: list[TuningTask] = []
    skipped: list[TaskCoverage] = []
    for name, workload, weight in functions:
        try:
            tasks.append(TuningTask(name, workload, target, weight))
        except UntunableError as error:
            skipped.append(TaskCoverage(name, name, weight, "skipped", str(error)))
    return ModuleTasks(tuple(tasks), tuple(skipped))


def _functions(
    mod: Any, target: Any, params: Mapping[str, Any] | None
) -> list[tuple[str, Any, int]]:
    """(name, module with one ``main``, how often it is called)."""
    if isinstance(mod, tirx.PrimFunc):
        return [(_symbol(mod), normalize_mod(mod), 1)]
    if not isinstance(mod, tvm.IRModule):
        raise InputError(
            f"expected an IRModule or PrimFunc to tune, got {type(mod).__name__}: load the model "
            "with tunerplugin.load_model"
        )
    if not is_graph(mod):
        return [
            (str(var.name_hint), normalize_mod(function), 1)
            for var, function in mod.functions_items()
            if isinstance(function, tirx.PrimFunc)
        ]
    bound = dict(params or {})
    if not RELAY:
        mod = prepare_relax(mod, target, bound)
    extracted = extract_tasks(mod, target, bound)
    tasks = [(str(t.task_name), t.dispatched[0], int(t.weight)) for t in extracted]
    return sorted(tasks, key=lambda task: (-task[2], task[0]))


def prepare_relax(mod: Any, target: Any, params: dict[str, Any]) -> Any:
    """The module as ``compile_relax`` has it when it consults the database."""
    from tvm import relax

    if params:
        mod = relax.transform.BindParams("main", params)(mod)
    dispatch = relax.pipeline.library_dispatch_passes(target)
    passes = [
        *dispatch,
        relax.transform.LegalizeOps(enable_warning=False),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def untuned_module(task: TuningTask) -> Any:
    """Candidate 0: what TVM builds without tuning (on a GPU, with its default schedules)."""
    if not is_gpu(task.target):
        return task.mod
    return gpu_default_schedule(task.mod, task.target)


def _symbol(function: Any) -> str:
    attributes = function.attrs or {}
    # not get(): attributes of the Relay era have none
    return str(attributes["global_symbol"]) if "global_symbol" in attributes else "main"
