"""Which Relax expressions are which activation, and that they mean the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.schedules.relax.modules import constant, module, values, variable
from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp import Activation
from tunerplugin.schedules.fused_mlp.activations import reference
from tunerplugin.schedules.fused_mlp.graph.activations import match_activation

op = relax.op
Form = Callable[[Callable[[Any], Any], Any], Any]


def c(number: float) -> Any:
    return relax.const(number, "float32")


def gelu(emit: Any, x: Any) -> Any:
    """As ONNX exporters of torch write it."""
    gate = emit(op.add(emit(op.erf(emit(op.divide(x, c(math.sqrt(2)))))), c(1)))
    return emit(op.multiply(emit(op.multiply(x, gate)), c(0.5)))


def gelu_reordered(emit: Any, x: Any) -> Any:
    gate = emit(op.add(c(1), emit(op.erf(emit(op.multiply(c(math.sqrt(0.5)), x))))))
    return emit(op.multiply(emit(op.multiply(c(0.5), gate)), x))


def gelu_tanh(emit: Any, x: Any, cube: Any = None) -> Any:
    """As GPT-2 writes it."""
    cube = emit(op.power(x, c(3))) if cube is None else cube
    inner = emit(op.add(x, emit(op.multiply(c(0.044715), cube))))
    gate = emit(op.tanh(emit(op.multiply(c(math.sqrt(2 / math.pi)), inner))))
    return emit(op.multiply(emit(op.multiply(c(0.5), x)), emit(op.add(c(1), gate))))


def gelu_tanh_product(emit: Any, x: Any) -> Any:
    return gelu_tanh(emit, x, emit(op.multiply(emit(op.multiply(x, x)), x)))


def softplus(emit: Any, x: Any) -> Any:
    return emit(op.log(emit(op.add(emit(op.exp(x)), c(1)))))


def softplus_where(emit: Any, x: Any, threshold: float = 20.0) -> Any:
    condition = emit(op.greater(x, c(threshold)))
    return emit(op.where(condition, x, softplus(emit, x)))


def softplus_stable(emit: Any, x: Any) -> Any:
    magnitude = emit(op.exp(emit(op.negative(emit(op.abs(x))))))
    logarithm = emit(op.log(emit(op.add(c(1), magnitude))))
    return emit(op.add(emit(op.maximum(x, c(0))), logarithm))


FORMS: list[tuple[str, Form, Activation]] = [
    ("relu", lambda emit, x: emit(op.nn.relu(x)), Activation("relu")),
    ("relu as maximum", lambda emit, x: emit(op.maximum(c(0), x)), Activation("relu")),
    ("leaky", lambda emit, x: emit(op.nn.leakyrelu(x, 0.25)), Activation("leaky_relu", 0.25)),
    ("silu", lambda emit, x: emit(op.nn.silu(x)), Activation("silu")),
    (
        "silu as product",
        lambda emit, x: emit(op.multiply(emit(op.sigmoid(x)), x)),
        Activation("silu"),
    ),
    ("gelu", lambda emit, x: emit(op.nn.gelu(x)), Activation("gelu")),
    ("gelu decomposed", gelu, Activation("gelu")),
    ("gelu reordered", gelu_reordered, Activation("gelu")),
    ("gelu_tanh", lambda emit, x: emit(op.nn.gelu_tanh(x)), Activation("gelu_tanh")),
    ("gelu_tanh decomposed", gelu_tanh, Activation("gelu_tanh")),
    ("gelu_tanh product", gelu_tanh_product, Activation("gelu_tanh")),
    ("tanh", lambda emit, x: emit(op.tanh(x)), Activation("tanh")),
    ("sigmoid", lambda emit, x: emit(op.sigmoid(x)), Activation("sigmoid")),
    ("exponential", lambda emit, x: emit(op.exp(x)), Activation("exponential")),
    ("softplus", lambda emit, x: emit(op.nn.softplus(x)), Activation("softplus")),
    ("softplus as log", softplus, Activation("softplus")),
    ("softplus of torch", softplus_where, Activation("softplus")),
    ("softplus of ONNX", softplus_stable, Activation("softplus")),
    ("sine", lambda emit, x: emit(op.sin(x)), Activation("sine")),
    (
        "sine of 30 x",
        lambda emit, x: emit(op.sin(emit(op.multiply(c(30), x)))),
        Activation("sine", 30.0),
    ),
    (
        "sine of x / 2",
        lambda emit, x: emit(op.sin(emit(op.divide(x, c(2))))),
        Activation("sine", 0.5),
    ),
]

STRANGERS: list[tuple[str, Form]] = [
    ("scaled relu", lambda emit, x: emit(op.multiply(emit(op.nn.relu(x)), c(2)))),
    (
        "quick gelu",
        lambda emit, x: emit(op.multiply(x, emit(op.sigmoid(emit(op.multiply(x, c(1.702))))))),
    ),
    ("gelu without half", lambda emit, x: emit(op.multiply(gelu(emit, x), c(2)))),
    ("relu6", lambda emit, x: emit(op.clip(x, 0, 6))),
    ("maximum with one", lambda emit, x: emit(op.maximum(x, c(1)))),
    ("softplus of 2 x", lambda emit, x: emit(op.nn.softplus(x, beta=2.0))),
    ("softplus cut at 5", lambda emit, x: softplus_where(emit, x, 5.0)),
    ("power", lambda emit, x: emit(op.power(x, c(2)))),
    ("sine of a sum", lambda emit, x: emit(op.sin(emit(op.multiply(x, emit(op.exp(x))))))),
]


@pytest.mark.parametrize(("form", "expected"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_forms(form: Form, expected: Activation) -> None:
    x = variable("x", (3, 4))
    found = values(module(form, x))
    (result,) = (value for value in found.order if found.escapes(value))
    assert [a for a, v in match_activation(found, result) if v.same_as(x)] == [expected]


@pytest.mark.parametrize("form", [f[1] for f in STRANGERS], ids=[f[0] for f in STRANGERS])
def test_strangers(form: Form) -> None:
    x = variable("x", (3, 4))
    found = values(module(form, x))
    (result,) = (value for value in found.order if found.escapes(value))
    assert not [a for a, v in match_activation(found, result) if v.same_as(x)]


def test_forms_mean_what_they_are_taken_for() -> None:
    """TVM's own kernels for every form against the activation in float64."""

    def body(emit: Any, x: Any) -> list[Any]:
        return [form(emit, x) for _, form, _ in FORMS]

    mod = module(body, variable("x", (101,)), outputs=len(FORMS))
    built = tvm.compile(mod, target=tvm.target.Target(host_target()))
    machine = relax.VirtualMachine(built, tvm.cpu())
    x = np.linspace(-8, 8, 101, dtype=np.float32)
    results = machine["main"](tvm.runtime.tensor(x))
    for (name, _, activation), result in zip(FORMS, results, strict=True):
        expected = reference(activation, x)
        # float32 rounds the argument of sin(30 x) by up to 1.5e-5
        np.testing.assert_allclose(result.numpy(), expected, 2e-5, 2e-5, err_msg=name)


def test_a_constant_of_several_elements_is_no_number() -> None:
    x = variable("x", (3, 4))
    found = values(module(lambda emit, x: emit(op.multiply(constant(3, 4), x)), x))
    (result,) = (value for value in found.order if found.escapes(value))
    assert match_activation(found, result) == []
