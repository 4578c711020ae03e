"""The predictor's value head as a MetaSchedule cost model."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...measure import preload_tensor_intrinsics
from ...outcome import Outcome, Status
from ...predictor import Predictor
from ...search import History
from ...space import Prefix
from ..compat import derived_object, ms, structural_hash
from .limits import complete_target
from .pretrained import load_predictor
from .task import DesignSpace, TuningTask

_live: weakref.WeakSet[Any] = weakref.WeakSet()


@derived_object
class Seq2SeqModel(ms.cost_model.PyCostModel):
    """Scores candidates by predicted relative speed; learns from every measurement.

    Works under any of TVM's search strategies: candidates are recognised by their traces.  A
    candidate of an unknown design space scores 0.

    Args:
        weights: a safetensors file of ``tunerplugin.predictor.Predictor`` (default: what ships
            with the package, if any).
        seed: of the predictor.
    """

    def __init__(self, weights: str | os.PathLike[str] | None = None, seed: int = 0) -> None:
        super().__init__()
        preload_tensor_intrinsics()  # before TuneContext does it slowly
        self.predictor = load_predictor(weights, seed)
        self._seed = seed
        self._tasks: dict[tuple[int, str], tuple[TuningTask, History]] = {}
        _live.add(self)

    def load(self, path: str) -> None:
        """Replace the predictor by the one saved at ``path``; raises ``WeightsError``."""
        self.predictor = Predictor.load(path, self._seed)

    def save(self, path: str) -> None:
        """Save the predictor as safetensors."""
        self.predictor.save(path)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements; failed ones teach too."""
        task, history = self._task(context)
        for candidate, result in zip(candidates, results, strict=True):
            values = task.values_of(candidate.sch.trace)
            if values is not None and task.space.contains(values):
                history.tell(values, outcome_of(result))
        examples = history.examples()
        if examples:
            self.predictor.update(examples)

    def predict(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        """Relative speed in [0, 1] of each candidate, shape (n,)."""
        task, _ = self._task(context)
        scores = np.zeros(len(candidates))
        known: dict[int, Prefix] = {}
        for i, candidate in enumerate(candidates):
            values = task.values_of(candidate.sch.trace)
            if values is not None:
                known[i] = values
        if known:
            ranks = self.predictor.rank(task.problem, task.space, list(known.values()))
            scores[list(known)] = np.exp2(np.minimum(ranks, 0.0))
        return scores

    def _task(self, context: Any) -> tuple[TuningTask, History]:
        key = (structural_hash(context.mod), str(context.target))
        if key not in self._tasks:
            task = task_of_context(context, list(context.generate_design_space()))
            self._tasks[key] = (task, History(task.problem, task.space))
        return self._tasks[key]


def task_of_context(context: Any, designs: Sequence[Any]) -> TuningTask:
    """The task that TVM set up; raises ``UntunableError``."""
    postprocs = tuple(context.space_generator.postprocs or ())
    return TuningTask(
        str(context.task_name or "main"),
        context.mod,
        complete_target(context.target),
        design_space=DesignSpace(tuple(designs), postprocs),
    )


def outcome_of(result: Any) -> Outcome:
    """A TVM runner's result as an outcome."""
    if result.run_secs:
        return Outcome.from_samples([float(s) for s in result.run_secs])
    lines = str(result.error_msg or "no reason given").strip().splitlines()
    status = Status.TIMEOUT if "timeout" in lines[0].lower() else Status.RUN_ERROR
    return Outcome(status, (), lines[0][:200])


def find_model(cost_model: Any) -> Any:
    """Our Python object behind a cost model that TVM hands over, ``None`` for TVM's own."""
    for model in _live:
        outer = model._outer() if hasattr(model, "_outer") else None
        if cost_model is not None and outer is not None and outer.same_as(cost_model):
            return model
    return None
