"""Activations and derivatives as compiled code against float64; the references against torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from tvm import te

from tunerplugin.integrations.compat import new_schedule
from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp.activations import (
    derivative,
    expression,
    reference,
    reference_derivative,
)
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS, Activation
from tunerplugin.schedules.fused_mlp.elementary import Intrinsics

LENGTH = 1 << 14
U = 2.0**-24
#: largest error / max(1, |exact|) in units of U: of the function, of its derivative
BOUNDS = {
    "none": (0, 0),
    "relu": (0, 0),
    "leaky_relu": (2, 1),
    "silu": (4, 5),
    "gelu": (16, 8),
    "gelu_tanh": (4, 5),
    "tanh": (8, 16),
    "sigmoid": (3, 3),
    "softplus": (4, 3),
    "exponential": (4, 4),
    "sine": (4, 4),
}
TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x * 1,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "exponential": torch.exp,
    "sine": torch.sin,
}


def function(name: str, make: Callable[[Any], Any]) -> Any:
    """A vectorised PrimFunc that applies ``make`` to each element."""
    x = te.placeholder((LENGTH,), "float32", name="x")
    y = te.compute((LENGTH,), lambda i: make(x[i]), name="y")
    schedule = new_schedule(te.create_prim_func([x, y]).with_attr("global_symbol", name))
    (loop,) = schedule.get_loops(schedule.get_sblock("y", func_name="main"))
    schedule.vectorize(schedule.split(loop, [None, 8])[1])
    return schedule.mod["main"]


@cache
def compiled(intrinsics: Intrinsics) -> Any:
    """All activations and derivatives, as ``f_relu``, ``d_relu`` and so on."""
    functions = {}
    for name in FUNCTIONS:
        for prefix, make in (("f_", expression), ("d_", derivative)):

            def element(x: Any, make: Any = make, name: Any = name) -> Any:
                return make(Activation(name), x, intrinsics)

            functions[prefix + name] = function(prefix + name, element)
    return tvm.compile(tvm.IRModule(functions), target=tvm.target.Target(host_target(1)))


def apply(intrinsics: Intrinsics, name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    padded = np.zeros(LENGTH, np.float32)
    padded[: len(x)] = x
    y = tvm.runtime.tensor(np.zeros(LENGTH, np.float32))
    compiled(intrinsics)[name](tvm.runtime.tensor(padded), y)
    return np.asarray(y.numpy()[: len(x)], np.float64)


def samples(largest: float) -> np.ndarray[Any, Any]:
    """Near 0, usual, and of all magnitudes up to ``largest``, of both signs."""
    rng = np.random.default_rng(0)
    n = LENGTH // 4
    magnitudes = 10 ** rng.uniform(-37, np.log10(largest), n)
    parts = [rng.standard_normal(n) * scale for scale in (1e-3, 1, 10)]
    x = np.concatenate([*parts, magnitudes * rng.choice([-1, 1], n)])
    return np.clip(x, -largest, largest).astype(np.float32)


@pytest.mark.parametrize("intrinsics", ["polynomial", "native"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_its_error_bound(name: str, intrinsics: Intrinsics) -> None:
    activation = Activation(name)  # type: ignore[arg-type]
    x = samples(8000 if name == "sine" else 1e38)
    exact_of = {"f_": reference, "d_": reference_derivative}
    for bound, (prefix, exact_function) in zip(BOUNDS[name], exact_of.items(), strict=True):
        got = apply(intrinsics, prefix + name, x)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            exact = exact_function(activation, x)
            rounded = exact.astype(np.float32)
        assert not np.isnan(got).any()
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        got, exact = got[finite], exact[finite]
        error = np.abs(got - exact) / np.maximum(1, np.abs(exact))
        assert error.max() <= bound * U, f"{prefix}{name}: {error.max() / U:.1f} units"


@pytest.mark.parametrize("name", ["exponential", "tanh", "sigmoid", "softplus"])
def test_small_values_keep_their_relative_accuracy(name: str) -> None:
    x = np.concatenate([-np.linspace(1, 80, 999), 10.0 ** -np.arange(1, 37)]).astype(np.float32)
    got, exact = apply("polynomial", f"f_{name}", x), reference(Activation(name), x)  # type: ignore[arg-type]
    assert np.abs(got / exact - 1).max() <= 8 * U


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_comes_through(name: str) -> None:
    assert np.isnan(apply("polynomial", f"f_{name}", np.array([np.nan], np.float32))).all()


def test_sine_of_a_huge_number_stays_within_one() -> None:
    assert np.abs(apply("polynomial", "f_sine", samples(1e38))).max() <= 1


def library_calls(intrinsics: Intrinsics) -> set[str]:
    assembly = compiled(intrinsics).mod.inspect_source("asm")
    return set(re.findall(r"\b(?:exp|tanh|erf|sin|cos)f\b", assembly))


def test_polynomials_call_no_library() -> None:
    assert not library_calls("polynomial")
    assert "expf" in library_calls("native")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_references_agree_with_torch(name: str) -> None:
    activation = Activation(name)  # type: ignore[arg-type]
    x = torch.linspace(-15, 15, 1001, dtype=torch.float64, requires_grad=True)
    y = TORCH[name](x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    plain = x.detach().numpy()
    # torch's softplus is linear beyond 20, its gelu goes through erf, not erfc.
    np.testing.assert_allclose(reference(activation, plain), y.detach().numpy(), 1e-9, 1e-14)
    np.testing.assert_allclose(reference_derivative(activation, plain), slope.numpy(), 1e-9, 1e-14)


def test_parameters_count() -> None:
    x = np.array([-2.0, 0.0, 0.5])
    slope, omega = Activation("leaky_relu", 0.2), Activation("sine", 30.0)
    np.testing.assert_allclose(reference(slope, x), [-0.4, 0, 0.5])
    np.testing.assert_allclose(reference_derivative(omega, x), 30 * np.cos(30 * x))
