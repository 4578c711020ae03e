"""Which dense layers form a chain, and what is said of where it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax

from tests.schedules.relax.modules import constant, module, symbol, values, variable
from tunerplugin.schedules.fused_mlp import Activation, Residual
from tunerplugin.schedules.fused_mlp.graph.chains import Chain, find_chains

op = relax.op
Emit = Callable[[Any], Any]


def dense(emit: Emit, x: Any, n: int, *, act: Any = None, k: int = 16) -> Any:
    y = emit(op.add(emit(op.matmul(x, constant(k, n))), constant(n)))
    return y if act is None else emit(act(y))


def chains_of(
    body: Callable[..., Any], *parameters: Any, outputs: int = 1
) -> tuple[list[Chain], list[str]]:
    found, refusals = find_chains(values(module(body, *parameters, outputs=outputs)))
    return found, [refusal.reason for refusal in refusals]


def only(body: Callable[..., Any], *parameters: Any) -> Chain:
    (chain,), refusals = chains_of(body, *parameters)
    assert refusals == []
    return chain


X = (5, 16)


def test_bias_on_either_side_or_none_and_weights_of_every_kind() -> None:
    w, v, b = (variable("w", (16, 8)), variable("v", (4, 8)), variable("b", (1, 8)))

    def body(emit: Emit, x: Any, w: Any, v: Any, b: Any) -> Any:
        y = emit(op.nn.relu(emit(op.add(b, emit(op.matmul(x, w))))))
        y = emit(op.matmul(y, emit(op.permute_dims(v))))
        return emit(op.add(emit(op.matmul(y, constant(4, 3))), constant(3)))

    chain = only(body, variable("x", X), w, v, b)
    assert chain.mlp.widths == (16, 8, 4, 3)
    assert chain.mlp.bias == (True, False, True)
    assert [a.function for a in chain.mlp.activations] == ["relu", "none", "none"]
    weights = [(layer.dense.weight.source, layer.dense.weight.transposed) for layer in chain.layers]
    assert weights[0][0].same_as(w) and not weights[0][1]
    assert weights[1][0].same_as(v) and weights[1][1]
    assert chain.stop == "the block ends"


def test_residuals() -> None:
    def body(emit: Emit, x: Any) -> Any:
        h = emit(op.add(dense(emit, x, 16, act=op.tanh), x))
        before = emit(op.nn.relu(emit(op.add(h, dense(emit, h, 16)))))
        return emit(op.add(dense(emit, before, 16, act=op.nn.silu), h))

    chain = only(body, variable("x", X))
    assert chain.mlp.residuals == (Residual(0), Residual(1, before_activation=True), Residual(1))


def test_a_residual_from_elsewhere_is_no_residual() -> None:
    def body(emit: Emit, x: Any, other: Any) -> Any:
        h = dense(emit, dense(emit, x, 16, act=op.tanh), 16, act=op.tanh)
        return dense(emit, emit(op.add(h, other)), 16)

    chains, _ = chains_of(body, variable("x", X), variable("other", X))
    assert [chain.mlp.layers for chain in chains] == [2, 1]
    assert chains[0].stop == "add (lv6) is no part of a layer"


def test_leading_dimensions_and_symbolic_rows() -> None:
    n = symbol()

    def body(emit: Emit, x: Any) -> Any:
        flat = emit(op.reshape(x, (n * 3, 16)))
        y = emit(op.reshape(dense(emit, flat, 16), (n, 3, 16)))
        y = emit(op.add(emit(op.nn.gelu(y)), x))
        return dense(emit, y, 8)

    chain = only(body, variable("x", (n, 3, 16)))
    assert chain.mlp.widths == (16, 16, 8)
    assert chain.mlp.residuals == (Residual(0), None)
    assert not isinstance(chain.rows, int)
    static = only(lambda emit, x: dense(emit, x, 8), variable("x", (2, 3, 16)))
    assert static.rows == 6


def test_a_reshape_that_mixes_columns_ends_a_chain() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return dense(emit, emit(op.reshape(dense(emit, x, 8), (10, 4))), 4, k=4)

    chains, _ = chains_of(body, variable("x", X))
    assert [chain.mlp.widths for chain in chains] == [(16, 8), (4, 4)]


def test_values_needed_elsewhere_end_the_chain_there() -> None:
    def middle(emit: Emit, x: Any) -> Any:
        h = dense(emit, dense(emit, x, 16, act=op.tanh), 16, act=op.tanh)
        return dense(emit, dense(emit, h, 16, act=op.tanh), 4), h

    chains, _ = chains_of(middle, variable("x", X), outputs=2)
    assert [chain.mlp.widths for chain in chains] == [(16, 16, 16), (16, 16, 4)]
    assert chains[0].stop == "lv5 inside it is needed elsewhere, by an expression (gv1)"


def test_a_pre_activation_needed_elsewhere_leaves_the_linear_layer() -> None:
    def body(emit: Emit, x: Any) -> Any:
        z = dense(emit, dense(emit, x, 16, act=op.tanh), 16)
        return dense(emit, emit(op.tanh(z)), 4), emit(op.exp(z))

    chains, _ = chains_of(body, variable("x", X), outputs=2)
    assert [chain.mlp.widths for chain in chains] == [(16, 16, 16), (16, 4)]
    assert chains[0].mlp.activations == (Activation("tanh"), Activation("none"))


def test_two_readers_of_one_value() -> None:
    def body(emit: Emit, x: Any) -> Any:
        h = dense(emit, x, 16, act=op.tanh)
        return dense(emit, h, 4), dense(emit, h, 8)

    chains, _ = chains_of(body, variable("x", X), outputs=2)
    assert [chain.mlp.widths for chain in chains] == [(16, 16), (16, 4), (16, 8)]


def test_weights_made_of_the_chains_values() -> None:
    """A hypernetwork: the second layer's weight is computed from the first one's output."""

    def body(emit: Emit, x: Any) -> Any:
        h = dense(emit, x, 16, act=op.tanh)
        return emit(op.matmul(h, emit(op.permute_dims(h))))

    chains, _ = chains_of(body, variable("x", (16, 16)))
    assert [chain.mlp.layers for chain in chains] == [1, 1]


def test_unknown_operators_end_a_chain() -> None:
    def body(emit: Emit, x: Any) -> Any:
        h = dense(emit, dense(emit, x, 16, act=op.tanh), 16)
        return dense(emit, emit(op.nn.softmax(h)), 4)

    chains, _ = chains_of(body, variable("x", X))
    assert [chain.mlp.layers for chain in chains] == [2, 1]
    assert chains[0].stop == "nn.softmax (lv5) is no part of a layer"


def test_numbers_that_are_parameters() -> None:
    def body(emit: Emit, x: Any, half: Any) -> Any:
        return dense(emit, emit(op.multiply(dense(emit, x, 16), half)), 4)

    chains, _ = chains_of(body, variable("x", X), variable("half", ()))
    assert chains[0].stop == "half is a scalar parameter, expected a literal: bind it"


@pytest.mark.parametrize(
    ("x", "w", "reason"),
    [
        (variable("x", X), variable("w", (16, 257)), "width 257, expected at most 256"),
        (
            variable("x", X, "float64"),
            variable("w", (16, 4), "float64"),
            "dtype float64, expected one of float32, float16, bfloat16",
        ),
        (
            variable("x", (3, 5, 16)),
            variable("w", (3, 16, 4)),
            "batched weight of shape (3, 16, 4), expected (inputs, outputs)",
        ),
        (variable("x", X), variable("w", (16, symbol("m"))), "weight of symbolic shape (16, m)"),
        (
            variable("x", X),
            relax.Var("w", relax.TensorType(dtype="float32", ndim=2)),
            "a shape that is not known",
        ),
    ],
)
def test_products_that_are_no_layers(x: Any, w: Any, reason: str) -> None:
    chains, refusals = chains_of(lambda emit, x, w: emit(op.matmul(x, w)), x, w)
    assert (chains, refusals) == ([], [reason])


def test_a_wide_layer_is_named_as_the_end() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return dense(emit, dense(emit, dense(emit, x, 16), 300), 8, k=300)

    chains, refusals = chains_of(body, variable("x", X))
    assert [chain.mlp.widths for chain in chains] == [(16, 16)]
    assert chains[0].stop == "lv2 has width 300, expected at most 256"
    assert refusals == ["width 300, expected at most 256"] * 2


def half(emit: Emit, x: Any, n: int, *, wide: bool) -> Any:
    """A layer as ToMixedPrecision leaves it: float16 product, bias and ReLU in either type."""
    weight = emit(op.astype(constant(n, 16), "float16"))
    y = emit(op.matmul(x, emit(op.permute_dims(weight)), out_dtype="float32"))
    y = emit(op.astype(y, "float16"))
    if wide:
        y = emit(op.add(emit(op.astype(y, "float32")), constant(n)))
        return emit(op.astype(emit(op.nn.relu(y)), "float16"))
    return emit(op.nn.relu(emit(op.add(y, emit(op.astype(constant(n), "float16"))))))


def test_mixed_precision() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return half(emit, half(emit, x, 16, wide=True), 4, wide=False)

    chain = only(body, variable("x", X, "float16"))
    assert chain.mlp.dtype == "float16"
    assert chain.mlp.widths == (16, 16, 4)
    assert chain.mlp.activations == (Activation("relu"),) * 2
    # two conversions and transpositions of weights, one conversion of a bias
    assert len(chain.unneeded) == 5
    assert all(p.source.ty.dtype == "float32" for la in chain.layers for p in la.parameters)


def test_sums_that_are_never_rounded_are_no_layer() -> None:
    def body(emit: Emit, x: Any) -> Any:
        weight = relax.const(constant(16, 4).value.numpy().astype("float16"))
        return emit(op.matmul(x, weight, out_dtype="float32"))

    chains, refusals = chains_of(body, variable("x", X, "float16"))
    assert chains == []
    assert refusals == ["a result that is not rounded to its operands' dtype float16"]
