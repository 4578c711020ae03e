"""What an MLP may be, and what is said of one that may not."""

from __future__ import annotations

import pytest

from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp import MLP, Activation, Residual


def test_widths_shapes_and_flops() -> None:
    mlp = MLP.of((3, 64, 1), "relu", "sigmoid", bias=False)
    assert mlp.layers == 2
    assert mlp.shapes == ((3, 64), (64, 1))
    assert mlp.activations == (Activation("relu"), Activation("sigmoid"))
    assert mlp.bias == (False, False)
    assert mlp.flops(10) == 2 * 10 * (3 * 64 + 64)


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
