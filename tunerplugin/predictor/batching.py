"""From examples to padded tensors.

``Example`` is what the predictor learns from; ``Corpus`` encodes examples once; ``collate`` turns
some of them into one ``Batch`` in which every distinct word and bag occurs once.

Letters in shapes: B examples, T knobs, L legal values, P problems, N problem words, U distinct
words, G distinct bags, V distinct values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..space import Problem, Step, Value, Word
from .encoding import IntArray, WordTable

KNEE = -4.0
"""Below 1/16 of the best (in log2), differences are told apart less and less."""

FAILED = -8.0
"""Relative speed of a failure: below that of every success, whatever its latency."""

_LOWEST = -40.0


@dataclass(frozen=True)
class Example:
    """One measured candidate.

    ``quality`` is best latency / latency in (0, 1] among the measurements of the same problem, or
    ``None`` when the candidate failed.  ``describe`` is ``Space.describe`` of the candidate.
    """

    problem: Problem
    steps: tuple[Step, ...]
    describe: tuple[Word, ...]
    quality: float | None

    def __post_init__(self) -> None:
        if self.quality is not None and not 0 < self.quality <= 1:
            raise ValueError(
                f"expected a quality in (0, 1] or None for a failure, got {self.quality!r}"
            )
        for step in self.steps:
            if step.value not in step.legal:
                raise ValueError(
                    f"expected the value of {step.knob.name} among {step.legal}, got {step.value!r}"
                )

    @property
    def values(self) -> tuple[Value, ...]:
        """The candidate."""
        return tuple(step.value for step in self.steps)


@dataclass(frozen=True)
class Encoded:
    """An example as row numbers of a ``WordTable``; ``quality`` is 0 for a failure."""

    problem: int
    knobs: IntArray  # (T,) bags
    values: IntArray  # (T,) words
    choices: IntArray  # (T,) index of the value among the legal ones
    legal: IntArray  # (T, L) words, -1 beyond the end
    describe: int  # bag
    quality: float
    ok: bool


class Corpus:
    """Encoded examples, one per (problem, candidate): a later one replaces an earlier one.

    Qualities are relative to the best latency so far.  A caller whose best has improved sends its
    examples again with fresh qualities; nothing is counted twice.
    """

    def __init__(self, buckets: int) -> None:
        self.table = WordTable(buckets)
        self.problems: list[IntArray] = []
        self.items: list[Encoded] = []
        self._problem_index: dict[Problem, int] = {}
        self._item_index: dict[tuple[int, tuple[Value, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.items)

    def add(self, examples: Iterable[Example]) -> list[int]:
        """Encode; returns the index in ``items`` of each example that is new."""
        added = []
        for example in examples:
            problem = self.problem(example.problem)
            key = (problem, example.values)
            item = self._encode(problem, example)
            known = self._item_index.get(key)
            if known is None:
                self._item_index[key] = len(self.items)
                added.append(len(self.items))
                self.items.append(item)
            else:
                self.items[known] = item
        return added

    def problem(self, problem: Problem) -> int:
        """The number of a problem; its rows are ``problems[number]``."""
        found = self._problem_index.get(problem)
        if found is None:
            found = self._problem_index[problem] = len(self.problems)
            self.problems.append(self.table.problem_rows(problem))
        return found

    def _encode(self, problem: int, example: Example) -> Encoded:
        steps = example.steps
        width = max((len(step.legal) for step in steps), default=0)
        legal = np.full((len(steps), width), -1, dtype=np.int64)
        for row, step in zip(legal, steps, strict=True):
            row[: len(step.legal)] = self.table.value_rows(step.legal)
        return Encoded(
            problem=problem,
            knobs=np.array([self.table.bag(step.knob.words) for step in steps], dtype=np.int64),
            values=self.table.value_rows(example.values),
            choices=np.array([step.legal.index(step.value) for step in steps], dtype=np.int64),
            legal=legal,
            describe=self.table.bag(example.describe),
            quality=float(example.quality or 0.0),
            ok=example.quality is not None,
        )


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some examples; indices point into the batch's own distinct words."""

    word_hashes: Tensor  # (U, 4)
    word_numbers: Tensor  # (U, features)
    problem_words: Tensor  # (P, N)
    problem_mask: Tensor  # (P, N) True where there is a word
    bag_words: Tensor  # concatenated bags
    bag_offsets: Tensor  # (G,)
    value_words: Tensor  # (V,)
    problem: Tensor  # (B,)
    knobs: Tensor  # (B, T) bags
    values: Tensor  # (B, T) of V
    choices: Tensor  # (B, T)
    legal: Tensor  # (B, T, L) of V
    legal_counts: Tensor  # (B, T)
    step_mask: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    describe: Tensor  # (B,) bags
    quality: Tensor  # (B,)
    ok: Tensor  # (B,)


def collate(table: WordTable, problems: Sequence[IntArray], items: Sequence[Encoded]) -> Batch:
    """One batch; every sequence is padded at its end to the longest (at least one step)."""
    used, problem = np.unique([item.problem for item in items], return_inverse=True)
    problem_words, problem_mask = _pad([problems[i] for i in used])
    knobs, step_mask = _pad([item.knobs for item in items])
    values, _ = _pad([item.values for item in items])
    choices, _ = _pad([item.choices for item in items])
    legal = np.full(
        (*knobs.shape, max(1, *(i.legal.shape[1] for i in items), 1)), -1, dtype=np.int64
    )
    for row, item in zip(legal, items, strict=True):
        row[: item.legal.shape[0], : item.legal.shape[1]] = item.legal
    describe = np.array([item.describe for item in items])
    bag_ids, bag_index = _renumber([knobs[step_mask], describe], len(table.bags))
    bags = [table.bags[i] for i in bag_ids]
    flat = np.concatenate([np.zeros(0, np.int64), *bags])
    # where there is no decision at all, padding still points at some word: row 0
    decided = [values[step_mask], legal[legal >= 0]]
    value_ids, value_index = _renumber(decided if step_mask.any() else [values], len(table))
    words, word_index = _renumber([problem_words[problem_mask], flat, value_ids], len(table))
    as_tensor = torch.from_numpy
    return Batch(
        word_hashes=as_tensor(table.hashes[words]),
        word_numbers=as_tensor(table.numbers[words]),
        problem_words=as_tensor(word_index[problem_words]),
        problem_mask=as_tensor(problem_mask),
        bag_words=as_tensor(word_index[flat]),
        bag_offsets=as_tensor(np.cumsum([0, *(len(bag) for bag in bags)])[:-1]),
        value_words=as_tensor(word_index[value_ids]),
        problem=as_tensor(problem.astype(np.int64)),
        knobs=as_tensor(bag_index[knobs]),
        values=as_tensor(value_index[values]),
        choices=as_tensor(choices),
        legal=as_tensor(np.where(legal >= 0, value_index[legal], 0)),
        legal_counts=as_tensor((legal >= 0).sum(axis=2)),
        step_mask=as_tensor(step_mask),
        lengths=as_tensor(step_mask.sum(axis=1)),
        describe=as_tensor(bag_index[describe]),
        quality=torch.tensor([item.quality for item in items], dtype=torch.float32),
        ok=torch.tensor([item.ok for item in items]),
    )


def _pad(
    rows: Sequence[IntArray],
) -> tuple[IntArray, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Rows padded with 0 to one length of at least 1, and where they have entries."""
    width = max(1, *(len(row) for row in rows), 1)
    padded = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.bool_)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
        mask[i, : len(row)] = True
    return padded, mask


def _renumber(groups: Sequence[IntArray], size: int) -> tuple[IntArray, IntArray]:
    """The distinct numbers below ``size`` that occur, and a map from old to new (0 if absent)."""
    seen = np.zeros(max(1, size), dtype=np.bool_)
    for group in groups:
        seen[group] = True
    used = np.flatnonzero(seen)
    index = np.zeros(max(1, size), dtype=np.int64)
    index[used] = np.arange(len(used))
    return used, index


def relative_speed(quality: Tensor, ok: Tensor) -> Tensor:
    """log2 of a quality, growing only logarithmically below KNEE; FAILED for failures.

    Bad candidates of a long space are thousands of times slower than the best, and all that is
    known before good ones are found: they must stay in order.
    """
    speed = torch.log2(quality.clamp_min(2.0**_LOWEST))
    slow = KNEE - torch.log1p((KNEE - speed).clamp_min(0.0))
    return torch.where(ok, torch.where(speed < KNEE, slow, speed), FAILED)
