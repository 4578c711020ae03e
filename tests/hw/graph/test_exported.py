"""Modules as TVM's importers leave them, and layers that torch has kernels of its own for."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import tvm
from torch import nn
from tvm.relax.frontend import detach_params
from tvm.relax.frontend.torch import from_exported_program

from tunerplugin.errors import GraphError
from tunerplugin.hw.graph import Phase, from_relax, from_torch, gemm_flops, operators

BATCH = 4


def exported(**options: Any) -> Any:
    """Linear, relu, linear through ``torch.export``: the result is in a tuple of one."""
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    program = torch.export.export(network, (torch.zeros(BATCH, 16),))
    return from_exported_program(program, **options)


def test_an_exported_program_is_trained() -> None:
    module, _ = detach_params(exported(keep_params_as_input=True))
    graph = from_relax(module, training=True, loss="cross_entropy", optimizer="adam")
    forward = 2 * BATCH * (16 * 32 + 32 * 10)
    assert gemm_flops(graph, Phase.FORWARD) == gemm_flops(graph, Phase.BACKWARD_WEIGHT) == forward
    assert gemm_flops(graph, Phase.BACKWARD_DATA) == 2 * BATCH * 32 * 10
    assert graph.graph["batch"] == BATCH and graph.graph["parameters"] == 16 * 32 + 32 + 320 + 10
    assert from_relax(module).graph["batch"] == BATCH


def test_constants_are_weights() -> None:
    graph = from_relax(exported())
    named, _ = detach_params(exported(keep_params_as_input=True))
    assert gemm_flops(graph) == 2 * BATCH * (16 * 32 + 32 * 10)
    assert graph.graph["parameter_bytes"] == from_relax(named).graph["parameter_bytes"]
    assert sum(o.weight_bytes for o in operators(graph)) == graph.graph["parameter_bytes"]
    with pytest.raises(GraphError, match=r"'main' has none; weights have to be arguments"):
        from_relax(exported(), training=True, loss="cross_entropy")


def test_inputs_are_no_weights() -> None:
    """``num_input`` of the importers says how many arguments are inputs."""
    module, _ = detach_params(exported(keep_params_as_input=True))
    main = module["main"].with_attr("num_input", 2)
    graph = from_relax(tvm.IRModule({"main": main}))
    assert graph.graph["parameters"] == 32 + 320 + 10


def test_an_open_batch_is_bound() -> None:
    network = nn.Linear(16, 10).eval()
    program = torch.export.export(
        network, (torch.zeros(4, 16),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)
    )
    module, _ = detach_params(from_exported_program(program, keep_params_as_input=True))
    graph = from_relax(module, batch=6)
    assert gemm_flops(graph) == 2 * 6 * 16 * 10 and graph.graph["batch"] == 6


def lstm_flops(batch: int, steps: int, size: int, hidden: int) -> int:
    return 2 * batch * steps * 4 * hidden * (size + hidden)


def test_recurrent_layers_are_products() -> None:
    graph = from_torch(nn.LSTM(16, 32), (torch.zeros(7, BATCH, 16),), training=False)
    assert gemm_flops(graph) == lstm_flops(BATCH, 7, 16, 32)
    assert torch._C._get_mkldnn_enabled() == torch.backends.mkldnn.is_available()


def test_encoder_layers_are_products_in_inference() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 64, batch_first=True)
    graph = from_torch(layer, (torch.zeros(BATCH, 8, 16),), training=False)
    tokens, attention = BATCH * 8, 2 * BATCH * 8 * 8 * 16
    assert gemm_flops(graph) == 2 * (tokens * (4 * 16 * 16 + 2 * 16 * 64) + attention)
    assert torch.backends.mha.get_fastpath_enabled()


def test_what_cannot_be_traced(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GraphError, match=r"expected a torch\.nn\.Module, got int"):
        from_torch(5, (torch.zeros(2),))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"got a tensor of shape \(4, 3\)"):
        from_torch(nn.Linear(2, 3), (torch.zeros(4, 2),))
    with caplog.at_level(logging.ERROR), pytest.raises(GraphError, match="does not run"):
        from_torch(nn.Linear(2, 3), (torch.zeros(4, 5),), training=False)
    assert not caplog.records  # torch's own traceback would stand before the sentence


def test_samples_are_those_of_the_first_input() -> None:
    assert from_torch(nn.Linear(2, 3), (torch.zeros(4, 2),), training=False).graph["batch"] == 4
    named = from_torch(nn.Linear(2, 3), {"input": torch.zeros(5, 2)}, training=False)
    assert named.graph["batch"] == 5
