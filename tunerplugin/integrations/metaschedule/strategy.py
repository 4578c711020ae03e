"""The constrained beam search as a MetaSchedule search strategy."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import EmptySpaceError
from ...measure import preload_tensor_intrinsics
from ...search import LearningScorer, TunerOptions
from ..compat import derived_object, ms
from .cost_model import find_model, outcome_of, task_of_context
from .pretrained import load_predictor
from .proposer import Proposal, Proposer
from .task import UntunableError

_log = logging.getLogger(__name__)

#: programs offered to a cost model of TVM for each one measured
FOREIGN_POOL = 4


@derived_object
class BeamSearch(ms.search_strategy.PySearchStrategy):
    """Decodes candidates with the predictor; TVM's scheduler, builder and runner do the rest.

    With ``Seq2SeqModel`` as cost model both share one predictor.  With a cost model of TVM, that
    model re-ranks what the beam search decodes; with none, the predictor's value head does.

    Args:
        weights: a safetensors file of the predictor (default: what ships with the package, if
            any).  Ignored when the cost model brings a predictor.
        seed: of the search.
    """

    def __init__(self, weights: str | os.PathLike[str] | None = None, seed: int = 0) -> None:
        super().__init__()
        preload_tensor_intrinsics()  # before TuneContext does it slowly
        self._weights, self._seed = weights, seed
        self._context: Any = None
        self._predictor: LearningScorer | None = None
        self._proposer: Proposer | None = None
        self._foreign: Any = None
        self._learns = True
        self._reserve: list[Proposal] = []
        self._proposed: list[Proposal] = []
        self._left = 0
        self._batch = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._context = context

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Any],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Set up one task; one that cannot be tuned is skipped with a warning."""
        self._left, self._batch = int(max_trials), int(num_trials_per_iter)
        self._reserve = []
        ours = find_model(cost_model)
        self._learns = ours is None
        self._foreign = cost_model if ours is None else None
        if ours is not None:
            self._predictor = ours.predictor
        elif self._predictor is None:
            self._predictor = load_predictor(self._weights, self._seed)
        try:
            task = task_of_context(self._context, design_spaces)
        except UntunableError as error:
            _log.warning("skipped: %s", error)
            self._proposer = None
            return
        # a model of TVM does the ranking itself
        options = TunerOptions(pool=1) if self._foreign is not None else TunerOptions()
        assert self._predictor is not None
        self._proposer = Proposer(task, self._predictor, self._seed, options)

    def post_tuning(self) -> None:
        """Nothing is held beyond a task."""

    def generate_measure_candidates(self) -> list[Any] | None:
        """The next batch, or ``None`` when the budget is spent or the space used up."""
        n = min(self._batch, self._left)
        if self._proposer is None or n <= 0:
            return None
        try:
            proposals = self._choose(n)
        except EmptySpaceError as error:
            _log.warning("skipped: %s: %s", self._proposer.task.name, error)
            return None
        if not proposals:
            return None
        self._left -= len(proposals)
        self._proposed = proposals
        return [_candidate(p) for p in proposals]

    def _choose(self, n: int) -> list[Proposal]:
        assert self._proposer is not None
        if self._foreign is None:
            return self._proposer.propose(n)
        pool = self._reserve + self._proposer.propose(n * FOREIGN_POOL - len(self._reserve))
        if not pool:  # a model of TVM's Relay era cannot score none
            return []
        scores = self._foreign.predict(self._context, [_candidate(p) for p in pool])
        order = np.argsort(-np.asarray(scores), kind="stable")
        self._reserve = [pool[i] for i in order[n:]]
        return [pool[i] for i in order[:n]]

    def notify_runner_results(
        self, measure_candidates: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """Learn from a batch, in the order in which it was generated."""
        if self._proposer is None:
            return
        tuner = self._proposer.tuner
        for proposal, result in zip(self._proposed, results, strict=True):
            tuner.tell(proposal.values, outcome_of(result))
        if self._learns:
            tuner.learn()

    def clone(self) -> Any:
        """A strategy for another task; it shares the predictor and what that has learnt."""
        twin = BeamSearch(self._weights, self._seed)
        twin._inst._predictor = self._predictor
        return twin


def _candidate(proposal: Proposal) -> Any:
    arguments = ms.arg_info.ArgInfo.from_entry_func(proposal.schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(proposal.schedule, arguments)
