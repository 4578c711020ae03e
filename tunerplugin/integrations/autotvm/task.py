"""One AutoTVM task: its problem, its space, its default configuration, and TVM's verdicts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tvm.autotvm.task.space import FallbackConfigEntity

from ... import environment
from ...errors import InputError, TunerError
from ...space import Prefix, Problem
from ..metaschedule.limits import HardwareLimits, complete_target, is_gpu
from .describe import describe_task
from .space import TemplateSpace
from .threads import kernel_threads, thread_limits


class IllegalConfiguration(TunerError):
    """A template refused a configuration, with the reason in one line."""


class TemplateTask:
    """A task of AutoTVM in our two languages.  Raises ``InputError`` for what is no task."""

    def __init__(self, task: Any) -> None:
        if getattr(task, "config_space", None) is None or task.target is None:
            raise InputError(
                f"expected a task with a configuration space, got {task!r}: "
                "make it with autotvm.task.create or extract_from_program"
            )
        self.task = task
        self.problem: Problem = describe_task(task)
        self.space = TemplateSpace(task.config_space)
        self._max_threads: int | None = None
        if is_gpu(task.target):
            self._max_threads = HardwareLimits.of(
                complete_target(task.target)
            ).max_threads_per_block
        if self._max_threads is not None:
            found = thread_limits(self.space, self._count_threads, self._max_threads)
            self.space.constraints = (*self.space.constraints, *found)

    def default(self) -> Prefix | None:
        """The configuration that TVM compiles with when nothing was tuned.

        ``None`` where the template has none, or one that is not in its own space.
        """
        config = FallbackConfigEntity()
        try:
            with without_tophub(), self.task.target:
                self.task.instantiate(config)
        except Exception:  # noqa: BLE001  the template's own code may raise anything
            return None
        return self.space.values_of(config)

    def check(self, values: Prefix) -> None:
        """Raise ``IllegalConfiguration`` for what the template or the GPU's threads refuse."""
        schedule, _ = instantiate(self.task, self.space.config(values))
        if self._max_threads is None:
            return
        for kernel, threads in kernel_threads(schedule).items():
            if threads > self._max_threads:
                raise IllegalConfiguration(
                    f"{threads} threads per block in {kernel}, the GPU has {self._max_threads}"
                )

    def _count_threads(self, values: Prefix) -> dict[str, int] | None:
        """Threads per block of each kernel; ``None`` for what the template refuses."""
        try:
            schedule, _ = instantiate(self.task, self.space.config(values))
        except IllegalConfiguration:
            return None
        return kernel_threads(schedule)


def instantiate(task: Any, config: Any) -> tuple[Any, Any]:
    """The TE schedule and arguments of a task with a ``ConfigEntity``.

    Raises ``IllegalConfiguration`` when the template raises or registers an error.
    """
    try:
        with task.target:
            schedule, arguments = task.instantiate(config)
    except Exception as error:  # noqa: BLE001  the template's own code may raise anything
        raise IllegalConfiguration(one_line(error)) from error
    if not config.valid():
        raise IllegalConfiguration("; ".join(str(reason) for reason in config.errors))
    return schedule, list(arguments)


def without_tophub() -> AbstractContextManager[None]:
    """Inside, templates do not download reference logs for their defaults."""
    return environment.variable("TOPHUB_LOCATION", "NONE")


def one_line(error: BaseException) -> str:
    """Type and last line of an error: TVM puts stack traces first."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:300]
