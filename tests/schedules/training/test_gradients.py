"""First derivatives of the fused kernels against torch in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp.cpu.training_plan import Plan, Streams, TrainingKnobs
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS, MLP, Activation, Residual

from .reference import float64, gradients_error, network, rows

TOLERANCE = 1e-5
ALL = [Activation(function) for function in FUNCTIONS]
# a slope from the value would be wrong for a negative one, and for what a residual was added to
ODD = [Activation("leaky_relu", -0.5), Activation("sine", 3.0)]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("part", [0, 1])
def test_every_activation(part: int, store: bool) -> None:
    activations = (*ALL[part::2], ODD[part])
    mlp = MLP((6,) + (10,) * len(activations), activations, (True,) * len(activations))
    assert gradients_error(network(mlp, store=store, chunks=2, rows=16), 50) < TOLERANCE


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_single_layer_of_one_column(function: str) -> None:
    mlp = MLP((1, 1), (Activation(function),), (function != "relu",))  # type: ignore[arg-type]
    assert gradients_error(network(mlp, seed=3), 9) < TOLERANCE


@pytest.mark.parametrize("widths", [(3, 33, 20, 1), (17, 5, 40), (64, 64, 64)])
def test_one_kernel_serves_any_batch(widths: tuple[int, ...]) -> None:
    net = network(MLP.of(widths, "tanh"), rows=32, chunks=3)
    for batch in (1, 2, 31, 32, 33, 64, 97, 700):
        assert gradients_error(net, batch, seed=batch) < TOLERANCE, batch


@pytest.mark.parametrize("store", [False, True])
def test_residuals(store: bool) -> None:
    mlp = MLP(
        (9, 9, 9, 9, 9),
        tuple(map(Activation, ("relu", "tanh", "silu", "sigmoid"))),
        (True, False, True, True),
        residuals=(Residual(0), Residual(1, True), Residual(1), Residual(0, True)),
    )
    assert gradients_error(network(mlp, store=store, rows=16), 40) < TOLERANCE


@st.composite
def mlps(draw: st.DrawFn) -> MLP:
    layers = draw(st.integers(1, 4))
    pool = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    widths = tuple(draw(st.sampled_from(pool)) for _ in range(layers + 1))
    residuals = []
    for layer in range(layers):
        fitting = [s for s in range(layer + 1) if widths[s] == widths[layer + 1]]
        source = draw(st.sampled_from([None, *fitting]))
        early = draw(st.booleans())
        residuals.append(None if source is None else Residual(source, early))
    functions = st.sampled_from([Activation(f) for f in FUNCTIONS if f != "exponential"])
    return MLP(
        widths,
        tuple(draw(functions) for _ in range(layers)),
        tuple(draw(st.booleans()) for _ in range(layers)),
        residuals=tuple(residuals),
    )


@pytest.mark.heavy
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mlps(), st.booleans(), st.integers(1, 100), st.sampled_from([(8, 3, 1), (48, 4, 2)]))
def test_any_network(mlp: MLP, store: bool, batch: int, blocks: tuple[int, int, int]) -> None:
    tile, block_rows, vectors = blocks
    net = network(
        mlp, store=store, rows=tile, block_rows=block_rows, block_vectors=vectors, chunks=2
    )
    assert gradients_error(net, batch) < TOLERANCE


def test_gradients_are_the_same_bits_every_time() -> None:
    net = network(MLP.of((8, 24, 24, 2), "relu"), chunks=4, rows=16)
    x, weight = rows(1000, 8), rows(1000, 2, 1)
    first, *others = (torch.autograd.grad(net(x), list(net.parameters()), weight) for _ in range(4))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_chunks_and_recomputation_change_only_rounding() -> None:
    results = []
    for knobs in ({"chunks": 1}, {"chunks": 5}, {"chunks": 5, "store": True}):
        net = network(MLP.of((8, 24, 2), "silu"), rows=16, **knobs)
        y = net(rows(300, 8))
        results.append(torch.autograd.grad(y, list(net.parameters()), torch.ones_like(y)))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    for a, b in zip(results[1], results[2], strict=True):
        assert torch.equal(a, b)


def test_rows_beyond_the_batch_do_not_overflow() -> None:
    """exp(100 - 60 x) is finite for the one row there is, x = 2, and inf for a row of zeros."""
    net = network(MLP((1, 1, 1), (Activation("exponential"), Activation()), (True, True)))
    with torch.no_grad():
        net.layers[0].weight.fill_(-60.0)
        net.layers[0].bias.fill_(100.0)
    y = net(torch.full((1, 1), 2.0))
    found = torch.autograd.grad(y.sum(), list(net.parameters()))
    exact = float64(net)
    assert all(torch.isfinite(gradient).all() for gradient in found)
    assert found[2].item() == pytest.approx(torch.exp(torch.tensor(-20.0)).item(), rel=1e-4)
    assert len(exact) == 4


def test_memory_of_a_plan() -> None:
    silu = Plan(MLP.of((3, 64, 64, 1), "silu"), TrainingKnobs(rows=64, chunks=2, store=True), 8)
    # 65 rows are two tiles; of both hidden layers the sum and the output; the last layer is linear
    assert silu.stored_bytes(65) == 4 * 128 * (64 * 4)
    assert [silu.keeps_sum(layer) for layer in range(3)] == [True, True, False]
    assert silu.recomputing.stored_bytes(65) == 0
    relu = Plan(MLP.of((3, 64, 64, 1), "relu"), TrainingKnobs(store=True), 8)
    assert relu.stored_bytes(64) == 4 * 64 * (64 * 2)
    # weights padded to whole vectors in the columns: 64 x 8, 64 x 64, 1 x 64; biases 64, 64, 8
    assert silu.partial_bytes == 2 * 4 * (64 * 8 + 64 * 64 + 64 + 64 + 64 + 8)


def test_what_cannot_be_planned() -> None:
    with pytest.raises(ScheduleError, match="expected rows of at least 1, got 0"):
        TrainingKnobs(rows=0)
    with pytest.raises(ScheduleError, match="expected derivatives of order 1 or 2"):
        Streams((3,))
    with pytest.raises(ScheduleError, match="expected float32 for training"):
        Plan(MLP.of((8, 8), dtype="float16"), TrainingKnobs(), 8)
    with pytest.raises(ScheduleError, match="expected store=False"):
        Plan(MLP.of((8, 8)), TrainingKnobs(store=True), 8, Streams((1,)))
