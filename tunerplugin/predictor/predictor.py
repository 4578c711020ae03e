"""The predictor as the search sees it: a ``Scorer`` that can be trained, saved and loaded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..space import Knob, Problem, Space, Value
from .batching import Example, collate
from .encoding import WordTable
from .inference import Embeddings, encode_candidates
from .layers import KeyValue, ModelConfig
from .model import Seq2Seq, build_model, quality_features
from .training import OnlineTrainer, OnStep, TrainingConfig, TrainingReport, fit, one_thread
from .weights import Table, WeightsInfo, load_weights, save_weights

FloatArray = NDArray[np.float64]

_MAX_CACHED_WORDS = 50_000
_RANK_CHUNK = 256


@contextmanager
def _inference() -> Iterator[None]:
    """One thread, no gradients."""
    with one_thread(), torch.inference_mode():
        yield


@dataclass
class _Pending:
    """The decoder one token further, for the knobs that were scored."""

    bags: list[int]
    hidden: Tensor  # (B, D)
    caches: list[KeyValue]


@dataclass
class _State:
    """A batch of hypotheses of equal length."""

    embeddings: Embeddings
    memory: list[KeyValue]  # batch 1
    memory_mask: Tensor  # (1, 1, 1, N)
    past: list[KeyValue] | None
    previous: Tensor  # (B, D) the last value, or the begin token
    step: int
    pending: _Pending | None = None


def _gather(caches: list[KeyValue], chosen: Tensor) -> list[KeyValue]:
    """The caches of some hypotheses."""
    return [(key[chosen], value[chosen]) for key, value in caches]


def _fresh(state: _State) -> Embeddings:
    if state.embeddings.stale:
        raise ValueError(
            "expected a state of the current weights, got an older one; call start again"
        )
    return state.embeddings


class Predictor:
    """Translates a problem into knob decisions and predicts the speed of candidates.

    Implements ``tunerplugin.search.scorer.Scorer``.  Untrained, it is uniform over the legal
    values and ranks all candidates alike.  If its weights diverge it says so once and
    behaves as untrained.  Deterministic on a CPU: seed and calls fix every number.  States do not
    survive ``update`` and ``fit``.  ``tables`` are saved and loaded with it, and mean something to
    the source that put them there only.
    """

    def __init__(
        self,
        seed: int = 0,
        config: ModelConfig | None = None,
        training: TrainingConfig | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._setup(
            build_model(config or ModelConfig(), generator), seed, training or TrainingConfig()
        )

    def _setup(self, model: Seq2Seq, seed: int, training: TrainingConfig) -> None:
        self.model = model
        self.seed = seed
        self.training = training
        self.info = WeightsInfo()
        self.tables: dict[str, Table] = {}
        self._trainer = OnlineTrainer(model, seed, training)
        self._embeddings = Embeddings(model)
        self._warned = False

    def start(self, problem: Problem) -> _State:
        """The state of one empty hypothesis; see ``Scorer``."""
        with _inference():
            if len(self._embeddings.table) > _MAX_CACHED_WORDS:
                self._embeddings = Embeddings(self.model)
            embeddings = self._embeddings
            rows = embeddings.table.problem_rows(problem)
            index = torch.arange(len(rows)).unsqueeze(0)
            memory = self.model.encode(embeddings.words(rows), index, torch.ones_like(index).bool())
            begin = self.model.begin.detach().unsqueeze(0)
            kv, mask = self.model.memory_keys_values(memory), memory.mask[:, None, None, :]
            return _State(embeddings, kv, mask, None, begin, 0)

    def score(
        self,
        state: _State,
        knobs: Sequence[Knob],
        legal: Sequence[tuple[Value, ...]],
        quality: float = 1.0,
    ) -> list[FloatArray]:
        """Log-probabilities of the legal values, for candidates of that quality; see ``Scorer``."""
        if not knobs:
            return []
        embeddings = _fresh(state)
        with _inference():
            bags = [embeddings.table.bag(knob.words) for knob in knobs]
            state.pending = self._advance(state, bags)
            asked = quality_features(torch.tensor([quality]), torch.tensor([True]))
            queries = self.model.queries(state.pending.hidden, embeddings.bags(bags), asked)
            rows = [embeddings.legal_rows(values) for values in legal]
            counts = np.array([len(row) for row in rows])
            used, index = np.unique(np.concatenate(rows), return_inverse=True)
            padded = np.zeros((len(rows), max(1, int(counts.max()))), dtype=np.int64)
            padded[np.arange(padded.shape[1]) < counts[:, None]] = index
            scores = self.model.log_probabilities(
                queries,
                embeddings.words(used),
                torch.from_numpy(padded),
                torch.from_numpy(counts),
            )
            return self._normalised(scores.double().numpy(), counts)

    def extend(
        self, state: _State, parents: Sequence[int], knobs: Sequence[Knob], values: Sequence[Value]
    ) -> _State:
        """The state of ``parents[i]`` followed by ``values[i]``; see ``Scorer``.

        Costs nothing but copies when the knobs are those that were scored.
        """
        embeddings = _fresh(state)
        with _inference():
            chosen = torch.tensor(parents, dtype=torch.long)
            bags = [embeddings.table.bag(knob.words) for knob in knobs]
            pending = state.pending
            if pending is not None and all(
                pending.bags[p] == bag for p, bag in zip(parents, bags, strict=True)
            ):
                past = _gather(pending.caches, chosen)
            else:
                copied = _gather(state.past, chosen) if state.past else None
                parent = replace(state, past=copied, previous=state.previous[chosen], pending=None)
                past = self._advance(parent, bags).caches
            previous = embeddings.words(embeddings.table.value_rows(values))
            return replace(state, past=past, previous=previous, step=state.step + 1, pending=None)

    def rank(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """Predicted relative log2 speed of complete candidates; see ``Scorer``.

        Higher is faster.  Raises ``SpaceError`` for a candidate that is too long.
        """
        mean: FloatArray = self._values(problem, space, candidates).mean(axis=0)
        return mean

    def uncertainty(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """Standard deviation over the value heads, in the unit of ``rank``."""
        spread: FloatArray = self._values(problem, space, candidates).std(axis=0)
        return spread

    def update(self, examples: Iterable[Example]) -> TrainingReport:
        """Learn from the measurements of a running search, replaying all earlier ones."""
        report = self._trainer.update(examples)
        self._embeddings.stale = True
        self._embeddings = Embeddings(self.model)
        return report

    def fit(
        self, examples: Iterable[Example], *, epochs: int = 20, on_step: OnStep | None = None
    ) -> TrainingReport:
        """Train on records; they are not replayed by later updates.

        ``on_step(done, total)`` is called before every optimiser step.  Raises ``ValueError`` when
        there are no examples.
        """
        self._embeddings.stale = True
        report = fit(
            self.model,
            examples,
            epochs=epochs,
            seed=self.seed,
            config=self.training,
            on_step=on_step,
        )
        self._setup(self.model, self.seed, self.training)
        return report

    def save(self, path: str | Path, info: WeightsInfo | None = None) -> None:
        """Write the weights (safetensors); see ``save_weights``."""
        save_weights(self.model, path, info or self.info, self.tables)

    @classmethod
    def load(
        cls, path: str | Path, seed: int = 0, training: TrainingConfig | None = None
    ) -> Predictor:
        """A predictor with saved weights; raises ``WeightsError`` when they do not fit."""
        model, info, tables = load_weights(path)
        predictor = cls.__new__(cls)
        predictor._setup(model, seed, training or TrainingConfig())
        predictor.info, predictor.tables = info, tables
        return predictor

    def clone(self) -> Predictor:
        """An independent predictor in the same state, its replay included."""
        twin = type(self).__new__(type(self))
        twin._setup(copy.deepcopy(self.model), self.seed, self.training)
        twin.info, twin.tables = self.info, self.tables
        twin._trainer = self._trainer.clone(twin.model)
        return twin

    def _advance(self, state: _State, bags: list[int]) -> _Pending:
        """Feed one token per hypothesis; a repeated question is answered from memory."""
        if state.pending is not None and state.pending.bags == bags:
            return state.pending
        size = len(state.previous)
        if len(bags) != size:
            raise ValueError(f"expected one knob for each of {size} hypotheses, got {len(bags)}")
        knobs = state.embeddings.bags(bags).unsqueeze(1)
        tokens = self.model.step_tokens(knobs, state.previous.unsqueeze(1), state.step)
        memory = [(k.expand(size, -1, -1, -1), v.expand(size, -1, -1, -1)) for k, v in state.memory]
        hidden, caches = self.model.decode(tokens, state.past, memory, state.memory_mask)
        return _Pending(bags, hidden[:, 0], caches)

    def _normalised(self, scores: FloatArray, counts: NDArray[np.int64]) -> list[FloatArray]:
        """Rows cut to their legal values and normalised in double precision, or uniform."""
        if not np.isfinite(scores).all():
            self._warn()
            return [np.full(n, -np.log(max(n, 1))) for n in counts]
        rows = [row[:n] for row, n in zip(scores, counts, strict=True)]
        return [row - np.log(np.exp(row).sum()) if len(row) else row for row in rows]

    def _values(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """Prediction of each value head (E, candidates); zeros with diverged weights."""
        if not candidates:
            return np.zeros((self.model.config.value_heads, 0))
        table = WordTable(self.model.config.buckets)
        problems = [table.problem_rows(problem)]
        items = encode_candidates(table, space, candidates)
        with _inference():
            chunks = [items[i : i + _RANK_CHUNK] for i in range(0, len(items), _RANK_CHUNK)]
            parts = [
                self.model.candidate_features(collate(table, problems, chunk)) for chunk in chunks
            ]
            values: FloatArray = (
                torch.cat([self.model.value(part) for part in parts], 1).double().numpy()
            )
        if not np.isfinite(values).all():
            self._warn()
            return np.zeros_like(values)
        return values

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                "expected finite predictions, got NaN or infinity: the predictor's weights have "
                "diverged; the search goes on without it, load or train other weights",
                RuntimeWarning,
                stacklevel=4,
            )
