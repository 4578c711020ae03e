"""Which expressions of a Relay module are a chain, what is said of the others, and what stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import nn

from tunerplugin.errors import InputError, ScheduleError
from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp import Activation, Residual
from tunerplugin.schedules.fused_mlp.graph.chains import Chain, find_chains
from tunerplugin.schedules.fused_mlp.relay.operator import NAME
from tunerplugin.schedules.fused_mlp.relay.values import regions
from tunerplugin.schedules.relay import FuseMLP, analyse

CPU = tvm.target.Target(host_target(1))


def tensor(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    scale = shape[-1] ** -0.5
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def dense(x: Any, n: int, k: int, seed: int = 0) -> Any:
    product = nn.dense(x, relay.const(tensor(n, k, seed=seed)))
    return nn.bias_add(product, relay.const(tensor(n)), axis=-1)


def module(body: Any) -> Any:
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def chains_of(mod: Any) -> list[Chain]:
    (region,) = regions(relay.transform.InferType()(mod)["main"])
    return find_chains(region)[0]


def called(mod: Any) -> list[str]:
    """Names of the operators that ``main`` calls, each as often as it is called."""
    names: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, relay.Call) and isinstance(value.op, tvm.ir.Op):
            names.append(str(value.op.name))

    relay.analysis.post_order_visit(mod["main"], visit)
    return names


X = relay.var("x", shape=(5, 16))


def torch_gelu(x: Any) -> Any:
    """As ``relay.frontend.from_pytorch`` writes it."""
    half, root = relay.const(0.5), relay.const(math.sqrt(0.5))
    return x * (half + relay.erf(x * root) * half)


def torch_softplus(x: Any) -> Any:
    """As ``relay.frontend.from_pytorch`` writes it, with beta 1."""
    beta, threshold = relay.const(1.0), relay.full_like(x, relay.const(20.0))
    softplus = relay.log(relay.exp(x * beta) + relay.const(1.0)) / beta
    return relay.where(relay.greater(x * beta, threshold), x, softplus)


def onnx_softplus(x: Any) -> Any:
    return relay.log(relay.exp(x) + relay.const(1.0))


def onnx_gelu(x: Any) -> Any:
    gate = relay.erf(x / relay.const(math.sqrt(2))) + relay.const(1.0)
    return x * gate * relay.const(0.5)


FORMS: list[tuple[Callable[[Any], Any], Activation]] = [
    (nn.relu, Activation("relu")),
    (lambda x: relay.maximum(x, relay.const(0.0)), Activation("relu")),
    (lambda x: nn.leaky_relu(x, alpha=0.25), Activation("leaky_relu", 0.25)),
    (relay.tanh, Activation("tanh")),
    (relay.sigmoid, Activation("sigmoid")),
    (relay.exp, Activation("exponential")),
    (lambda x: relay.sin(x * relay.const(30.0)), Activation("sine", 30.0)),
    (lambda x: x * relay.sigmoid(x), Activation("silu")),
    (torch_gelu, Activation("gelu")),
    (onnx_gelu, Activation("gelu")),
    (torch_softplus, Activation("softplus")),
    (onnx_softplus, Activation("softplus")),
]


@pytest.mark.parametrize(("form", "expected"), FORMS)
def test_activations(form: Callable[[Any], Any], expected: Activation) -> None:
    (chain,) = chains_of(module(dense(form(dense(X, 8, 16)), 4, 8)))
    assert chain.mlp.activations == (expected, Activation("none"))
    assert chain.mlp.widths == (16, 8, 4)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: relay.maximum(x, relay.const(0.5)),
        lambda x: relay.clip(x, 0.0, 6.0),
        lambda x: x * (relay.const(0.25) + relay.erf(x * relay.const(0.7)) * relay.const(0.5)),
        lambda x: relay.log(relay.exp(x) + relay.const(2.0)),
    ],
)
def test_what_only_looks_like_an_activation_ends_a_chain(form: Callable[[Any], Any]) -> None:
    chains = chains_of(module(dense(form(dense(X, 8, 16)), 4, 8)))
    assert [chain.mlp.widths for chain in chains] == [(16, 8), (8, 4)]


def test_products_biases_and_residuals() -> None:
    """Every way to write y = x W + b, and both places of a residual."""
    w = relay.const(tensor(16, 16))
    h = nn.relu(nn.matmul(X, w) + relay.const(tensor(1, 16)))
    h = nn.matmul(h, w, transpose_b=True)
    h = relay.tanh(nn.dense(h, relay.transpose(w)) + X)
    h = nn.bias_add(nn.dense(h, w), relay.const(tensor(16)), axis=-1) + h
    (chain,) = chains_of(module(h))
    assert chain.mlp.bias == (True, False, False, True)
    assert chain.mlp.residuals == (None, None, Residual(0, before_activation=True), Residual(3))
    assert [layer.dense.weight.transposed for layer in chain.layers] == [False, True, False, True]


def test_leading_extents_and_dynamic_rows() -> None:
    x = relay.var("x", shape=(relay.Any(), 3, 16))
    flat = relay.reshape(x, (-1, 16))
    h = relay.reshape(nn.relu(dense(flat, 16, 16)), (-1, 3, 16))
    h = dense(relay.reshape(h, (-1, 16)), 16, 16)
    (chain,) = chains_of(module(h + nn.relu(flat)))
    assert chain.mlp.widths == (16, 16, 16)
    assert not isinstance(chain.rows, int)
    y = relay.var("y", shape=(relay.Any(), 16))
    (chain,) = chains_of(module(nn.relu(dense(nn.relu(dense(y, 16, 16)) + y, 16, 16)) + y))
    assert chain.mlp.residuals == (Residual(0), Residual(0))
    other = relay.var("z", shape=(relay.Any(), 16))
    chains = chains_of(module(dense(dense(y, 16, 16) + other, 16, 16)))
    assert [chain.mlp.layers for chain in chains] == [1, 1], "the rows may differ"


def test_reasons() -> None:
    wide = dense(dense(X, 300, 16), 8, 300)
    reports = analyse(module(wide), CPU, always=True)
    assert [(line.first, line.reason) for line in reports] == [
        ("nn.dense_0", "width 300, expected at most 256"),
        ("nn.dense_1", "width 300, expected at most 256"),
    ]
    inner = nn.relu(dense(X, 16, 16))
    mod = module(relay.Tuple([dense(inner, 16, 16), inner]))
    reports = analyse(mod, CPU)
    assert [(line.widths, line.fused) for line in reports] == [((16, 16), False)] * 2
    needed = "nn.relu_0 inside it is needed elsewhere"
    assert reports[0].reason.startswith(f"1 layer, fewer than 2; {needed}")
    (short,) = analyse(module(relay.clip(dense(X, 8, 16), 0, 6)), CPU)
    assert short.reason == "1 layer, fewer than 2; clip (clip_0) is no part of a layer"
    scale = relay.var("scale", shape=())
    (line, *_) = analyse(module(dense(dense(X, 8, 16) * scale, 8, 8)), CPU)
    assert line.reason.endswith("scale is a scalar parameter, expected a literal: bind it")
    x = relay.var("x", shape=(relay.Any(), relay.Any(), 16))
    (line,) = analyse(module(nn.relu(nn.dense(nn.relu(dense(x, 8, 16)), tensor_of(8, 8)))), CPU)
    assert (line.fused, line.reason) == (False, "2 dynamic extents, expected at most 1")


def tensor_of(*shape: int) -> Any:
    return relay.const(tensor(*shape))


def test_the_rest_of_the_model_stays() -> None:
    image = relay.var("image", shape=(2, 3, 8, 8))
    features = nn.conv2d(image, relay.const(tensor(4, 3, 3, 3)))
    pooled = nn.batch_flatten(nn.global_avg_pool2d(features))
    h = nn.softmax(dense(nn.relu(dense(pooled, 8, 4)), 3, 8))
    mod = relay.transform.InferType()(module(relay.Tuple([h, features])))
    fused = FuseMLP(CPU, always=True)(mod)
    assert called(fused) == [
        *("nn.conv2d", "nn.global_avg_pool2d", "nn.batch_flatten", NAME, "nn.softmax")
    ]
    before, after = mod["main"], fused["main"]
    tvm.ir.assert_structural_equal(before.body.fields[1], after.body.fields[1])
    tvm.ir.assert_structural_equal(before.checked_type, after.checked_type)
    assert called(mod).count("nn.dense") == 2, "the module that was given is as it was"
    softmax = module(nn.softmax(X))
    assert FuseMLP(CPU)(softmax).same_as(softmax)


def test_let_closures_and_branches() -> None:
    mlp = dense(nn.relu(dense(X, 16, 16)), 16, 16)
    normal = relay.transform.ToANormalForm()(relay.transform.InferType()(module(mlp)))
    assert called(FuseMLP(CPU, always=True)(normal)) == [NAME]
    y = relay.var("y", shape=(5, 16))
    closure = relay.Function([y], dense(nn.relu(dense(y, 16, 16)), 16, 16))
    function = relay.var("f")
    mod = module(relay.Let(function, closure, relay.Call(function, [X])))
    assert called(FuseMLP(CPU, always=True)(mod)) == [NAME]
    shared = nn.relu(dense(X, 16, 16))
    captures = relay.Function([], dense(shared, 16, 16))
    mod = module(relay.Tuple([relay.Call(captures, []), shared]))
    assert NAME not in called(FuseMLP(CPU, always=True)(mod)), "a value of both scopes"


def test_other_code_generators_functions_stay() -> None:
    y = relay.var("y", shape=(5, 16))
    theirs = relay.Function([y], dense(nn.relu(dense(y, 16, 16)), 16, 16))
    theirs = theirs.with_attr("Compiler", "other")
    assert NAME not in called(FuseMLP(CPU, always=True)(module(relay.Call(theirs, [X]))))


def test_a_deep_model_needs_no_deep_recursion() -> None:
    h: Any = X
    for _ in range(400):
        h = relay.clip(h, -5.0, 5.0)
    fused = FuseMLP(CPU, always=True)(module(dense(nn.relu(dense(h, 8, 16)), 8, 8)))
    assert called(fused).count(NAME) == 1


def batched(x: Any, n: int, k: int, batch: int) -> Any:
    """A torch.nn.Linear of three extents, as ``relay.frontend.from_pytorch`` writes it."""
    weight = relay.transpose(relay.const(tensor(n, k)), (1, 0))
    left = relay.reshape(relay.broadcast_to(x, (batch, 5, k)), (-1, 5, k))
    right = relay.reshape(relay.broadcast_to(weight, (batch, k, n)), (-1, k, n))
    product = nn.batch_matmul(left, right, transpose_b=False)
    product = relay.squeeze(relay.reshape(product, (batch, 5, n)), axis=[])
    return nn.bias_add(product, relay.const(tensor(n)), axis=-1)


def test_products_with_a_batch_of_one_matrix() -> None:
    x = relay.var("x", shape=(2, 5, 16))
    h = batched(torch_gelu(batched(x, 24, 16, 2)), 16, 24, 2) + x
    (chain,) = chains_of(module(h))
    assert (chain.mlp.widths, chain.rows) == ((16, 24, 16), 10)
    assert chain.mlp.residuals == (None, Residual(0))
    several = nn.batch_matmul(x, relay.const(tensor(2, 8, 16)))
    (line,) = analyse(module(several), CPU)
    assert line.reason == "batched weight of shape (2, 8, 16), expected (inputs, outputs)"


@pytest.mark.heavy
def test_a_torch_model() -> None:
    """The importer alone takes some ten seconds."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 16)
    model = torch.nn.Sequential(*layers).eval()
    traced = torch.jit.trace(model, torch.zeros(2, 5, 16), check_trace=False)
    mod, params = relay.frontend.from_pytorch(traced, [("x", (2, 5, 16))])
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    fuse = FuseMLP(CPU, always=True)
    assert called(fuse(mod)).count(NAME) == 1
    assert fuse.report[0].widths == (16, 24, 16)


def test_refused_arguments() -> None:
    with pytest.raises(ScheduleError, match="minimum_layers of at least 1, got 0"):
        FuseMLP(CPU, minimum_layers=0)
    with pytest.raises(InputError, match=r"expected a TVM with Relax.*schedules\.relay\.FuseMLP"):
        from tunerplugin.schedules import FuseMLP as _  # noqa: F401
