"""The torch module as users hold it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tunerplugin.errors import InputError
from tunerplugin.schedules.fused_mlp import torch_kernels
from tunerplugin.schedules.fused_mlp.description import MLP, Activation
from tunerplugin.schedules.fused_mlp.torch_module import Exponential, FusedMLP, Sine

from .reference import network, rows


def sequential() -> nn.Sequential:
    torch_net = nn.Sequential(
        nn.Linear(3, 16), nn.Tanh(), nn.Sequential(nn.Linear(16, 12, bias=False), nn.SiLU())
    )
    torch_net.append(nn.Linear(12, 2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in torch_net.parameters():
            parameter.normal_(0, 0.4, generator=generator)
    return torch_net


def test_from_sequential_shares_the_parameters() -> None:
    torch_net = sequential()
    net = FusedMLP.from_sequential(torch_net)
    assert net.mlp.widths == (3, 16, 12, 2)
    assert [a.function for a in net.mlp.activations] == ["tanh", "silu", "none"]
    assert net.mlp.bias == (True, False, True)
    assert list(map(id, net.parameters())) == list(map(id, torch_net.parameters()))
    x = rows(20, 3)
    torch.testing.assert_close(net(x), torch_net(x), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch_net[0].weight.mul_(2.0)
    torch.testing.assert_close(net(x), torch_net(x), rtol=1e-5, atol=1e-6)


def test_activations_of_torch() -> None:
    modules = [nn.ReLU(), nn.LeakyReLU(0.2), nn.GELU(), nn.GELU("tanh"), nn.Sigmoid()]
    modules += [nn.Softplus(), Sine(30.0), Exponential(), nn.Identity()]
    expected = [Activation("relu"), Activation("leaky_relu", 0.2), Activation("gelu")]
    expected += [Activation("gelu_tanh"), Activation("sigmoid"), Activation("softplus")]
    expected += [Activation("sine", 30.0), Activation("exponential"), Activation()]
    for module, activation in zip(modules, expected, strict=True):
        net = FusedMLP.from_sequential(nn.Sequential(nn.Linear(2, 2), module))
        assert net.mlp.activations == (activation,)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_training_follows_torch(optimiser: type[torch.optim.Optimizer]) -> None:
    torch_net = sequential()
    net = FusedMLP.from_sequential(copy.deepcopy(torch_net))
    x, goal = rows(100, 3), rows(100, 2, 1)
    losses = []
    for module in (torch_net, net):
        steps = optimiser(module.parameters(), lr=1e-2)  # type: ignore[call-arg]
        for _ in range(20):
            steps.zero_grad()
            loss = nn.functional.mse_loss(module(x), goal)
            loss.backward()
            steps.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_copies_and_state() -> None:
    net = network(MLP.of((3, 8, 2), "relu"))
    x = rows(5, 3)
    twin = copy.deepcopy(net)
    other = FusedMLP(net.mlp)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(x), twin(x)) and torch.equal(net(x), other(x))
    with torch.no_grad():
        twin.layers[0].weight.zero_()
    assert not torch.equal(net(x), twin(x))
    assert set(net.state_dict()) == {f"layers.{i}.{n}" for i in (0, 1) for n in ("weight", "bias")}


def test_inference_stores_nothing() -> None:
    net = network(MLP.of((3, 8, 2), "relu"), store=True)
    x = rows(5, 3)
    with torch.no_grad():
        y = net.eval()(x)
    assert not y.requires_grad and y.grad_fn is None
    assert torch.equal(y, net(x))


def test_only_the_gradients_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    run = torch_kernels.run_backward

    def spy(*args: object, **kwargs: object) -> object:
        asked.append(args[5])
        return run(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("tunerplugin.schedules.fused_mlp.torch_autograd.run_backward", spy)
    net = network(MLP.of((3, 8, 2), "relu"))
    x = rows(5, 3)
    net(x).sum().backward()
    assert net.layers[0].weight.grad is not None
    net.requires_grad_(False)
    x.requires_grad_()
    net(x).sum().backward()
    assert x.grad is not None
    net.layers[1].requires_grad_(True)
    net(x).sum().backward()
    assert net.layers[1].weight.grad is not None
    assert asked == [(False, True), (True, False), (True, True)]


def test_shapes() -> None:
    net = network(MLP.of((3, 8, 2), "relu"))
    x = rows(12, 3)
    assert torch.equal(net(x.reshape(2, 2, 3, 3)), net(x).reshape(2, 2, 3, 2))
    assert torch.equal(net(x[0]), net(x)[0])
    assert torch.equal(net(x.t().contiguous().t()), net(x))
    empty = net(x[:0])
    assert empty.shape == (0, 2)
    empty.sum().backward()
    assert torch.equal(net.layers[0].weight.grad, torch.zeros(8, 3))


def test_parts_of_other_tensors() -> None:
    """Slices of a data set and flattened parameters start anywhere in memory."""
    torch_net = sequential()
    net = FusedMLP.from_sequential(torch_net)
    data = rows(40, 3)
    flat = nn.utils.parameters_to_vector(torch_net.parameters())
    shifted = torch.cat([flat.new_zeros(1), flat]).detach()[1:]
    nn.utils.vector_to_parameters(shifted, torch_net.parameters())
    x, weight = data[1:20].requires_grad_(), rows(20, 2, 1)[1:]
    found = torch.autograd.grad(net(x), [x, *net.parameters()], weight)
    expected = torch.autograd.grad(torch_net(x), [x, *net.parameters()], weight)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert net(data[1:20]).shape == net.derivatives(data[1:20], (2,)).value.shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_export_has_torchs_operations() -> None:
    net, x = network(MLP.of((3, 8, 2), "relu")), rows(5, 3)
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(exported.module()(rows(7, 3)), net(rows(7, 3)))
    traced = torch.jit.trace(net, (x,), check_trace=False)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(traced(rows(7, 3)), net(rows(7, 3)))


def test_from_sequential_draws_no_numbers() -> None:
    torch_net, state = sequential(), torch.get_rng_state()
    FusedMLP.from_sequential(torch_net)
    assert torch.equal(state, torch.get_rng_state())


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_modules_that_compute_something_else() -> None:
    """They were taken for torch's own, and the result was another one."""
    with pytest.raises(InputError, match="Softplus.beta=1.0, threshold=2"):
        FusedMLP.from_sequential(nn.Sequential(nn.Linear(2, 2), nn.Softplus(threshold=2)))
    with pytest.raises(InputError, match="torch's own Linear, got Doubled"):
        FusedMLP.from_sequential(nn.Sequential(Doubled(2, 2)))
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, given, result: 2 * result)
    with pytest.raises(InputError, match="expected modules without forward hooks, got one on"):
        FusedMLP.from_sequential(nn.Sequential(hooked))
    weight_norm = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    torch_net, x = nn.Sequential(weight_norm), rows(5, 2)
    net = FusedMLP.from_sequential(torch_net)
    torch.testing.assert_close(net(x), torch_net(x))


def test_what_is_refused() -> None:
    net = network(MLP.of((3, 8, 2), "relu"))
    with pytest.raises(InputError, match="expected 3 columns, got a tensor of shape"):
        net(rows(4, 5))
    with pytest.raises(InputError, match="expected float32 tensors on CPU.*got torch.float64"):
        net(rows(4, 3).double())
    with pytest.raises(InputError, match="got torch.float32 on meta"):
        net(torch.empty(4, 3, device="meta"))
    with pytest.raises(InputError, match="activations that can be fused, got Dropout"):
        FusedMLP.from_sequential(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    with pytest.raises(InputError, match="a Linear layer before each activation"):
        FusedMLP.from_sequential(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    with pytest.raises(InputError, match="expected layers that fit each other"):
        FusedMLP.from_sequential(nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 2)))
    with pytest.raises(InputError, match="expected at least one Linear layer"):
        FusedMLP.from_sequential(nn.Sequential())
    with pytest.raises(InputError, match="expected a Sequential, got Linear"):
        FusedMLP.from_sequential(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one of them 1 or 2, got .0, 0"):
        net.derivatives(rows(4, 3), (0, 0))
    with pytest.raises(InputError, match="expected directions that are constants"):
        net.derivatives(rows(4, 3), (1,), torch.ones(1, 3, requires_grad=True))
