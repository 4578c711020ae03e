"""What inference keeps and prepares: cached embeddings, and candidates as rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import SpaceError
from ..space import Space, Value
from .batching import Encoded
from .encoding import IntArray, WordTable
from .model import Seq2Seq


class Embeddings:
    """Embeddings of every word and bag met since the weights last changed.

    ``stale`` is set when the weights change.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        self.stale = False
        self.table = WordTable(model.config.buckets)
        self._words = torch.zeros(0, model.config.width)
        self._bags = torch.zeros(0, model.config.width)
        self._legal: dict[tuple[Value, ...], IntArray] = {}

    def words(self, rows: IntArray) -> Tensor:
        """(n,) rows -> (n, D)."""
        known, size = len(self._words), len(self.table)
        if known < size:
            hashes = torch.from_numpy(self.table.hashes[known:])
            numbers = torch.from_numpy(self.table.numbers[known:])
            self._words = torch.cat([self._words, self._model.embed_words(hashes, numbers)])
        return self._words[torch.from_numpy(rows)]

    def bags(self, numbers: Sequence[int]) -> Tensor:
        """(n,) bag numbers -> (n, D)."""
        new = self.table.bags[len(self._bags) :]
        if new:
            flat = np.concatenate([np.zeros(0, np.int64), *new])
            offsets = torch.from_numpy(np.cumsum([0, *(len(bag) for bag in new)])[:-1])
            local = torch.arange(len(flat))
            self._bags = torch.cat(
                [self._bags, self._model.embed_bags(self.words(flat), local, offsets)]
            )
        return self._bags[torch.tensor(numbers, dtype=torch.long)]

    def legal_rows(self, legal: tuple[Value, ...]) -> IntArray:
        """The rows of a set of legal values."""
        rows = self._legal.get(legal)
        if rows is None:
            rows = self._legal[legal] = self.table.value_rows(legal)
        return rows


def encode_candidates(
    table: WordTable, space: Space, candidates: Sequence[tuple[Value, ...]]
) -> list[Encoded]:
    """Candidates as rows, without legal values; raises ``SpaceError`` for an incomplete one."""
    bags: dict[tuple[Value, ...], int] = {}
    nothing, items = np.zeros((0, 0), dtype=np.int64), []
    for values in candidates:
        knobs = []
        for length in range(len(values)):
            prefix = values[:length]
            bag = bags.get(prefix)
            if bag is None:
                knob = space.knob(prefix)
                if knob is None:
                    raise SpaceError(f"expected a candidate of {length} values, got {values}")
                bag = bags[prefix] = table.bag(knob.words)
            knobs.append(bag)
        rows = table.value_rows(values)
        choices = np.zeros(len(values), dtype=np.int64)
        describe = table.bag(space.describe(values))
        items.append(
            Encoded(0, np.array(knobs, np.int64), rows, choices, nothing, describe, 1.0, True)
        )
    return items
