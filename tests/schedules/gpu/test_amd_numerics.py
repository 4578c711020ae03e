"""AMD's kernels, data movement and all, with the matrix instructions emulated on sub-groups."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from tests.schedules.gpu.amd_emulation import amended
from tests.schedules.gpu.opencl_cases import INTEL_CPU, PLAIN_OPTIONS, Case, require
from tunerplugin.schedules.fused_mlp import MLP, Activation, Residual
from tunerplugin.schedules.fused_mlp.description import DType
from tunerplugin.schedules.fused_mlp.gpu.amd import kernel_of
from tunerplugin.schedules.fused_mlp.gpu.amd_dialect import External
from tunerplugin.schedules.fused_mlp.gpu.amd_isa import instructions
from tunerplugin.schedules.fused_mlp.gpu.amd_kernel import emit
from tunerplugin.schedules.fused_mlp.gpu.amd_plan import Plan, Weights

OPENCL = {
    "kind": "opencl",
    "max_threads_per_block": 1024,
    "max_num_threads": 1024,
    "max_shared_memory_per_block": 65536,
    "host": "llvm",
}


def check(
    mlp: MLP,
    processor: str,
    rows: int,
    *,
    tile: int = 16,
    row_tiles: int = 1,
    waves: int = 2,
    weights: Weights = "layer",
    symbolic: bool = False,
) -> None:
    """The kernel with these knobs against float64."""
    require(INTEL_CPU)
    isa = next(one for one in instructions(processor, mlp.dtype) if one.tile == tile)
    plan = Plan(mlp, isa, row_tiles, waves, weights)
    batch = None if symbolic else rows
    made = kernel_of(plan, batch, emit(mlp, batch, plan, External()), {})
    assert made.launch is not None
    launch = replace(made.launch, amend=functools.partial(amended, isa))
    case = Case.of(mlp, rows)
    options = ("-cl-std=CL3.0", *PLAIN_OPTIONS)
    case.check(replace(made, launch=launch), OPENCL, INTEL_CPU, options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("tile", [16, 32])
def test_mfma(dtype: DType, tile: int) -> None:
    """Every instruction: three layers, odd widths in and out, a tail of the batch."""
    mlp = MLP.of((35, 64, 48, 3), "relu", dtype=dtype)
    check(mlp, "gfx942", 70, tile=tile, symbolic=tile == 32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201"])
def test_wmma(dtype: DType, processor: str) -> None:
    """Both generations' layouts, with the exchange between half waves on gfx11."""
    mlp = MLP.of((35, 64, 48, 3), "relu", dtype=dtype)
    check(mlp, processor, 70, symbolic=dtype == "bfloat16")


@pytest.mark.parametrize("weights", ["double", "network", "memory"])
def test_other_ways_of_the_weights(weights: Weights) -> None:
    mlp = MLP.of((32, 48, 32, 17), "relu", bias=False, dtype="bfloat16")
    check(mlp, "gfx942", 150, row_tiles=2, waves=4, weights=weights)


def test_activations_and_residuals() -> None:
    """One of each kind: added before and after the activation, the input and a hidden tensor."""
    names = ("silu", "gelu", "tanh", "softplus")
    mlp = MLP(
        (32,) * 5,
        tuple(Activation(name) for name in names),
        (True, False, True, True),
        "float16",
        (None, Residual(0), Residual(1, before_activation=True), Residual(3)),
    )
    check(mlp, "gfx1100", 40, row_tiles=2, waves=1)
    check(mlp, "gfx90a", 40, tile=32, waves=1)


@pytest.mark.heavy
def test_layer_in_several_units() -> None:
    """A layer whose weights do not fit LDS at once (256 x 256 float32)."""
    check(MLP.of((256, 256, 16), "relu", dtype="float32"), "gfx942", 16, waves=1)
