"""The network: an attention encoder-decoder with a pointer head and value heads.

After Mahmood et al., arXiv 2404.10162 (tuning as translation from problem to parameters), with two
differences.  There is no output vocabulary: the decoder's query is compared with encodings of the
*legal* values of the knob, so a new extent needs no new word and an illegal value has no
probability.  And a value head predicts the speed of complete candidates, to re-rank a beam.

The measured quality enters after the decoder stack, in the query only.  So decoder states do not
depend on it, and one pass serves the pointer head (which may know the quality) and the value head
(which must not).

Start reading at ``Seq2Seq.forward``.  Letters in shapes: see ``batching``; D model width, H heads,
S tokens (T knobs and the end), E value heads, W width of the pair features.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .batching import Batch, relative_speed
from .encoding import HASHES, NUMBER_FEATURES
from .layers import (
    DecoderLayer,
    EncoderLayer,
    KeyValue,
    ModelConfig,
    PooledEncoder,
    Rows,
    ValueHeads,
)

PLACE_FEATURES = 5
"""What the pointer head is told of a value's place among the legal ones."""


class Memory(NamedTuple):
    """What the decoder knows of P problems: M vectors each (one per word, or one in all)."""

    words: Tensor  # (P, M, D)
    mask: Tensor  # (P, M) True where there is one


class Seq2Seq(nn.Module):  # type: ignore[misc, unused-ignore]
    """Problem words in, knob decisions out.  Built by ``build_model``, which sets the weights."""

    feature_mean: Tensor
    feature_scale: Tensor
    feature_count: Tensor  # how many examples stand behind the two; 0 when untrained

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.buckets = Rows(config.buckets, width, padding_idx=0)
        self.number = nn.Linear(NUMBER_FEATURES, width)
        self.word = nn.Sequential(
            nn.Linear(2 * width, config.hidden), nn.ReLU(), nn.Linear(config.hidden, width)
        )
        self.word_norm = nn.LayerNorm(width)
        if config.encoder == "pooled":
            self.pool = PooledEncoder(config)
        else:
            self.problem_position = Rows(config.positions, width)
            self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.memory_norm = nn.LayerNorm(width)
        self.step_position = Rows(config.positions, width)
        self.begin = nn.Parameter(torch.empty(width))
        self.end = nn.Parameter(torch.empty(width))
        self.knob = nn.Linear(width, width)
        self.previous = nn.Linear(width, width)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.state_norm = nn.LayerNorm(width)
        self.query_in = nn.Linear(2 * width, config.hidden)
        self.quality = nn.Linear(4, config.hidden, bias=False)
        self.query_out = nn.Linear(config.hidden, width + PLACE_FEATURES)
        self.key = nn.Linear(width, width)
        self.pair_knob = nn.Linear(width, config.pair_width)
        self.pair_value = nn.Linear(width, config.pair_width, bias=False)
        features = config.pair_width + 4 * width
        self.register_buffer("feature_mean", torch.empty(features))
        self.register_buffer("feature_scale", torch.empty(features))
        self.register_buffer("feature_count", torch.empty(1))
        self.value_heads = ValueHeads(features, config)

    def embed_words(self, hashes: Tensor, numbers: Tensor) -> Tensor:
        """(U, 4) buckets and (U, features) numbers -> (U, D)."""
        rows = self.buckets(hashes)  # (U, 4, D)
        field = rows[:, :HASHES].sum(1)
        value = rows[:, HASHES:].sum(1) + self.number(numbers)
        out: Tensor = self.word_norm(field + value + self.word(torch.cat([field, value], dim=-1)))
        return out

    def embed_bags(self, words: Tensor, flat: Tensor, offsets: Tensor) -> Tensor:
        """Means of word embeddings: (U, D) -> (G, D); an empty bag is 0."""
        return F.embedding_bag(flat, words, offsets, mode="mean")

    def encode(self, words: Tensor, index: Tensor, mask: Tensor) -> Memory:
        """Words (U, D), those of each problem (P, N), and where there is one (P, N) -> memory."""
        if self.config.encoder == "pooled":
            pooled = self.memory_norm(self.pool(words, index, mask))
            return Memory(pooled, torch.ones(len(index), 1, dtype=torch.bool))
        places = torch.arange(index.shape[1]).clamp_max(self.config.positions - 1)
        x = F.embedding(index, words) + self.problem_position(places)
        for layer in self.encoder:
            x = layer(x, mask[:, None, None, :])
        return Memory(self.memory_norm(x), mask)

    def memory_keys_values(self, memory: Memory) -> list[KeyValue]:
        """What the decoder layers attend to, once per problem."""
        layers = cast(list[DecoderLayer], self.decoder)
        return [layer.cross.keys_values(memory.words) for layer in layers]

    def step_tokens(self, knobs: Tensor, previous: Tensor, start: int) -> Tensor:
        """Knob and previous value, both (B, S, D), at steps start, start + 1, .. -> (B, S, D)."""
        places = torch.arange(start, start + knobs.shape[1]).clamp_max(self.config.positions - 1)
        out: Tensor = self.knob(knobs) + self.previous(previous) + self.step_position(places)
        return out

    def decode(
        self,
        tokens: Tensor,
        past: list[KeyValue] | None,
        memory: list[KeyValue],
        memory_mask: Tensor,
    ) -> tuple[Tensor, list[KeyValue]]:
        """(B, S, D) -> states (B, S, D) and the keys and values to go on with."""
        caches = []
        for i, layer in enumerate(self.decoder):
            tokens, cache = layer(tokens, past[i] if past else None, memory[i], memory_mask)
            caches.append(cache)
        return self.state_norm(tokens), caches

    def queries(self, states: Tensor, knobs: Tensor, quality: Tensor) -> tuple[Tensor, Tensor]:
        """States and knobs (.., D), quality (.., 4) -> content (.., D) and place (.., 5)."""
        hidden = F.relu(self.query_in(torch.cat([states, knobs], dim=-1)) + self.quality(quality))
        content, place = self.query_out(hidden).split([self.config.width, PLACE_FEATURES], dim=-1)
        return content / math.sqrt(self.config.width), place

    def log_probabilities(
        self, queries: tuple[Tensor, Tensor], values: Tensor, legal: Tensor, counts: Tensor
    ) -> Tensor:
        """Over the legal values: values (V, D), legal (.., L) of V, counts (..) -> (.., L)."""
        content, place = queries
        logits = (content @ self.key(values).T).gather(-1, legal)
        logits = logits + (place_features(counts, legal.shape[-1]) @ place.unsqueeze(-1)).squeeze(
            -1
        )
        absent = torch.arange(legal.shape[-1]) >= counts.unsqueeze(-1)
        return F.log_softmax(logits.masked_fill(absent, -1e9), dim=-1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the legal values (B, T, L) and features of the candidates (B, F)."""
        bags, values, memory = self._embed(batch)
        states = self._states(batch, bags, values, memory)
        log_probabilities = self._decisions(batch, bags, values, states)
        return log_probabilities, self._features(batch, bags, values, states, memory)

    def decisions(self, batch: Batch) -> Tensor:
        """Only the log-probabilities of the legal values (B, T, L)."""
        bags, values, memory = self._embed(batch)
        return self._decisions(batch, bags, values, self._states(batch, bags, values, memory))

    def candidate_features(self, batch: Batch) -> Tensor:
        """Only what the value heads see (B, F)."""
        bags, values, memory = self._embed(batch)
        states = self._states(batch, bags, values, memory)
        return self._features(batch, bags, values, states, memory)

    def _decisions(self, batch: Batch, bags: Tensor, values: Tensor, states: Tensor) -> Tensor:
        quality = quality_features(batch.quality, batch.ok)[:, None].expand(
            -1, batch.knobs.shape[1], -1
        )
        queries = self.queries(states[:, :-1], F.embedding(batch.knobs, bags), quality)
        return self.log_probabilities(queries, values, batch.legal, batch.legal_counts)

    def _embed(self, batch: Batch) -> tuple[Tensor, Tensor, Memory]:
        """Bags (G, D), values (V, D) and the memory of the problems."""
        words = self.embed_words(batch.word_hashes, batch.word_numbers)
        bags = self.embed_bags(words, batch.bag_words, batch.bag_offsets)
        memory = self.encode(words, batch.problem_words, batch.problem_mask)
        return bags, F.embedding(batch.value_words, words), memory

    def _states(self, batch: Batch, bags: Tensor, values: Tensor, memory: Memory) -> Tensor:
        """Decoder states (B, T + 1, D): state t has seen knob t and the values before it."""
        knobs, chosen = F.embedding(batch.knobs, bags), F.embedding(batch.values, values)
        size = len(batch.lengths)
        end = self.end.expand(size, 1, -1)
        at_end = (torch.arange(knobs.shape[1] + 1) == batch.lengths[:, None]).unsqueeze(-1)
        inputs = torch.where(at_end, end, torch.cat([knobs, end], dim=1))
        previous = torch.cat([self.begin.expand(size, 1, -1), chosen], dim=1)
        kv = [
            (
                F.embedding(batch.problem, k.flatten(1)).unflatten(1, k.shape[1:]),
                F.embedding(batch.problem, v.flatten(1)).unflatten(1, v.shape[1:]),
            )
            for k, v in self.memory_keys_values(memory)
        ]
        mask = memory.mask[batch.problem][:, None, None, :]
        return self.decode(self.step_tokens(inputs, previous, 0), None, kv, mask)[0]

    def _features(
        self, batch: Batch, bags: Tensor, values: Tensor, states: Tensor, memory: Memory
    ) -> Tensor:
        """What the value heads see (B, W + 4 D): decisions, states, description, problem."""
        pairs = F.relu(
            F.embedding(batch.knobs, self.pair_knob(bags))
            + F.embedding(batch.values, self.pair_value(values))
        )
        weights = batch.step_mask.float().unsqueeze(-1)
        decisions = (pairs * weights).sum(1)
        within = (torch.arange(states.shape[1]) <= batch.lengths[:, None]).float().unsqueeze(-1)
        mean_state = (states * within).sum(1) / within.sum(1)
        last_state = states[torch.arange(len(states)), batch.lengths]
        here = memory.mask.float().unsqueeze(-1)
        problem = (memory.words * here).sum(1) / here.sum(1).clamp_min(1.0)
        parts = [decisions, mean_state, last_state, F.embedding(batch.describe, bags)]
        return torch.cat([*parts, F.embedding(batch.problem, problem)], dim=-1)

    def value(self, features: Tensor) -> Tensor:
        """Predicted relative log2 speed of each head: (B, F) -> (E, B)."""
        scaled = (features - self.feature_mean) / self.feature_scale
        out: Tensor = self.value_heads(scaled.clamp(-6.0, 6.0))
        return out


def place_features(counts: Tensor, width: int) -> Tensor:
    """Where a value stands among ``counts`` legal ones: (..) -> (.., width, PLACE_FEATURES)."""
    index = torch.arange(width)
    part = (index / (counts.unsqueeze(-1) - 1).clamp_min(1)).clamp_max(1.0)
    last = index == counts.unsqueeze(-1) - 1
    columns = [
        part,
        (index == 0).expand_as(part),
        last,
        torch.sin(math.pi * part),
        torch.cos(2 * math.pi * part),
    ]
    return torch.stack([column.float() for column in columns], dim=-1)


def quality_features(quality: Tensor, ok: Tensor) -> Tensor:
    """(B,) qualities in (0, 1] and whether it ran at all -> (B, 4)."""
    speed = relative_speed(quality, ok) / 4
    return torch.stack([quality, quality * quality, speed, (~ok).float()], dim=-1)


def build_model(config: ModelConfig, generator: torch.Generator | None) -> Seq2Seq:
    """A model with weights drawn from ``generator`` (or left unset when it is ``None``).

    The last layers of the pointer and value heads start at 0: an untrained model is uniform over
    the legal values and ranks all candidates alike.  The global random state is not touched.
    """
    with torch.device("meta"):
        model = Seq2Seq(config)
    if generator is not None:
        model.to_empty(device="cpu")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                _initialise(name, parameter, generator)
            model.buckets.weight[0].zero_()
            model.feature_mean.zero_()
            model.feature_scale.fill_(1.0)
            model.feature_count.zero_()
    return model


def _initialise(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    if name.endswith("bias") or name in ("query_out.weight", "value_heads.last"):
        parameter.zero_()
    elif "norm" in name:
        parameter.fill_(1.0)
    elif "position" in name:
        parameter.normal_(0.0, 0.1, generator=generator)
    elif name == "buckets.weight" or parameter.ndim == 1:
        parameter.normal_(0.0, 0.5, generator=generator)
    else:
        # a Linear's fan-in is its second dimension, and so is that of the stacked value heads
        parameter.normal_(0.0, 1.0 / math.sqrt(parameter.shape[1]), generator=generator)
