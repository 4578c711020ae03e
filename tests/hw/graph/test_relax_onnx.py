"""Graphs of Relax modules and ONNX models, beside those of the same network in torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional as F
from tvm import relax
from tvm.relax import op

from tunerplugin.errors import GraphError
from tunerplugin.hw.graph import (
    Core,
    Gemm,
    Kind,
    Phase,
    from_onnx,
    from_relax,
    from_torch,
    fuse,
    gemm_flops,
    operators,
    read_relax,
)


def variable(name: str, shape: Any, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorType(shape, dtype))


def relax_cnn(batch: Any = 2) -> Any:
    """Convolution, relu, dense: the Relax twin of ``torch_cnn``."""
    x, kernel = variable("x", (batch, 3, 8, 8)), variable("kernel", (4, 3, 3, 3))
    weight = variable("weight", (144, 5))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, kernel, weight]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, kernel))))
            y = builder.emit(op.reshape(y, (batch, 144)))
            out = builder.emit_output(builder.emit(op.matmul(y, weight)))
        builder.emit_func_output(out)
    return builder.get()


def torch_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5, bias=False)
    )


def onnx_cnn(batch: int | str = 2) -> Any:
    onnx = pytest.importorskip("onnx")
    import numpy as np

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT

    def weights(name: str, shape: tuple[int, ...]) -> Any:
        return onnx.numpy_helper.from_array(np.zeros(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "weight"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("x", kind, (batch, 3, 8, 8))],
        [helper.make_tensor_value_info("y", kind, (batch, 5))],
        [weights("kernel", (4, 3, 3, 3)), weights("weight", (144, 5))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def work(graph: nx.DiGraph, *phases: Phase) -> Counter[tuple[Any, ...]]:
    """What products and updates a graph holds, whatever its front end calls them."""
    found = (o for o in operators(graph) if not phases or o.phase in phases)
    return Counter((o.phase, o.gemm, o.read_bytes, o.weight_bytes, o.written_bytes) for o in found)


def test_three_front_ends_agree_on_inference() -> None:
    ours = from_relax(relax_cnn())
    theirs = from_torch(torch_cnn(), (torch.zeros(2, 3, 8, 8),), training=False)
    assert work(ours) == work(theirs) == work(from_onnx(onnx_cnn()))
    assert [o.kind for o in operators(ours)] == [Kind.CONV, Kind.ELEMENTWISE, Kind.GEMM]
    assert ours.graph["parameters"] == theirs.graph["parameters"] == 4 * 27 + 720
    assert len(fuse(ours)) == 2


def test_training_steps_agree_on_products_and_updates() -> None:
    labels = torch.zeros(2, dtype=torch.int64)
    options: dict[str, Any] = {"training": True, "optimizer": "adam"}
    theirs = from_torch(
        torch_cnn(), (torch.zeros(2, 3, 8, 8),), loss=F.cross_entropy, targets=(labels,), **options
    )
    both = [from_relax(relax_cnn(), loss="cross_entropy", **options)]
    both.append(from_onnx(onnx_cnn(), loss="cross_entropy", **options))
    for ours in both:
        for phase in (Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHT):
            assert gemm_flops(ours, phase) == gemm_flops(theirs, phase)
        assert work(ours, Phase.OPTIMIZER) == work(theirs, Phase.OPTIMIZER)
        assert {o.kind for o in operators(ours, Phase.LOSS)} == {Kind.SOFTMAX, Kind.LOSS}
        assert ours.graph["state_bytes"] == theirs.graph["state_bytes"]


def test_only_named_parameters_are_trained() -> None:
    graph = from_relax(relax_cnn(), parameters=["weight"], training=True, loss="cross_entropy")
    weight = [o.gemm for o in operators(graph, Phase.BACKWARD_WEIGHT)]
    assert weight == [Gemm(1, 144, 5, 2)]
    assert graph.graph["parameters"] == 720


def test_symbolic_sizes_and_files(tmp_path: Path) -> None:
    module = relax_cnn(tvm.tirx.Var("n", "int64"))
    with pytest.raises(GraphError, match="argument x: expected a tensor of fixed shape"):
        from_relax(module)
    assert work(from_relax(module, sizes={"n": 2})) == work(from_relax(relax_cnn()))
    path = tmp_path / "relax.json"
    path.write_text(tvm.ir.save_json(relax_cnn()), encoding="utf-8")
    assert work(from_relax(read_relax(path))) == work(from_relax(relax_cnn()))


def test_relax_operators_of_many_kinds() -> None:
    x, gain, table = variable("x", (2, 4, 8)), variable("gain", (8,)), variable("table", (50, 8))
    ids = variable("ids", (2, 4), "int32")
    builder = relax.BlockBuilder()
    with builder.function("main", [ids, x, gain, table]):
        with builder.dataflow():
            y = builder.emit(op.nn.layer_norm(x, gain, gain, axes=[-1]))
            y = builder.emit(op.nn.softmax(builder.emit(op.nn.gelu(y))))
            words = builder.emit(op.take(table, builder.emit(op.reshape(ids, (8,))), axis=0))
            words = builder.emit(op.reshape(words, (2, 4, 8)))
            both = builder.emit(op.concat([y, words], axis=-1))
            parts = builder.emit(op.split(both, 2, axis=-1))
            y = builder.emit(op.multiply(parts[0], parts[1]))
            y = builder.emit(op.matmul(y, builder.emit(op.permute_dims(x, [0, 2, 1]))))
            out = builder.emit_output(builder.emit(op.sum(y)))
        builder.emit_func_output(out)
    graph = from_relax(builder.get(), parameters=["gain", "table"])
    kinds = {o.name: (o.kind, o.function) for o in operators(graph)}
    assert kinds == {
        "nn.layer_norm": (Kind.NORMALISATION, "norm"),
        "nn.gelu": (Kind.ELEMENTWISE, "gelu"),
        "nn.softmax": (Kind.SOFTMAX, "softmax"),
        "take": (Kind.EMBEDDING, "move"),
        "concat": (Kind.COPY, "move"),
        "multiply": (Kind.ELEMENTWISE, "alu"),
        "matmul": (Kind.GEMM, ""),
        "sum": (Kind.REDUCTION, "batch_sum"),
    }
    assert graph.nodes["take"]["op"].weight_bytes == 4 * 8 * 8  # rows, not the table
    assert graph.nodes["take"]["op"].core == Core.NONE
    assert graph.nodes["matmul"]["op"].gemm == Gemm(2, 4, 4, 8)
    assert graph.edges["concat", "multiply"]["bytes"] == 2 * 4 * 2 * 4 * 8


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"expected a Relax function of \['main'\], got 'other'"):
        from_relax(relax_cnn(), "other")
    with pytest.raises(GraphError, match="expected parameters of .*, got \\['nothing'\\]"):
        from_relax(relax_cnn(), parameters=["nothing"])
    with pytest.raises(GraphError, match="expected a scalar loss to train, got "):
        from_relax(relax_cnn(), training=True)
    with pytest.raises(GraphError, match="expected the loss 'cross_entropy'"):
        from_relax(relax_cnn(), training=True, loss="hinge")
    broken = tmp_path / "broken"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(GraphError, match="expected a Relax module as JSON"):
        read_relax(broken)
    with pytest.raises(GraphError, match="expected an ONNX model"):
        from_onnx(broken)
    with pytest.raises(GraphError, match="expected a fixed shape of the ONNX input 'x'"):
        from_onnx(onnx_cnn("N"))
    with pytest.raises(GraphError, match=r"expected shapes of the inputs \['x'\], got \['y'\]"):
        from_onnx(onnx_cnn(), shapes={"y": [1]})


def test_open_onnx_shapes_are_given() -> None:
    graph = from_onnx(onnx_cnn("N"), shapes={"x": [2, 3, 8, 8]})
    assert work(graph) == work(from_relax(relax_cnn()))
    assert graph.graph["name"] == "cnn"
