"""A translation model in the style of GNMT: Wu et al. 2016 (arXiv 1609.08144).

Four encoder layers, the first bidirectional, four decoder layers, 1024 wide, additive attention
(Bahdanau et al. 2014, arXiv 1409.0473) from the first decoder layer, fed to all others; residual
connections from the third layer on.  The layers are unrolled in time: a step depends on the one
before, which is what bounds the parallelism of such a model.  Products with the inputs of all
steps are one.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

Tensor = torch.Tensor
State = tuple[Tensor, Tensor]


class LstmCell(nn.Module):
    """LSTM (Hochreiter and Schmidhuber 1997) with the input's part computed outside."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = nn.Linear(inputs, 4 * width)
        self.recurrent = nn.Linear(width, 4 * width)

    def forward(self, projected: Tensor, state: State | None) -> State:
        """``projected`` (B, 4W) is ``input`` of this step; no state: the first step."""
        gates = projected if state is None else projected + self.recurrent(state[0])
        enter, forget, update, leave = gates.chunk(4, -1)
        cell = torch.sigmoid(enter) * torch.tanh(update)
        if state is not None:
            cell = cell + torch.sigmoid(forget) * state[1]
        return torch.sigmoid(leave) * torch.tanh(cell), cell


def run_layer(cell: LstmCell, x: Tensor, reverse: bool = False) -> Tensor:
    """All steps of a layer: (B, T, inputs) -> (B, T, W)."""
    steps = list(cell.input(x).unbind(1))
    state: State | None = None
    outputs = []
    for step in reversed(steps) if reverse else steps:
        state = cell(step, state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs, 1)


class Attention(nn.Module):
    """v . tanh(W q + U k) over the source, then the weighted sum of the encoder's outputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor) -> Tensor:
        energy = torch.tanh(self.query(query).unsqueeze(1) + keys)  # (B, T, W)
        weights = self.score(energy).squeeze(-1).softmax(-1)  # (B, T)
        context: Tensor = (weights.unsqueeze(1) @ memory).squeeze(1)  # (B, W)
        return context


class Gnmt(nn.Module):
    """Source (B, T) and shifted target (B, T) -> scores (B, T, vocabulary)."""

    def __init__(
        self, vocabulary: int = 32320, width: int = 1024, layers: int = 4, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)  # shared by both languages
        self.forward_cell, self.backward_cell = (LstmCell(width, width) for _ in range(2))
        self.encoder = nn.ModuleList(
            LstmCell(width if index else 2 * width, width) for index in range(layers - 1)
        )
        self.first = LstmCell(2 * width, width)
        self.decoder = nn.ModuleList(LstmCell(2 * width, width) for _ in range(layers - 1))
        self.attention = Attention(width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary)

    def encode(self, source: Tensor) -> Tensor:
        x = self.dropout(self.embed(source))
        both = run_layer(self.forward_cell, x), run_layer(self.backward_cell, x, reverse=True)
        x = torch.cat(both, -1)
        for index, cell in enumerate(self.encoder):
            y = run_layer(cast("LstmCell", cell), self.dropout(x))
            x = x + y if index else y
        return x

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encode(source)
        keys = self.attention.key(memory)
        state: State | None = None
        context = memory.new_zeros(memory.shape[0], memory.shape[2])
        outputs, contexts = [], []
        for word in self.dropout(self.embed(target)).unbind(1):
            state = self.first(self.first.input(torch.cat((word, context), -1)), state)
            context = self.attention(state[0], keys, memory)
            outputs.append(state[0])
            contexts.append(context)
        x, seen = torch.stack(outputs, 1), torch.stack(contexts, 1)
        for index, cell in enumerate(self.decoder):
            y = run_layer(cast("LstmCell", cell), torch.cat((self.dropout(x), seen), -1))
            x = x + y if index else y
        scores: Tensor = self.head(x)
        return scores
