"""Built-in workloads: published sizes, analytic work, and messages."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch

from tunerplugin.errors import GraphError, InputError
from tunerplugin.hw.graph import (
    WHAM_WORKLOADS,
    WORKLOADS,
    Phase,
    fuse,
    gemm_flops,
    operators,
    signatures,
    workload,
)
from tunerplugin.hw.graph.workloads.transformer import BERT_BASE


@pytest.mark.parametrize("name", WHAM_WORKLOADS)
def test_parameters_are_those_published(name: str) -> None:
    spec = WORKLOADS[name]
    with torch.device("meta"):
        module = spec.build(1, spec.sequence or 0).module
    assert sum(p.numel() for p in module.parameters()) == spec.parameters


def test_published_counts() -> None:
    """The counts that torchvision and Hugging Face print, once more and apart from the registry."""
    known = {
        "resnet18": 11_689_512,
        "vgg16": 138_357_544,
        "mobilenet-v3": 5_483_032,
        "inception-v3": 23_834_568,
        "resnext101": 88_791_336,
        "bert-base": 109_514_298,
        "bert-large": 335_174_458,
        "gpt2-xl": 1_557_611_200,
        "opt-1.3b": 1_315_758_080,
    }
    assert {name: WORKLOADS[name].parameters for name in known} == known
    assert round(WORKLOADS["gpt3"].parameters / 1e9, 1) == 174.6
    assert len(WHAM_WORKLOADS) == 11


def test_resnet18_inference() -> None:
    graph = workload("resnet18", 2, training=False)
    # 1.814 billion multiply-adds per image at 224 x 224: torchvision's model card.
    assert gemm_flops(graph) / 2 / 2 == pytest.approx(1.814e9, rel=5e-4)
    assert graph.graph["batch"] == 2 and graph.graph["sequence"] is None
    assert graph.graph["parameters"] == 11_689_512


def test_vgg16_step() -> None:
    graph = workload("vgg16", 1, optimizer="sgd")
    forward = gemm_flops(graph, Phase.FORWARD)
    assert forward / 2 == pytest.approx(15.47e9, rel=1e-3)  # torchvision's model card
    backward = gemm_flops(graph, Phase.BACKWARD_DATA) + gemm_flops(graph, Phase.BACKWARD_WEIGHT)
    assert backward == 2 * forward - 2 * 224 * 224 * 64 * 27
    assert graph.graph["state_bytes"] == 4 * graph.graph["parameters"]  # masters


def bert_products(batch: int, length: int) -> int:
    """Operations in the products of one forward pass of BERT-base with its language head."""
    shape, tokens = BERT_BASE, batch * length
    layer = 2 * tokens * 12 * shape.width**2 + 4 * tokens * length * shape.width
    return shape.layers * layer + 2 * tokens * shape.width * (shape.width + shape.vocabulary)


@pytest.mark.heavy
def test_bert_base_step() -> None:
    graph = workload("bert-base")
    forward = bert_products(8, 128)
    # Nothing before the first product is trained by products: no data gradient is missing.
    assert gemm_flops(graph) == 3 * forward
    assert gemm_flops(graph) / 1e12 == pytest.approx(0.684, abs=5e-4)
    assert sum(op.gemm is not None for op in operators(graph)) == 294
    assert graph.graph["state_bytes"] == 12 * 109_514_298
    # Twelve layers, one set of costs.
    assert len(set(signatures(graph).values())) < len(graph) / 15
    fused = fuse(graph)
    assert sum(op.total_flops for op in operators(fused)) == sum(
        op.total_flops for op in operators(graph)
    )
    saved = sum(op.total_bytes for op in operators(graph))
    assert sum(op.total_bytes for op in operators(fused)) < 0.6 * saved


def test_gnmt_depends_on_the_step_before() -> None:
    short, long = (workload("gnmt", 1, length, training=False) for length in (2, 4))
    products = [sum(op.gemm is not None for op in operators(graph)) for graph in (short, long)]
    # A step more: nine recurrent cells (the first step of each has none), the first decoder
    # layer's input, and the attention's query, score and sum.
    assert products[1] - products[0] == 2 * (9 + 4)


def test_words_for_what_cannot_be() -> None:
    with pytest.raises(InputError, match="expected a workload of resnet18, .*, got 'alexnet'"):
        workload("alexnet")
    with pytest.raises(InputError, match="expected no sequence for vgg16"):
        workload("vgg16", 1, 128)
    with pytest.raises(InputError, match="expected sizes of at least 1, got batch 0"):
        workload("resnet18", 0)
    with pytest.raises(InputError, match="expected a sequence of at most 512 tokens, got 513"):
        workload("bert-base", 1, 513)
    with pytest.raises(InputError, match="expected a dtype of bfloat16, float16, float32"):
        workload("bert-base", dtype="int8")
    with pytest.raises(GraphError, match="vgg16: expected repeated blocks to recompute"):
        workload("vgg16", 1, recompute=True)


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(GraphError, match=r"needs transformers.*install tunerplugin\[workloads\]"):
        workload("llama")


HUGGING_FACE = [name for name in WORKLOADS if name not in WHAM_WORKLOADS]


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_transformers_parameters(name: str) -> None:
    pytest.importorskip("transformers", reason="needs the extra [workloads]")
    with torch.device("meta"):
        module = WORKLOADS[name].build(1, 8).module
    assert sum(p.numel() for p in module.parameters()) == WORKLOADS[name].parameters


@pytest.mark.heavy
def test_our_decoder_has_the_products_of_transformers() -> None:
    pytest.importorskip("transformers", reason="needs the extra [workloads]")
    theirs = workload("transformers/opt-1.3b", 1, 16, optimizer="sgd")
    ours = workload("opt-1.3b", 1, 16, optimizer="sgd")
    for phase in (Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHT):
        assert gemm_flops(ours, phase) == gemm_flops(theirs, phase)


@pytest.mark.heavy
def test_an_encoder_and_decoder_of_transformers() -> None:
    pytest.importorskip("transformers", reason="needs the extra [workloads]")
    graph = workload("t5", 1, 16, optimizer="sgd")
    backward = gemm_flops(graph, Phase.BACKWARD_DATA) + gemm_flops(graph, Phase.BACKWARD_WEIGHT)
    assert backward == 2 * gemm_flops(graph, Phase.FORWARD)
    assert gemm_flops(workload("t5", 1, 16, training=False)) == gemm_flops(graph, Phase.FORWARD)


def digest(length: int) -> str:
    graph = fuse(workload("gnmt", 1, length, training=False))
    shown = [list(graph.nodes(data="op")), list(graph.edges(data="bytes")), signatures(graph)]
    return hashlib.sha256(repr(shown).encode()).hexdigest()


@pytest.mark.heavy
def test_graphs_are_the_same_in_every_process() -> None:
    code = "from tests.hw.graph.test_workloads import digest; print(digest(2))"
    env = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == digest(2)
