"""What a predictor can learn from AutoTVM's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import autotvm

from ...predictor import Example
from ...search import History
from .outcomes import outcome_of
from .task import TemplateTask, without_tophub


def examples_of(records: Iterable[Any]) -> list[Example]:
    """Examples of (``MeasureInput``, ``MeasureResult``) pairs, as ``load_from_file`` gives them.

    Qualities are relative to the fastest of each task.  Records of templates that are not loaded
    here, and of configurations that a template no longer has, are left out.
    """
    templates: dict[str, TemplateTask | None] = {}
    histories: dict[str, History] = {}
    for given, result in records:
        key = f"{given.task.workload} {given.target}"
        if key not in templates:
            templates[key] = _template(given)
        template = templates[key]
        values = template.space.values_of(given.config) if template else None
        if template is None or values is None:
            continue
        if key not in histories:
            histories[key] = History(template.problem, template.space)
        histories[key].tell(values, outcome_of(result))
    return [example for history in histories.values() for example in history.examples()]


def _template(given: Any) -> TemplateTask | None:
    """The task of a record, with its space; ``None`` where this TVM cannot make it."""
    try:
        with without_tophub():
            task = autotvm.task.create(given.task.name, given.task.args, given.target)
        return TemplateTask(task)
    except Exception:  # noqa: BLE001  the template's own code may raise anything
        return None
