"""Our search as a tuner of AutoTVM."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm.autotvm.tuner import Tuner as BaseTuner

from ...errors import EmptySpaceError
from ...outcome import Outcome, Status
from ...predictor import Predictor, load_packaged
from ...search import LearningScorer, Tuner, TunerOptions
from ...space import Prefix
from .history import examples_of
from .outcomes import outcome_of
from .task import IllegalConfiguration, TemplateTask

#: wider than where MetaSchedule's weights are used: those for templates know a few tasks only, and
#: a sure decoder stopped improving after 16 trials (examples/benchmarks/relay_tune.py)
OPTIONS = TunerOptions(explore=0.3, temperature=2.5)
#: outcomes that the predictor waits for before it learns again
LEARN_EVERY = 4
#: asks in a row of which the template refuses every candidate, after which it counts as hopeless
_MAX_FRUITLESS = 64
_MOST_DOUBLINGS = 7


class Seq2SeqTuner(BaseTuner):
    """Proposes configurations by constrained beam search over the predictor's knob language.

    An ``autotvm.tuner.Tuner`` like any other: ``tune`` takes AutoTVM's measure options and
    callbacks.  The first candidate is the template's default configuration, so what is tuned is
    never slower than what is not.  No configuration is proposed twice, none that AutoTVM's filters
    or the template itself refuse, and a small space is used up exactly.

    Args:
        task: of ``autotvm.task.create`` or ``extract_from_program``.
        seed: of everything random; with equal measurements, equal seeds propose equal candidates.
        weights: a safetensors file of ``tunerplugin.predictor.Predictor`` (default: what ships
            with the package).
        predictor: a scorer that learns, instead of one from ``weights``; what it has learnt
            survives a ``reset``.
        options: of the search (default: ``OPTIONS``).

    Raises ``InputError`` for what is no task and ``WeightsError`` for weights that do not fit.
    """

    def __init__(
        self,
        task: Any,
        *,
        seed: int = 0,
        weights: str | os.PathLike[str] | None = None,
        predictor: LearningScorer | None = None,
        options: TunerOptions = OPTIONS,
    ) -> None:
        super().__init__(task)
        self.best_flops: float = 0.0
        self._template = TemplateTask(task)
        self._seed, self._weights, self._options = seed, weights, options
        self._given = predictor
        self._default = self._template.default()
        self._start()

    def _start(self) -> None:
        self._predictor = self._given or _load(self._weights, self._seed)
        template = self._template
        self.search = Tuner(
            template.problem,
            template.space,
            self._predictor,
            seed=self._seed,
            options=self._options,
        )
        self._queue: list[Prefix] = []
        self._batch = 1
        self._unlearnt = 0
        self._taken_default = self._default is None

    def reset(self) -> None:
        """Forget every measurement and start again from the seed."""
        super().reset()
        self._start()

    def has_next(self) -> bool:
        """Whether a configuration is left that was not proposed."""
        self._fill(self._batch)
        return bool(self._queue)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Up to ``batch_size`` new ``ConfigEntity``; fewer, at last none, as the space is used
        up."""
        self._batch = batch_size
        self._fill(batch_size)
        chosen, self._queue = self._queue[:batch_size], self._queue[batch_size:]
        return [self._template.space.config(values) for values in chosen]

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Take in measurements, failed ones too; configurations of other spaces are ignored."""
        for given, result in zip(inputs, results, strict=True):
            values = self._template.space.values_of(given.config)
            if values is not None:
                self.search.tell(values, outcome_of(result))
                self._unlearnt += 1

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 1) -> None:
        """Warm-start from records, e.g. of ``autotvm.record.load_from_file``.

        Those of this task count as measured: they are not proposed again, and the best of them is
        ``best_config`` until a better one is found.  Those of other tasks of the same templates
        teach the predictor, if there are ``min_seed_records`` at least.
        """
        others = []
        for given, result in data_set:
            if given.task.workload == self.task.workload and _alike(given.target, self.task.target):
                self.update([given], [result])
                self._keep_best(given, result)
            else:
                others.append((given, result))
        if others and len(others) >= min_seed_records:
            self._predictor.update(examples_of(others))

    def _keep_best(self, given: Any, result: Any) -> None:
        latency = outcome_of(result).latency_s
        if latency is not None and self.task.flop / latency > self.best_flops:
            self.best_flops = self.task.flop / latency
            self.best_config = given.config
            self.best_measure_pair = (given, result)

    def _fill(self, wanted: int) -> None:
        """Queue candidates until ``wanted`` are there or nothing is left."""
        if len(self._queue) >= wanted:
            return
        if not self._taken_default:
            self._taken_default = True
            self._offer_default()
        fruitless = 0
        while len(self._queue) < wanted and fruitless < _MAX_FRUITLESS:
            if self._unlearnt >= LEARN_EVERY:
                self._unlearnt = 0
                self.search.learn()
            # a template that refuses much is asked about more at once
            asked = (wanted - len(self._queue)) << min(fruitless, _MOST_DOUBLINGS)
            found = list(self._legal(asked))
            if not found and self.search.exhausted:
                return
            self._queue += found
            fruitless = 0 if found else fruitless + 1

    def _offer_default(self) -> None:
        """Queue the default configuration, unless it was measured before."""
        if self._default is None or self._default in self.search.history.outcomes:
            return
        self.search.discard(self._default)
        if self._judge(self._default):
            self._queue.append(self._default)

    def _legal(self, count: int) -> Iterator[Prefix]:
        """Candidates of one ask that the template accepts."""
        if self.search.exhausted:
            return
        try:
            asked = self.search.ask(count)
        except EmptySpaceError:
            return
        for candidate in asked:
            if self._judge(candidate.values):
                yield candidate.values

    def _judge(self, values: Prefix) -> bool:
        """Whether the template accepts a candidate; a refusal is an outcome too."""
        try:
            self._template.check(values)
        except IllegalConfiguration as error:
            self.search.tell(values, Outcome(Status.ILLEGAL, reason=str(error)))
            self._unlearnt += 1
            return False
        return True


def _load(weights: str | os.PathLike[str] | None, seed: int) -> LearningScorer:
    if weights is not None:
        return Predictor.load(Path(weights), seed)
    return load_packaged("autotvm", seed) or Predictor(seed)


def _alike(left: Any, right: Any) -> bool:
    """Whether records of one target hold for the other: AutoTVM looks up by kind and model."""
    return bool(np.any([key in left.keys for key in right.keys])) and left.model == right.model
