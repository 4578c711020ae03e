"""Second derivatives: through autograd, and in Taylor mode, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tunerplugin.errors import InputError
from tunerplugin.schedules.fused_mlp import torch_autograd
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS, MLP, Activation, Residual
from tunerplugin.schedules.fused_mlp.torch_autograd import unfused

from .reference import error, float64, network, rows

TOLERANCE = 3e-5
SMOOTH = [Activation(f) for f in FUNCTIONS if f not in {"relu", "leaky_relu"}]
RESIDUAL = MLP.of((3, 12, 12, 2), "tanh", residuals=(None, Residual(1), None))

Function = Callable[[Tensor], Tensor]


def slopes(f: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    y = f(x)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    return y, dx


def eikonal(f: Function, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a loss on |dy/dx|, as for signed distance fields."""
    y, dx = slopes(f, x)
    loss = ((dx.square().sum(1) - 1).square()).sum() + y.square().sum()
    return torch.autograd.grad(loss, [x, *parameters])


def both(net: torch_autograd.Any, x: Tensor) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """(function, x, parameters) of the fused module and of torch in float64."""
    exact, exact_x = float64(net), x.double().requires_grad_()
    return (net, x.requires_grad_(), list(net.parameters())), (
        lambda x: unfused(net.mlp, x, exact),
        exact_x,
        exact,
    )


@pytest.mark.parametrize("mlp", [MLP.of((3, 20, 12, 1), "softplus"), RESIDUAL])
def test_loss_on_input_gradients_runs_fused(mlp: MLP, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, exact = both(network(mlp), rows(70, 3))
    expected = eikonal(*exact)  # type: ignore[arg-type]
    monkeypatch.delattr(torch_autograd, "unfused")
    assert error(eikonal(*ours), expected) < TOLERANCE  # type: ignore[arg-type]


def test_gradient_with_respect_to_the_seed() -> None:
    """dx is linear in dy, so that a product of both can be differentiated."""
    net = network(MLP.of((3, 12, 2), "sine"))

    def run(f: Function, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
        y, dx = slopes(lambda x: f(x) ** 3, x)
        return torch.autograd.grad(dx.square().sum(), [x, *parameters])

    ours, exact = both(net, rows(33, 3))
    assert error(run(*ours), run(*exact)) < TOLERANCE  # type: ignore[arg-type]


def burgers(u: Tensor, u_x: Tensor, u_xx: Tensor, u_t: Tensor) -> Tensor:
    return (u_t + u * u_x - 0.1 * u_xx).square().sum()


def test_nested_autograd_and_taylor_mode_agree_with_torch() -> None:
    def nested(f: Function, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
        y, dx = slopes(f, x)
        (dxx,) = torch.autograd.grad(dx[:, 0].sum(), x, create_graph=True)
        loss = burgers(y[:, 0], dx[:, 0], dxx[:, 0], dx[:, 1])
        return torch.autograd.grad(loss, [x, *parameters])

    net = network(MLP.of((2, 20, 20, 1), "tanh"))
    ours, exact = both(net, rows(40, 2))
    expected = nested(*exact)  # type: ignore[arg-type]
    assert error(nested(*ours), expected) < TOLERANCE  # type: ignore[arg-type]
    x = rows(40, 2).requires_grad_()
    d = net.derivatives(x, (2, 1))
    assert d.second[1] is None and d.second[0] is not None
    loss = burgers(d.value, d.first[0], d.second[0], d.first[1])
    found = torch.autograd.grad(loss, [x, *net.parameters()])
    assert error(found, expected) < TOLERANCE


@pytest.mark.parametrize("part", [0, 1, 2])
def test_taylor_mode_of_every_activation(part: int) -> None:
    activations = (*SMOOTH[part::3], Activation("leaky_relu" if part else "relu"))
    layers = len(activations)
    residuals = (None,) * (layers - 1) + (Residual(1, before_activation=bool(part % 2)),)
    mlp = MLP((3,) + (9,) * layers, activations, (True,) * layers, residuals=residuals)
    net, x = network(mlp, rows=8, chunks=2), rows(21, 3)
    directions = torch.tensor([[1.0, 0.5, 0.0], [0.0, -1.0, 2.0]])
    weights = [rows(21, 9, seed) for seed in range(4)]

    def loss(streams: list[Tensor]) -> Tensor:
        return sum(
            ((s * w.to(s)).sum() for s, w in zip(streams, weights, strict=True)), torch.zeros(())
        )

    def reference(f: Function, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
        def along(g: Function, v: Tensor) -> Function:
            return lambda x: torch.func.jvp(g, (x,), (v.to(x).expand_as(x),))[1]

        first, second = along(f, directions[0]), along(f, directions[1])
        streams = [f(x), first(x), along(first, directions[0])(x), second(x)]
        return *streams, *torch.autograd.grad(loss(streams), [x, *parameters])

    _, exact = both(net, x.clone())
    expected = reference(*exact)  # type: ignore[arg-type]
    x.requires_grad_()
    d = net.derivatives(x, (2, 1), directions)
    assert d.second[0] is not None
    streams = [d.value, d.first[0], d.second[0], d.first[1]]
    found = torch.autograd.grad(loss(streams), [x, *net.parameters()])
    assert error([*streams, *found], expected) < 1e-4


def test_directions_that_do_not_fit() -> None:
    net = network(MLP.of((2, 8, 1), "tanh"))
    x = rows(4, 2)
    with pytest.raises(InputError, match=r"expected x of shape \(batch, in\)"):
        net.derivatives(x[None], (1,))
    with pytest.raises(InputError, match="expected an order for each of at most 2 columns"):
        net.derivatives(x, (1, 1, 1))
    with pytest.raises(InputError, match=r"expected directions of shape \(1, 2\)"):
        net.derivatives(x, (1,), torch.ones(3, 2))


def test_a_third_derivative_of_taylor_mode_is_right() -> None:
    """sum over rows of the derivative along x of u_xx, and its gradient."""
    net = network(MLP.of((2, 8, 1), "tanh"))

    def run(u_xx: Tensor, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
        (third,) = torch.autograd.grad(u_xx.sum(), x, create_graph=True)
        return third, *torch.autograd.grad(third.square().sum(), [x, *parameters[:3]])

    (_, x, parameters), (f, exact_x, exact) = both(net, rows(6, 2))
    ours = net.derivatives(x, (2,)).second[0]  # type: ignore[arg-type]
    _, dx = slopes(f, exact_x)  # type: ignore[arg-type]
    (dxx,) = torch.autograd.grad(dx[:, 0].sum(), exact_x, create_graph=True)  # type: ignore
    found = run(ours, x, parameters)  # type: ignore[arg-type]
    expected = run(dxx[:, 0], exact_x, exact)  # type: ignore[arg-type]
    assert error(found, expected) < TOLERANCE
