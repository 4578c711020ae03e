"""Training: offline on records (``fit``) and online within a run (``OnlineTrainer``).

A call first trains the whole network for some steps, then only the value heads on features that
are computed once: that part costs almost nothing and is what a few dozen measurements need most.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from .batching import Batch, Corpus, Example, collate, relative_speed
from .losses import decision_loss, value_loss
from .model import Seq2Seq

OnStep = Callable[[int, int], None]
"""Called with the number of optimiser steps done and to be done."""


@dataclass(frozen=True)
class TrainingConfig:
    """Optimiser settings.

    A ``value_weight`` of 0 leaves the value heads as they are: for records that name the best
    candidate of each problem and no other, so that there is nothing to compare.
    ``update_tokens`` bounds the work of one online update.  ``fine_tune`` multiplies the learning
    rates of online updates to a model that came trained, less still while there are few
    measurements: they must not undo what many other problems taught, and yet a start that misleads
    must be left behind within some 24 measurements.
    """

    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    batch_size: int = 64
    value_weight: float = 0.5
    base_weight: float = 0.1
    update_tokens: int = 20_000
    min_steps: int = 4
    max_steps: int = 40
    head_steps: int = 100
    head_examples: int = 512
    head_learning_rate: float = 2e-3
    fine_tune: float = 0.25


@dataclass(frozen=True)
class TrainingReport:
    """Mean losses of the last epoch (or update) and the number of optimiser steps."""

    steps: int
    decision_loss: float
    value_loss: float
    skipped: int


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread and restore the setting.

    The tensors are small, the other cores belong to the measurements, and sums on a fixed number
    of threads are the same on every machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FeatureStatistics:
    """Mean and scale of the value features: a batch's own, mixed with what the model came with.

    The mix keeps pretrained value heads meaningful when the first few measurements of a new
    problem arrive: at most ``PRIOR_COUNT`` earlier examples are counted.
    """

    PRIOR_COUNT = 512.0

    def __init__(self, model: Seq2Seq) -> None:
        self.mean, self.variance = model.feature_mean.clone(), model.feature_scale.square()
        self.count = min(float(model.feature_count), self.PRIOR_COUNT)

    def mix(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and scale (F,) for a batch (B, F); the scale is safe where a feature is constant."""
        mean, variance = features.mean(0), features.var(0, unbiased=False)
        part = self.count / (self.count + len(features))
        if part:
            between = part * (1 - part) * (self.mean - mean).square()
            variance = part * self.variance + (1 - part) * variance + between
            mean = part * self.mean + (1 - part) * mean
        return mean, torch.sqrt(variance + 1e-4)


class OnlineTrainer:
    """Trains one model on everything it was given so far.

    Same model, seed and sequence of calls give the same weights on a CPU, in every process.
    """

    def __init__(self, model: Seq2Seq, seed: int = 0, config: TrainingConfig | None = None) -> None:
        self.model = model
        self.config = config or TrainingConfig()
        self.corpus = Corpus(model.config.buckets)
        self._generator = torch.Generator().manual_seed(seed)
        self._statistics = FeatureStatistics(model)
        self._made: torch.optim.AdamW | None = None

    @property
    def _optimizer(self) -> torch.optim.AdamW:
        """Made when it is first used: torch imports its compiler for it, seconds that whoever only
        predicts need not wait."""
        if self._made is None:
            self._made = _optimizer(self.model.parameters(), self.config.learning_rate, self.config)
        return self._made

    def update(self, examples: Iterable[Example]) -> TrainingReport:
        """Learn from new examples and replay old ones; under a second of one core or so.

        The first batches hold the new examples, the rest is drawn from all.
        """
        fresh = self.corpus.add(examples)
        if not len(self.corpus):
            return TrainingReport(0, 0.0, 0.0, 0)
        with one_thread():
            batches = self._update_batches(fresh)
            factor = self._caution()
            report = self._train(batches, [factor * self.config.learning_rate] * len(batches))
            self._train_heads(factor)
        return report

    def fit(
        self, examples: Iterable[Example], epochs: int, on_step: OnStep | None = None
    ) -> TrainingReport:
        """Train for some epochs over everything given so far, with warm-up and cosine decay."""
        self.corpus.add(examples)
        if not len(self.corpus):
            raise ValueError("expected at least one example to fit on, got none")
        batches = [batch for _ in range(epochs) for batch in self._epoch_batches()]
        warm, total = min(20, len(batches) // 5 + 1), len(batches)
        rates = [
            self.config.learning_rate
            * min((i + 1) / warm, 0.5 * (1.02 + math.cos(math.pi * i / total)))
            for i in range(total)
        ]
        with one_thread():
            report = self._train(batches, rates, on_step)
            if self.config.value_weight:
                self._train_heads()
        return report

    def clone(self, model: Seq2Seq) -> OnlineTrainer:
        """An independent trainer in the same state for ``model``, a copy of this one's model."""
        twin = OnlineTrainer(model, 0, self.config)
        twin.corpus = copy.deepcopy(self.corpus)
        twin._generator.set_state(self._generator.get_state())
        twin._statistics = copy.deepcopy(self._statistics)
        if self._made is not None:
            twin._optimizer.load_state_dict(copy.deepcopy(self._made.state_dict()))
        return twin

    def _caution(self) -> float:
        """Factor of the learning rates: 1, or less for a model that came trained."""
        if not self._statistics.count:
            return 1.0
        return self.config.fine_tune * math.sqrt(
            min(1.0, len(self.corpus) / self.config.batch_size)
        )

    def _permutation(self, size: int) -> list[int]:
        order: list[int] = torch.randperm(size, generator=self._generator).tolist()
        return order

    def _epoch_batches(self) -> list[list[int]]:
        """Batches of candidates of one length where there are enough: padding costs time."""
        order, size = self._permutation(len(self.corpus)), self.config.batch_size
        lengths = [len(item.knobs) for item in self.corpus.items]
        if len(set(lengths)) == 1:
            return [order[i : i + size] for i in range(0, len(order), size)]
        order.sort(key=lambda i: lengths[i])
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        return [batches[i] for i in self._permutation(len(batches))]

    def _update_batches(self, fresh: Sequence[int]) -> list[list[int]]:
        """New examples first, each batch filled up from the replay, within the token budget."""
        size, total = self.config.batch_size, len(self.corpus)
        tokens = sum(len(item.knobs) + 1 for item in self.corpus.items) / total * min(size, total)
        # few new ones among many, or few in all (which would be learnt by heart): fewer steps
        share = len(fresh) / (len(fresh) + total / 4) * min(1.0, total / size)
        steps = min(self.config.update_tokens / tokens, self.config.max_steps * share)
        steps = max(self.config.min_steps, int(steps))
        queue = list(fresh)
        batches = []
        for _ in range(steps):
            head, queue = queue[: size // 2], queue[size // 2 :]
            if not queue:
                queue = list(fresh)
            rest = [i for i in self._permutation(total)[:size] if i not in set(head)]
            batches.append((head + rest)[:size])
        return batches

    def _batch(self, indices: Sequence[int]) -> Batch:
        corpus = self.corpus
        return collate(corpus.table, corpus.problems, [corpus.items[i] for i in indices])

    def _train(
        self,
        batches: Sequence[Sequence[int]],
        rates: Sequence[float],
        on_step: OnStep | None = None,
    ) -> TrainingReport:
        """One optimiser step per batch; a step whose gradient is not finite is skipped."""
        decisions, values, skipped = [], [], 0
        for done, (indices, rate) in enumerate(zip(batches, rates, strict=True)):
            if on_step is not None:
                on_step(done, len(batches))
            batch = self._batch(indices)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.zero_grad()
            decision, value = self._losses(batch)
            (decision + self.config.value_weight * value).backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
            if not math.isfinite(norm.item()):
                skipped += 1
                continue
            self._optimizer.step()
            decisions.append(decision.item())
            values.append(value.item())
        last = max(1, math.ceil(len(self.corpus) / self.config.batch_size))
        return TrainingReport(
            len(batches), _mean(decisions[-last:]), _mean(values[-last:]), skipped
        )

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not self.config.value_weight:
            only = decision_loss(self.model.decisions(batch), batch, self.config.base_weight)
            return only, torch.zeros(())
        log_probabilities, features = self.model(batch)
        mean, scale = self._statistics.mix(features)
        predicted = self.model.value_heads(((features - mean) / scale).clamp(-6.0, 6.0))
        targets = relative_speed(batch.quality, batch.ok)
        decision = decision_loss(log_probabilities, batch, self.config.base_weight)
        return decision, value_loss(predicted, targets, batch.problem)

    def _train_heads(self, factor: float = 1.0) -> None:
        """Standardise the features over the replay, then train the value heads alone on them."""
        model, config = self.model, self.config
        chosen = self._permutation(len(self.corpus))[: config.head_examples]
        features, targets, problem = self._replay_features(chosen)
        if not torch.isfinite(features).all():
            return
        mean, scale = self._statistics.mix(features)
        model.feature_mean.copy_(mean)
        model.feature_scale.copy_(scale)
        model.feature_count.fill_(self._statistics.count + len(chosen))
        scaled = ((features - mean) / scale).clamp(-6.0, 6.0)
        rate = factor * config.head_learning_rate
        optimizer = _optimizer(model.value_heads.parameters(), rate, config)
        for _ in range(int(config.head_steps * min(1.0, len(chosen) / config.batch_size))):
            rows = torch.randperm(len(chosen), generator=self._generator)[: config.batch_size]
            optimizer.zero_grad()
            loss = value_loss(model.value_heads(scaled[rows]), targets[rows], problem[rows])
            loss.backward()
            optimizer.step()

    def _replay_features(self, chosen: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        features, size = [], 2 * self.config.batch_size
        with torch.no_grad():
            for start in range(0, len(chosen), size):
                batch = self._batch(chosen[start : start + size])
                features.append(self.model.candidate_features(batch))
        items = [self.corpus.items[i] for i in chosen]
        quality, ok = torch.tensor([i.quality for i in items]), torch.tensor([i.ok for i in items])
        problem = torch.tensor([i.problem for i in items])
        return torch.cat(features), relative_speed(quality, ok), problem


def fit(
    model: Seq2Seq,
    examples: Iterable[Example],
    *,
    epochs: int = 20,
    seed: int = 0,
    config: TrainingConfig | None = None,
    on_step: OnStep | None = None,
) -> TrainingReport:
    """Train ``model`` in place on recorded examples; raises ``ValueError`` when there are none."""
    return OnlineTrainer(model, seed, config).fit(examples, epochs, on_step)


def _optimizer(
    parameters: Iterable[torch.nn.Parameter], learning_rate: float, config: TrainingConfig
) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        list(parameters),
        lr=learning_rate,
        betas=(0.9, 0.98),
        weight_decay=config.weight_decay,
        fused=True,
    )


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan
