"""BERT with its masked-language head, and decoder-only transformers of published sizes.

Attention is written as its products and softmax, so that every operator is in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer; ``positions`` is the longest sequence it can take."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int
    dropout: float = 0.1
    activation: str = "gelu"
    merged: bool = False  # queries, keys and values in one product
    unused_positions: int = 0  # rows of the table that no token takes


BERT_BASE = Shape(12, 768, 12, 30522, 512)
BERT_LARGE = Shape(24, 1024, 16, 30522, 512)
# Radford et al. 2019, the 1.5 B model.
GPT2_XL = Shape(48, 1600, 25, 50257, 1024, activation="gelu_tanh", merged=True)
# Zhang et al. 2022 (arXiv 2205.01068), table 1; its position table has an offset of 2.
OPT_1_3B = Shape(24, 2048, 32, 50272, 2048, activation="relu", unused_positions=2)
# Brown et al. 2020 (arXiv 2005.14165), table 2.1.
GPT3 = Shape(96, 12288, 96, 50257, 2048, dropout=0.0, activation="gelu_tanh", merged=True)

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762)."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = shape.heads, causal
        count = 1 if shape.merged else 3
        self.project = nn.ModuleList(
            nn.Linear(shape.width, shape.width * 3 // count) for _ in range(count)
        )
        self.out = nn.Linear(shape.width, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D)
        batch, length, width = x.shape
        parts = [layer(x) for layer in self.project]
        query, key, value = parts[0].chunk(3, -1) if len(parts) == 1 else parts
        split = (batch, length, self.heads, width // self.heads)
        query, key, value = (t.reshape(split).transpose(1, 2) for t in (query, key, value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(split[3])  # (B, H, S, S)
        if self.causal:
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ value  # (B, H, S, D/H)
        return cast("Tensor", self.out(mixed.transpose(1, 2).reshape(batch, length, width)))


class FeedForward(nn.Module):
    """Two dense layers, the inner one four times as wide."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)
        self.activate = _ACTIVATIONS[shape.activation]

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.down(self.activate(self.up(x))))


class Block(nn.Module):
    """A transformer layer; normalised before (decoders) or after (BERT) each residual branch."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(shape, causal), FeedForward(shape)
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.before = causal

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.dropout(self.attention(self.norm1(x)))
            return cast("Tensor", x + self.dropout(self.feed_forward(self.norm2(x))))
        x = self.norm1(x + self.dropout(self.attention(x)))
        return cast("Tensor", self.norm2(x + self.dropout(self.feed_forward(x))))


class Bert(nn.Module):
    """BERT for masked language modelling: Devlin et al. 2018 (arXiv 1810.04805).

    Tokens (B, S) and segments (B, S) -> scores (B, S, vocabulary); the output table is the
    embedding's.  No pooler: masked language modelling does not use one.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.segment = nn.Embedding(2, shape.width)
        self.norm, self.dropout = nn.LayerNorm(shape.width), nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(Block(shape, causal=False) for _ in range(shape.layers))
        self.transform = nn.Linear(shape.width, shape.width)
        self.head_norm = nn.LayerNorm(shape.width)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        x = self.token(tokens) + self.segment(segments) + self.position(places)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        x = self.head_norm(F.gelu(self.transform(x)))
        return F.linear(x, self.token.weight, self.bias)


class Decoder(nn.Module):
    """Decoder-only language model with learned positions and a tied output table.

    Tokens (B, S) -> scores (B, S, vocabulary).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions + shape.unused_positions, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(Block(shape, causal=True) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.token(tokens) + self.position(torch.arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.token.weight)
