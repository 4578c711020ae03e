"""What an MLP may be, and what is said of one that may not."""

from __future__ import annotations

import numpy as np
import pytest

from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp import MLP, Activation, Residual
from tunerplugin.schedules.fused_mlp.template import check_batch


def test_widths_shapes_and_flops() -> None:
    mlp = MLP.of((3, 64, 1), "relu", "sigmoid", bias=False)
    assert mlp.layers == 2
    assert mlp.shapes == ((3, 64), (64, 1))
    assert mlp.activations == (Activation("relu"), Activation("sigmoid"))
    assert mlp.bias == (False, False)
    assert mlp.flops(10) == 2 * 10 * (3 * 64 + 64)


def test_equal_descriptions_print_alike() -> None:
    widths = np.array([3, 64, 1])
    listed = MLP(list(widths), [Activation("sine", 30)] * 2, [True] * 2)  # type: ignore[arg-type]
    assert listed == MLP.of((3, 64, 1), Activation("sine", 30.0), Activation("sine", 30.0))
    assert "widths=(3, 64, 1)" in repr(listed) and "parameter=30.0" in repr(listed)
    assert len({listed, MLP.of(widths, Activation("sine", 30), Activation("sine", 30))}) == 1


def test_defaults_of_parameters() -> None:
    assert Activation("leaky_relu").parameter == 0.01
    assert Activation("sine", 30.0).parameter == 30.0
    assert Activation("relu").parameter is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP.of((64,)), "at least two widths"),
        (lambda: MLP.of((64, 257)), "widths of 1 to 256"),
        (lambda: MLP.of((64, 0)), "widths of 1 to 256"),
        (lambda: MLP.of((64, 2.5)), "widths of 1 to 256, got .64, 2.5"),  # type: ignore[arg-type]
        (lambda: MLP.of("ab"), "widths of 1 to 256, got .'a'"),  # type: ignore[arg-type]
        (lambda: MLP((4, 4), ("relu",), (True,)), "type Activation, got 'relu'"),  # type: ignore[arg-type]
        (lambda: MLP((4, 4), (Activation(),), True), "expected 1 bias, one per layer, got True"),  # type: ignore[arg-type]
        (lambda: MLP((4, 4), (Activation(),), (2,)), "bias of type bool, got 2"),  # type: ignore[arg-type]
        (lambda: MLP.of((4, 4), residuals=(0,)), "of type Residual or None, got 0"),  # type: ignore[arg-type]
        (lambda: Activation("sine", "3"), "finite parameter"),  # type: ignore[arg-type]
        (lambda: MLP((4, 4), (), (True,)), "expected 1 activations"),
        (lambda: MLP.of((4, 4), dtype="int8"), "a dtype of float32"),  # type: ignore[arg-type]
        (lambda: MLP.of((4, 8), residuals=(Residual(0),)), "between equal widths, got 4"),
        (lambda: MLP.of((4, 4), residuals=(Residual(1),)), "one of the tensors 0 to 0"),
        (lambda: Activation("swish"), "an activation of none, relu"),  # type: ignore[arg-type]
        (lambda: Activation("relu", 0.1), "finite parameter for leaky_relu or sine only"),
        (lambda: Activation("sine", float("inf")), "finite parameter"),
    ],
)
def test_what_cannot_be(make: object, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("batch", [0, -1, 2.5, "8"])
def test_batches_that_cannot_be(batch: object) -> None:
    check_batch(None)
    check_batch(1)
    with pytest.raises(ScheduleError, match="expected a batch of at least 1, or None, got"):
        check_batch(batch)  # type: ignore[arg-type]
