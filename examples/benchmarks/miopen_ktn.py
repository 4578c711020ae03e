"""A sequence model of the shape that AMD ships in MIOpen as KernelTuningNet, trained here.

ROCm/MIOpen ``src/conv/heuristics/ai_heuristics.cpp`` and the ``gfx908_ConvAsm1x1U`` model files: an
encoder Dense(32) -> LSTM(128) -> LSTM(128) over a matrix that has one number of the problem in each
row, on the diagonal; a decoder Embedding(8) -> LSTM(128) -> LSTM(128) -> Dense; no attention; one
word for each (position, value).  Decoding is greedy: the best word that the validity test lets
pass.  Here that test looks ahead, so decoding never runs into a dead end, which AMD's can.

Differs from AMD's: sizes are log2, and numbers that other solvers need (output sizes, window, GPU)
join the diagonal; those that never vary in the training set, or repeat another, are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from miopen_rivals import Query, Tuple, device_numbers

from tunerplugin.sources.miopen import PerfRecord, solver_of

_HIDDEN, _DENSE, _EMBEDDING, _LAYERS = 128, 32, 8, 2
_BATCH, _LEARNING_RATE = 128, 5e-3
_START = 0


def missing_reason() -> str | None:
    """Why the model cannot run here; ``None`` when it can."""
    if importlib.util.find_spec("torch") is None:
        return "the package torch is not installed (pip install torch)"
    return None


class KernelTuningNet:
    """The encoder and decoder with their vocabulary; ``updates`` of Adam on 128 records each."""

    variants: ClassVar[Mapping[str, int]] = {"ktn-lstm": 1}

    def __init__(self, updates: int, seed: int) -> None:
        self._updates, self._seed = updates, seed
        self._torch = importlib.import_module("torch")

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``; of records that say the same, one is used."""
        torch = self._torch
        chosen = list({(r.problem, r.device, r.values): r for r in train}.values())
        self._words = _vocabulary(chosen)
        self._codes = {word: code for code, word in enumerate(self._words, 1)}
        table = _table(chosen)
        self._mean, self._scale = table.mean(axis=0), table.std(axis=0) + 1e-9
        _, first = np.unique(table, axis=1, return_index=True)
        self._kept = np.sort(first[np.ptp(table[:, first], axis=0) > 0])
        inputs = self._diagonals(table)
        tokens = [[self._codes[word] for word in enumerate(r.values)] for r in chosen]
        targets = torch.tensor(tokens)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self._net = _network(torch, inputs.shape[1], len(self._words) + 1)
            self._optimise(inputs, targets)

    def _diagonals(self, table: Any) -> Any:
        """One row per varying number, zero beside the diagonal; (problems, numbers, numbers)."""
        scaled = ((table - self._mean) / self._scale)[:, self._kept]
        return self._torch.diag_embed(self._torch.tensor(scaled, dtype=self._torch.float32))

    def _optimise(self, inputs: Any, targets: Any) -> None:
        torch = self._torch
        optimiser = torch.optim.Adam(self._net.parameters(), _LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, _LEARNING_RATE, total_steps=self._updates
        )
        order: list[int] = []
        for _ in range(self._updates):
            if len(order) < min(_BATCH, len(targets)):
                order = torch.randperm(len(targets)).tolist()
            batch, order = order[:_BATCH], order[_BATCH:]
            before = torch.nn.functional.pad(targets[batch][:, :-1], (1, 0), value=_START)
            logits, _ = self._decode(before, self._encode(inputs[batch]))
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[batch].flatten())
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
            optimiser.step()
            schedule.step()

    def _encode(self, inputs: Any) -> Any:
        _, state = self._net["encoder"](self._net["dense"](inputs))
        return state

    def _decode(self, tokens: Any, state: Any) -> Any:
        hidden, state = self._net["decoder"](self._net["embedding"](tokens), state)
        return self._net["words"](hidden), state

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``; greedy, so there is one tuple whatever ``k``."""
        torch = self._torch
        prefixes: list[Tuple] = [() for _ in queries]
        with torch.no_grad():
            state = self._encode(self._diagonals(_table(queries)))
            tokens = torch.full((len(queries), 1), _START)
            for _ in range(len(solver_of(queries[0].solver).fields)):
                logits, state = self._decode(tokens, state)
                ranked = logits[:, 0].argsort(dim=1, descending=True).tolist()
                codes = []
                for place, query in enumerate(queries):
                    prefix = prefixes[place]
                    legal = query.space.legal_values(prefix) if masked else None
                    code, value = self._best(ranked[place], len(prefix), legal)
                    prefixes[place] = (*prefix, value)
                    codes.append([code])
                tokens = torch.tensor(codes)
        return [[prefix] for prefix in prefixes]

    def _best(
        self, ranked: Sequence[int], position: int, legal: Sequence[Any] | None
    ) -> tuple[int, int]:
        """The first word, as (code, value), that is legal; without a mask the first of all.

        Unmasked, a word of another position hands on its value; the start word, none is.
        """
        for code in ranked:
            if code == _START:
                continue
            place, value = self._words[code - 1]
            if legal is None or (place == position and value in legal):
                return code, value
        assert legal
        return _START, int(legal[0])  # no legal value was ever met in training


def _table(queries: Sequence[Query] | Sequence[PerfRecord]) -> npt.NDArray[np.float64]:
    """Direction, sizes, window and GPU, a row for each problem."""
    rows = []
    for query in queries:
        p = query.problem
        sizes = (p.c, p.k, p.h, p.w, p.n, p.ho, p.wo, p.y, p.x, p.groups)
        steps = (p.pad_h, p.pad_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w)
        directions = (p.direction == "F", p.direction == "B")
        device = device_numbers(query.device, query.source)
        rows.append((*directions, *np.log2(sizes), *steps, *device))
    return np.array(rows, dtype=np.float64)


def _vocabulary(records: Sequence[PerfRecord]) -> list[tuple[int, int]]:
    """Every (position, value) that was recorded, in order."""
    return sorted({word for record in records for word in enumerate(record.values)})


def _network(torch: Any, numbers: int, words: int) -> Any:
    """The layers by name; both sides have states of one shape."""
    nn = torch.nn
    return nn.ModuleDict(
        {
            "dense": nn.Linear(numbers, _DENSE),
            "encoder": nn.LSTM(_DENSE, _HIDDEN, _LAYERS, batch_first=True),
            "embedding": nn.Embedding(words, _EMBEDDING),
            "decoder": nn.LSTM(_EMBEDDING, _HIDDEN, _LAYERS, batch_first=True),
            "words": nn.Linear(_HIDDEN, words),
        }
    )
