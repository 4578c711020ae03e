"""The parts of the network: sizes, attention with a cache, encoder and decoder layers, value heads.

Letters in shapes: see ``batching``; D model width, H heads, S tokens, E value heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KeyValue = tuple[Tensor, Tensor]
"""Attention keys and values, each (B, H, S, D/H)."""

ENCODERS = ("attention", "pooled")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the network; the defaults have about a third of a million parameters.

    ``encoder`` is ``"attention"`` (words of the problem attend to each other, the decoder attends
    to each) or ``"pooled"`` (a sum over the words, one vector for the decoder): ten times cheaper
    and as good where every problem has the same words, as in a table of records.
    """

    width: int = 64
    attention_heads: int = 4
    encoder_layers: int = 1
    decoder_layers: int = 2
    hidden: int = 128
    buckets: int = 2048
    positions: int = 128
    pair_width: int = 128
    value_hidden: int = 64
    value_heads: int = 3
    encoder: str = "attention"
    pooled_hidden: int = 256

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise ValueError(f"expected encoder to be one of {ENCODERS}, got {self.encoder!r}")
        for name, value in vars(self).items():
            if name == "encoder":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 16:
                raise ValueError(f"expected {name} to be an integer in 1..65536, got {value!r}")
        if max(self.encoder_layers, self.decoder_layers) > 16:
            raise ValueError(
                f"expected at most 16 layers, got {self.encoder_layers} and {self.decoder_layers}"
            )
        if self.width % self.attention_heads or self.buckets < 2:
            raise ValueError(
                "expected width to be a multiple of attention_heads and at least 2 buckets, "
                f"got {self.width}, {self.attention_heads} and {self.buckets}"
            )


class Rows(nn.Embedding):  # type: ignore[misc, unused-ignore]
    """An embedding without initial values: to draw them on the meta device, torch would import its
    compiler for seconds."""

    def reset_parameters(self) -> None:
        """Leave the values to ``build_model``."""


class Attention(nn.Module):  # type: ignore[misc, unused-ignore]
    """Multi-head attention whose keys and values can be computed once and kept."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, H, S, D/H)."""
        heads: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return heads

    def keys_values(self, source: Tensor) -> KeyValue:
        """Keys and values of (B, S, D)."""
        key, value = self.key_value(source).chunk(2, dim=-1)
        return self.split(key), self.split(value)

    def forward(
        self, x: Tensor, kv: KeyValue, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """(B, S, D) attends to ``kv``; ``mask`` is True where attention is allowed."""
        heads = F.scaled_dot_product_attention(
            self.split(self.query(x)), *kv, attn_mask=mask, is_causal=causal
        )
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):  # type: ignore[misc, unused-ignore]
    """Pre-norm two-layer network on each position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.first = nn.Linear(config.width, config.hidden)
        self.second = nn.Linear(config.hidden, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        out: Tensor = self.second(F.relu(self.first(self.norm(x))))
        return out


class EncoderLayer(nn.Module):  # type: ignore[misc, unused-ignore]
    """Pre-norm self-attention over problem words."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.attention_heads)
        self.feed = FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(P, N, D) -> (P, N, D)."""
        normed = self.norm(x)
        x = x + self.attention(normed, self.attention.keys_values(normed), mask)
        out: Tensor = x + self.feed(x)
        return out


class PooledEncoder(nn.Module):  # type: ignore[misc, unused-ignore]
    """A problem as one vector: a sum over its words, each seen through a wide layer first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.wide = nn.Linear(config.width, config.pooled_hidden)
        self.norm = nn.LayerNorm(config.pooled_hidden)
        self.inner = nn.Linear(config.pooled_hidden, config.pooled_hidden)
        self.out = nn.Linear(config.pooled_hidden, config.width)

    def forward(self, words: Tensor, index: Tensor, mask: Tensor) -> Tensor:
        """Words (U, D), those of each problem (P, N) and where there is one -> (P, 1, D)."""
        wide = F.gelu(self.wide(words))
        pooled = F.embedding_bag(index, wide, mode="sum", per_sample_weights=mask.to(wide.dtype))
        hidden = F.relu(self.norm(pooled))
        hidden = hidden + F.relu(self.inner(hidden))
        out: Tensor = self.out(hidden)
        return out.unsqueeze(1)


class DecoderLayer(nn.Module):  # type: ignore[misc, unused-ignore]
    """Pre-norm causal self-attention over the steps, then attention to the problem."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.attention_heads)
        self.cross_norm = nn.LayerNorm(config.width)
        self.cross = Attention(config.width, config.attention_heads)
        self.feed = FeedForward(config)

    def forward(
        self, x: Tensor, past: KeyValue | None, memory: KeyValue, memory_mask: Tensor
    ) -> tuple[Tensor, KeyValue]:
        """(B, S, D) -> (B, S, D) and all keys and values so far; with a past, S is 1."""
        normed = self.norm(x)
        key, value = self.attention.keys_values(normed)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        x = x + self.attention(normed, (key, value), causal=past is None)
        x = x + self.cross(self.cross_norm(x), memory, memory_mask)
        return x + self.feed(x), (key, value)


class ValueHeads(nn.Module):  # type: ignore[misc, unused-ignore]
    """An ensemble of small networks on standardised features: relative log2 speed."""

    def __init__(self, features: int, config: ModelConfig) -> None:
        super().__init__()
        heads, hidden = config.value_heads, config.value_hidden
        self.first = nn.Parameter(torch.empty(heads, features, hidden))
        self.first_bias = nn.Parameter(torch.empty(heads, 1, hidden))
        self.last = nn.Parameter(torch.empty(heads, hidden, 1))
        self.last_bias = nn.Parameter(torch.empty(heads, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """(B, features) -> (E, B)."""
        hidden = F.relu(features @ self.first + self.first_bias)
        return (hidden @ self.last + self.last_bias).squeeze(-1)
