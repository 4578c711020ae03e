"""Graphs of torch modules against numbers by hand and against ``make_fx``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from tunerplugin.errors import GraphError
from tunerplugin.hw.graph import (
    Core,
    Gemm,
    Kind,
    Phase,
    from_torch,
    gemm_flops,
    operators,
    signatures,
)
from tunerplugin.hw.graph.layers import repeated_blocks
from tunerplugin.hw.graph.workloads.transformer import Decoder, Shape
from tunerplugin.hw.graph.workloads.vision import resnet18

Tensor = torch.Tensor


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 10),
    )


def labels(batch: int = 4) -> tuple[Tensor]:
    return (torch.zeros(batch, dtype=torch.int64),)


def train(module: nn.Module, *inputs: Tensor, **options: Any) -> nx.DiGraph:
    return from_torch(
        module, inputs, loss=F.cross_entropy, targets=labels(inputs[0].shape[0]), **options
    )


def gemms(graph: nx.DiGraph, phase: Phase) -> Counter[Gemm]:
    return Counter(op.gemm for op in operators(graph, phase) if op.gemm is not None)


def test_mlp_step_by_hand() -> None:
    graph = train(mlp(), torch.zeros(4, 16))
    assert gemms(graph, Phase.FORWARD) == {Gemm(1, 4, 32, 16): 1, Gemm(1, 4, 10, 32): 1}
    # The input needs no gradient: one data gradient only.
    assert gemms(graph, Phase.BACKWARD_DATA) == {Gemm(1, 4, 32, 10): 1}
    assert gemms(graph, Phase.BACKWARD_WEIGHT) == {Gemm(1, 32, 16, 4): 1, Gemm(1, 10, 32, 4): 1}
    first = graph.nodes["0/addmm"]["op"]
    assert (first.read_bytes, first.weight_bytes) == (4 * 4 * 16, 4 * (16 * 32 + 32))
    assert first.written_bytes == 4 * 4 * 32 and first.layer == "0"
    assert graph.edges["0/addmm", "1/relu"]["bytes"] == 512
    # Only the mask is known of relu's backward: it is elementwise work of the relu's layer.
    (masked,) = (op for op in operators(graph) if op.name == "1/threshold_backward")
    assert (masked.phase, masked.elements, masked.layer) == (Phase.BACKWARD_DATA, 128, "1")
    biases = [op for op in operators(graph, Phase.BACKWARD_WEIGHT) if op.kind == Kind.REDUCTION]
    assert sorted(op.elements for op in biases) == [40, 128]
    assert graph.graph["parameters"] == 16 * 32 + 32 + 32 * 10 + 10
    assert not list(operators(graph, Phase.OPTIMIZER))


def test_operators_are_those_of_make_fx() -> None:
    """The same aten operators, in the same order, as ``make_fx`` finds."""
    with FakeTensorMode():
        module, x, (y,) = cnn(), torch.zeros(4, 3, 16, 16), labels()

        def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            loss = F.cross_entropy(module(x), y)
            return torch.autograd.grad(loss, list(module.parameters()))

        traced = make_fx(step, tracing_mode="real", _allow_non_fake_inputs=True)(x, y)
    no_work = {"t", "view", "detach", "ones_like", "_unsafe_view", "reshape", "empty"}
    expected = []
    for node in traced.graph.nodes:
        name = getattr(node.target, "_opname", "").rstrip("_")
        if name == "convolution_backward":
            kinds = ("conv_data_gradient", "conv_weight_gradient", "conv_bias_gradient")
            expected += [k for k, wanted in zip(kinds, node.args[-1], strict=True) if wanted]
        elif name and name not in no_work:
            expected.append(name)
    graph = train(cnn(), torch.zeros(4, 3, 16, 16))
    found = [op.name.rpartition("/")[2].partition(".")[0] for op in operators(graph)]
    assert found == expected


def test_convolutions_by_hand() -> None:
    graph = train(cnn(), torch.zeros(4, 3, 16, 16))
    assert gemms(graph, Phase.FORWARD) == {
        Gemm(1, 4 * 7 * 7, 8, 27): 1,
        Gemm(4, 4 * 7 * 7, 2, 18): 1,
        Gemm(1, 4, 10, 72): 1,
    }
    assert gemms(graph, Phase.BACKWARD_WEIGHT)[Gemm(1, 8, 27, 4 * 7 * 7)] == 1
    conv = graph.nodes["0/convolution"]["op"]
    assert conv.kind == Kind.CONV
    assert conv.read_bytes == 4 * 4 * 3 * 16 * 16  # the true input, not its im2col matrix
    pool = graph.nodes["4/max_pool2d_with_indices"]["op"]
    assert pool.elements == 4 * 8 * 3 * 3 * 4  # output times window
    assert graph.nodes["1/native_batch_norm_backward"]["op"].phase == Phase.BACKWARD_DATA


@pytest.mark.parametrize("batch", [1, 3])
def test_backward_is_twice_forward_without_the_first_data_gradient(batch: int) -> None:
    graph = train(cnn(), torch.zeros(batch, 3, 16, 16))
    forward = gemm_flops(graph, Phase.FORWARD)
    backward = gemm_flops(graph, Phase.BACKWARD_DATA) + gemm_flops(graph, Phase.BACKWARD_WEIGHT)
    assert backward == 2 * forward - 2 * batch * 49 * 8 * 27


@pytest.mark.parametrize(
    ("optimizer", "moved", "flops"),
    # Bytes per float32 parameter over all operators of its update, unfused, and operations.
    [
        ("sgd", 4 * 3, 1),
        ("momentum", 4 * (2 + 3 + 3), 3),
        ("adam", 4 * (2 + 3 + 2 + 3 + 2 + 2 + 4), 8),
    ],
)
def test_optimizers(optimizer: str, moved: int, flops: int) -> None:
    graph = train(mlp(), torch.zeros(4, 16), optimizer=optimizer)
    count = graph.graph["parameters"]
    updates = list(operators(graph, Phase.OPTIMIZER))
    assert {op.kind for op in updates} == {Kind.OPTIMIZER}
    assert sum(op.total_bytes for op in updates) == moved * count
    assert sum(op.total_flops for op in updates) == flops * count + {"adam": count}.get(
        optimizer, 0
    )
    assert graph.graph["state_bytes"] == {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] * count
    # An update needs its gradient, and nothing of the backward pass needs an update.
    for source, sink in graph.edges:
        phases = graph.nodes[source]["op"].phase, graph.nodes[sink]["op"].phase
        assert phases[0] != Phase.OPTIMIZER or phases[1] == Phase.OPTIMIZER


def test_half_precision_keeps_float32_masters() -> None:
    graph = train(
        mlp().to(torch.bfloat16), torch.zeros(4, 16, dtype=torch.bfloat16), optimizer="adam"
    )
    assert graph.graph["parameter_bytes"] == 2 * graph.graph["parameters"]
    assert graph.graph["state_bytes"] == (4 + 8) * graph.graph["parameters"]
    assert graph.nodes["0/addmm"]["op"].dtype == "bfloat16"


def test_inference_has_a_forward_pass_only() -> None:
    graph = from_torch(cnn(), (torch.zeros(2, 3, 16, 16),), training=False)
    assert {op.phase for op in operators(graph)} == {Phase.FORWARD}
    assert graph.nodes["1/native_batch_norm"]["op"].function == "norm_inference"
    assert gemm_flops(graph) == 2 * 2 * (49 * 8 * 27 + 49 * 8 * 18 + 720)


def test_dropout_follows_training_and_modes_are_restored() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    module[0].train()
    graph = train(module, torch.zeros(2, 4))
    assert any("dropout" in op.name or op.function == "random" for op in operators(graph))
    assert module[0].training and not module[1].training and not module.training
    assert "forward" not in vars(module[0])


def tiny_decoder(layers: int) -> nn.Module:
    return Decoder(Shape(layers, 16, 2, 50, 8, dropout=0.0, merged=True))


def lm_loss(scores: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def trace_decoder(layers: int, **options: Any) -> nx.DiGraph:
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    module = tiny_decoder(layers)
    return from_torch(module, (tokens,), loss=lm_loss, targets=(tokens,), **options)


@pytest.mark.parametrize("recompute", [True, "whole"])
def test_recomputation_repeats_the_forward_pass(recompute: bool | str) -> None:
    plain = trace_decoder(3)
    again = trace_decoder(3, recompute=recompute)
    assert not list(operators(plain, Phase.RECOMPUTE))
    repeated = gemms(again, Phase.RECOMPUTE)
    # A block's last product, and the model's, feed only sums, whose backward needs no value:
    # checkpointing stops before them.
    forward = gemms(plain, Phase.FORWARD)
    left_out = {Gemm(1, 16, 16, 64): 3} if recompute is True else {Gemm(1, 16, 50, 16): 1}
    if recompute is True:
        left_out[Gemm(1, 16, 50, 16)] = 1  # outside the blocks
    assert repeated == forward - Counter(left_out)
    for phase in (Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHT):
        assert gemms(again, phase) == gemms(plain, phase)
    # They read the same weights as the first time.
    first, second = (
        Counter(op.signature for op in operators(again, phase))
        for phase in (Phase.FORWARD, Phase.RECOMPUTE)
    )
    assert second and second <= first
    # A recomputed operator reads the forward pass's block inputs, never its inner results.
    kept = {
        source
        for source, sink in again.edges
        if again.nodes[source]["op"].phase == Phase.FORWARD
        and again.nodes[sink]["op"].phase == Phase.RECOMPUTE
    }
    assert len(kept) <= 4


def test_blocks_are_the_outermost_repeated_modules() -> None:
    assert repeated_blocks(tiny_decoder(3)) == [f"layers.{index}" for index in range(3)]
    stages = [f"stages.{stage}.{block}" for stage in range(4) for block in range(2)]
    with torch.device("meta"):
        assert repeated_blocks(resnet18()) == stages
    assert repeated_blocks(cnn()) == []


def test_layers_are_the_same_operators() -> None:
    """Every layer more adds operators but no new signature; layers are told apart by path."""
    small, large = (trace_decoder(n, optimizer="adam") for n in (2, 4))
    ids = [len(set(signatures(graph).values())) for graph in (small, large)]
    assert ids[0] == ids[1]
    per_layer = Counter(
        op.layer.split(".")[1] for op in operators(large) if op.layer.startswith("layers.")
    )
    # The first layer's input is the embedding, whose gradient ends otherwise.
    assert len(per_layer) == 4 and len(set(per_layer.values())) <= 2
    ours, theirs = len(small), len(large)
    assert theirs - ours == 2 * per_layer["2"]


def test_real_meta_and_fake_modules_give_one_graph() -> None:
    real = train(mlp(), torch.zeros(4, 16), optimizer="sgd")
    with torch.device("meta"):
        meta = train(mlp(), torch.zeros(4, 16), optimizer="sgd")
    with FakeTensorMode():
        module, x = mlp(), torch.zeros(4, 16)
    fake = from_torch(module, (x,), loss=F.cross_entropy, targets=labels(), optimizer="sgd")
    for other in (meta, fake):
        assert dict(other.nodes(data="op")) == dict(real.nodes(data="op"))
        assert list(other.edges(data="bytes")) == list(real.edges(data="bytes"))


def test_shared_weights_and_own_loss() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return F.cross_entropy(self.head(self.embed(tokens)), tokens)

    graph = from_torch(Tied(), {"tokens": torch.zeros(6, dtype=torch.int64)}, optimizer="sgd")
    assert graph.graph["parameters"] == 160
    gather = graph.nodes["embed/embedding"]["op"]
    assert gather.core == Core.NONE
    assert gather.weight_bytes == 4 * 6 * 8  # rows, not the table
    # Both gradients of the table and their sum are weight gradients, the update is one.
    weight = [op.outputs[0] for op in operators(graph, Phase.BACKWARD_WEIGHT)]
    assert weight == [(20, 8)] * 3
    assert len(list(operators(graph, Phase.OPTIMIZER))) == 1


def test_parts_of_a_buffer_are_read_once_each() -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            left, right = (x + 1).chunk(2, -1)
            both = left * right
            return both @ both.transpose(0, 1)

    graph = from_torch(Parts(), (torch.zeros(4, 8),), training=False)
    assert [op.read_bytes for op in operators(graph)] == [128, 128, 64]


def test_an_unknown_operator_is_named() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(x)

    with pytest.warns(UserWarning, match="special_bessel_j0.default is not known"):
        graph = from_torch(Odd(), (torch.zeros(7),), training=False)
    (op,) = operators(graph)
    assert (op.kind, op.elements) == (Kind.ELEMENTWISE, 7)


def test_attention_is_its_products() -> None:
    class Fused(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    graph = from_torch(Fused(), (torch.zeros(2, 3, 5, 8),), training=False)
    assert gemms(graph, Phase.FORWARD) == {Gemm(6, 5, 5, 8): 1, Gemm(6, 5, 8, 5): 1}


def test_what_cannot_be_traced() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    x = torch.zeros(4, 16)
    with pytest.raises(GraphError, match="Branches does not run on tensors without data"):
        from_torch(Branches(), (x,), training=False)
    with pytest.raises(GraphError, match="Sequential does not run"):
        train(mlp(), torch.zeros(4, 17))
    with pytest.raises(GraphError, match="expected a scalar loss to train"):
        from_torch(mlp(), (x,))
    with pytest.raises(GraphError, match="expected parameters to train"):
        from_torch(nn.ReLU(), (x,), loss=torch.sum)
    with pytest.raises(GraphError, match="expected an optimizer of none, sgd, momentum, adam"):
        train(mlp(), x, optimizer="lion")
    with pytest.raises(GraphError, match="expected repeated blocks to recompute"):
        train(mlp(), x, recompute=True)
    with pytest.raises(GraphError, match="expected recompute to be one of none, block, whole"):
        train(mlp(), x, recompute="half")
    with pytest.raises(GraphError, match="without operators"):
        from_torch(nn.Identity(), (x,), training=False)
