"""The plain OpenCL template, run on PoCL and on Intel's CPU runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedules.gpu.opencl_cases import (
    INTEL_CPU,
    PLAIN_OPTIONS,
    POCL,
    Case,
    declared_shared_bytes,
    every_function,
    require,
)
from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp import MLP, Residual
from tunerplugin.schedules.fused_mlp.gpu.opencl import MAX_SUMS, PLAIN
from tunerplugin.schedules.fused_mlp.gpu.opencl_kernel import Plan
from tunerplugin.schedules.offline.opencl import program_of
from tunerplugin.space import Space
from tunerplugin.testing import SpaceConformance

TARGET = {"kind": "opencl", "host": "llvm"}  # TVM's own limits: 256 work-items, 16 KiB
SMALL = {"threads_x": 8, "threads_y": 4, "rows_per_item": 2}


def run_case(case: Case, platform: str, batch: int | None, **knobs: int) -> None:
    require(platform)
    case.check(PLAIN.build(case.mlp, batch, TARGET, **knobs), TARGET, platform, PLAIN_OPTIONS)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("platform", "widths", "dtype", "rows", "batch", "knobs"),
    [
        (POCL, (17, 33, 9, 1), "float32", 29, None, {**SMALL, "depth": 8}),
        (POCL, (16, 16, 16), "float32", 16, 16, {**SMALL, "depth": 0}),
        (POCL, (5, 12, 3), "bfloat16", 9, 9, {**SMALL, "depth": 4}),
        (INTEL_CPU, (64, 64, 64), "float32", 40, None, {"depth": 16}),
        (INTEL_CPU, (17, 33, 9, 1), "float16", 29, None, {**SMALL, "depth": 32}),
    ],
)
def test_numbers(
    platform: str,
    widths: tuple[int, ...],
    dtype: str,
    rows: int,
    batch: int | None,
    knobs: dict[str, int],
) -> None:
    mlp = replace(MLP.of(widths), dtype=dtype)  # type: ignore[arg-type]
    run_case(Case.of(mlp, rows), platform, batch, **knobs)


@pytest.mark.heavy
def test_every_activation_and_residual() -> None:
    mlp = every_function(6, "float32")
    knobs = {"threads_x": 8, "threads_y": 2, "rows_per_item": 1, "depth": 0}
    run_case(Case.of(mlp, 5), POCL, None, **knobs)


def test_shared_memory_by_hand() -> None:
    plan = Plan(threads_x=16, threads_y=8, rows_per_item=4, depth=16)
    # 32 rows of 64 activations, and 16 rows of 64 weights, 4 bytes each
    assert plan.shared_bytes(MLP.uniform(64, 3)) == 4 * (32 * 64 + 16 * 64)
    # the input's 64 columns are kept for the last layer, next to 16 of the hidden tensors
    skip = MLP.of((64, 16, 16, 64), residuals=(None, None, Residual(0)))
    assert plan.shared_bytes(skip) == 4 * (32 * (64 + 16) + 16 * 64)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("depth", [0, 8])
def test_source_declares_the_shared_memory_that_the_launch_says(dtype: str, depth: int) -> None:
    """TVM shrinks buffers to what it sees in use, and would widen bfloat16 ones."""
    mlp = replace(MLP.of((40, 24, 24)), dtype=dtype)  # type: ignore[arg-type]
    kernel = PLAIN.build(mlp, None, TARGET, threads_x=8, threads_y=4, depth=depth)
    assert kernel.launch is not None
    assert kernel.launch.shared_bytes == declared_shared_bytes(program_of(kernel, TARGET).source)


@settings(max_examples=25)
@given(
    widths=st.lists(st.integers(1, 256), min_size=2, max_size=4),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_space_stays_within_the_target(widths: list[int], dtype: str) -> None:
    mlp = replace(MLP.of(widths), dtype=dtype)  # type: ignore[arg-type]
    candidates = list(PLAIN.space(mlp, TARGET).enumerate())
    assert candidates
    for x, y, rows, depth in candidates:
        plan = Plan(int(x), int(y), int(rows), int(depth))
        assert plan.threads_x * plan.threads_y <= 256
        assert plan.shared_bytes(mlp) <= 16384
        assert plan.padded(max(widths[1:])) // plan.threads_x * plan.rows_per_item <= MAX_SUMS


class TestSpace(SpaceConformance):
    """The space of a network that fills shared memory."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return PLAIN.space(MLP.uniform(128, 2), TARGET)


def test_defaults_are_what_fits() -> None:
    wide = PLAIN.build(MLP.uniform(256, 2), None, TARGET)
    assert wide.launch is not None and wide.launch.shared_bytes <= 16384
    usual = PLAIN.build(MLP.uniform(64, 2), None, TARGET)
    assert dict(usual.knobs) == {"threads_x": 16, "threads_y": 8, "rows_per_item": 4, "depth": 16}


@pytest.mark.parametrize(
    ("mlp", "target", "reason"),
    [
        (MLP.uniform(64, 2), "llvm", "of kind llvm"),
        (MLP.uniform(16, 70), TARGET, "143 arguments"),
        (
            MLP.uniform(256, 2),
            {**TARGET, "max_shared_memory_per_block": 512},
            "does not fit 512 bytes of shared memory",
        ),
    ],
)
def test_refusals(mlp: MLP, target: object, reason: str) -> None:
    assert reason in str(PLAIN.supports(mlp, target))
    with pytest.raises(ScheduleError, match=reason):
        PLAIN.build(mlp, None, target)
