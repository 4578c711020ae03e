"""What the emitted kernels are after TVM's passes: vectors, and no more memory than planned."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx

from tunerplugin.schedules.fused_mlp.cpu.training import Wanted, backward
from tunerplugin.schedules.fused_mlp.cpu.training_plan import Plan, Streams, TrainingKnobs
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS, MLP, Activation


@pytest.mark.parametrize("streams", [Streams(), Streams((2,))], ids=["values", "taylor"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_activation_stays_a_vector(function: str, streams: Streams) -> None:
    """TVM's vectoriser turns a loop with a function that it does not know into a scalar one."""
    mlp = MLP((8, 8), (Activation(function),), (True,))  # type: ignore[arg-type]
    kernel = backward(Plan(mlp, TrainingKnobs(rows=8), 8, streams), Wanted())
    module = tirx.transform.FlattenBuffer()(tvm.IRModule({"kernel": kernel}))
    text = str(tirx.transform.VectorizeLoop()(module))
    assert "T.vectorized" not in text
    # the name that the vectoriser gives to the lane of a loop that it leaves scalar
    assert "v_s in" not in text
    assert "T.Ramp" in text
