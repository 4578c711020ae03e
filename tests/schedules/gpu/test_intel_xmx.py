"""Intel's matrix engines: layouts run with emulated DPAS, spaces and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedules.gpu.opencl_cases import (
    EMULATION,
    INTEL_CPU,
    Case,
    declared_shared_bytes,
    every_function,
    require,
)
from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp import MLP, Residual
from tunerplugin.schedules.fused_mlp.gpu.intel import (
    DG2,
    LARGE_FILE,
    PVC,
    XMX,
    XMX_DG2,
    XMX_PVC,
    target_config,
)
from tunerplugin.schedules.fused_mlp.gpu.xmx_plan import Plan, register_need, weight_packing
from tunerplugin.schedules.fused_mlp.template import Template
from tunerplugin.schedules.offline.opencl import program_of
from tunerplugin.space import Space
from tunerplugin.testing import SpaceConformance

BOTH = [pytest.param(PVC, XMX_PVC, id="pvc"), pytest.param(DG2, XMX_DG2, id="dg2")]


def run_case(device: XMX, template: Template, case: Case, batch: int | None, **knobs: int) -> None:
    require(INTEL_CPU)
    target = target_config(device)
    case.check(template.build(case.mlp, batch, target, **knobs), target, INTEL_CPU, EMULATION)


@pytest.mark.heavy
@pytest.mark.parametrize(("device", "template"), BOTH)
@pytest.mark.parametrize(
    ("widths", "dtype", "rows", "batch", "knobs"),
    [
        # odd widths, a tail within a tile, weights staged; the last layer narrower than a tile
        ((17, 33, 48, 1), "float16", 77, None, {"sub_groups": 2}),
        # 4 rows in a tile, weights from the cache
        (
            (48, 20, 16),
            "bfloat16",
            30,
            None,
            {"sub_groups": 2, "rows_per_sub_group": 4, "staged": 0},
        ),
        # two tiles of rows, exact static batch: no tail check; sums of all columns at once
        ((16, 32, 16), "float16", 32, 32, {"sub_groups": 2, "rows_per_sub_group": 16}),
        # a static batch that ends within a sub-group
        ((32, 32, 5), "bfloat16", 19, 19, {"sub_groups": 4}),
        ((64, 64, 64), "float16", 8, 8, {"sub_groups": 1}),
    ],
)
def test_numbers(
    device: XMX,
    template: Template,
    widths: tuple[int, ...],
    dtype: str,
    rows: int,
    batch: int | None,
    knobs: dict[str, int],
) -> None:
    mlp = replace(MLP.of(widths), dtype=dtype)  # type: ignore[arg-type]
    run_case(device, template, Case.of(mlp, rows), batch, **knobs)


@pytest.mark.heavy
@pytest.mark.parametrize(("device", "template"), BOTH)
def test_every_activation_and_residual(device: XMX, template: Template) -> None:
    mlp = every_function(12, "float16")
    run_case(device, template, Case.of(mlp, 13), None, sub_groups=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("staged", [0, 1])
def test_source_declares_the_shared_memory_that_the_launch_says(dtype: str, staged: int) -> None:
    """TVM shrinks buffers to what it sees in use, and would widen bfloat16 ones."""
    mlp = replace(MLP.of((40, 24, 24)), dtype=dtype)  # type: ignore[arg-type]
    target = target_config(PVC)
    kernel = XMX_PVC.build(mlp, None, target, sub_groups=2, staged=staged)
    source = program_of(kernel, target).source
    assert kernel.launch is not None
    assert kernel.launch.shared_bytes == declared_shared_bytes(source) == staged * 48 * 32 * 2
    # two barriers a layer; before the first layer nobody reads
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == staged * (2 * mlp.layers - 1)


def test_hundreds_of_streamed_tiles_compile() -> None:
    """A declaration for each tile once nested so deep that TVM overran the stack."""
    mlp = MLP.uniform(256, 2, dtype="float16")
    target = target_config(DG2)
    kernel = XMX_DG2.build(mlp, None, target)
    assert kernel.knobs["staged"] == 0  # 128 KiB of weights; a work-group has 64
    source = program_of(kernel, target).source
    assert source.count("xmx_dpas(vload4") == 2 * (256 // 16) * (256 // 8)


@pytest.mark.parametrize("lanes", [8, 16])
def test_packing_pairs_what_the_registers_pair(lanes: int) -> None:
    """Pair i of a tile holds the k that lane l of the activations holds, for the same i and l."""
    packing = weight_packing(32, 32, lanes, "float16")
    weight = np.arange(32 * 32, dtype=np.float32).reshape(32, 32)
    packed = packing.apply(weight).astype(np.float32)
    assert packed.shape == (2, 32 // lanes, 8, lanes, 2)
    for i in range(8):
        first, second = (16 + i, 24 + i) if lanes == 8 else (16 + 2 * i, 17 + 2 * i)
        column = lanes + 3
        assert packed[1, 1, i, 3].tolist() == [
            np.float16(weight[first, column]),
            np.float16(weight[second, column]),
        ]


def test_register_need_by_hand() -> None:
    # paper, width 64: 8 rows of 64 16-bit inputs, 64 sums, one 16 x 16 tile of weights
    assert register_need(MLP.uniform(64, 4), Plan(16, 8, 1, 4, True)) == 1024 + 2048 + 512
    # one tile of sums at a time: 48 columns are done before the last one starts
    assert register_need(MLP.uniform(64, 4), Plan(16, 8, 1, 1, True)) == 1024 + 768 + 512 + 512
    # the last layer's columns are stored at once
    assert register_need(MLP.of((16, 64)), Plan(16, 8, 1, 1, True)) == 256 + 512 + 512
    skip = MLP.of((64, 16, 64, 64), residuals=(None, None, Residual(0)))
    assert register_need(skip, Plan(16, 8, 1, 4, True)) == 1024 + 1024 + 2048 + 512


class TestSpace(SpaceConformance):
    """The space of a network whose weights fit DG2's shared memory and whose rows press on it."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return XMX_DG2.space(MLP.uniform(128, 2, dtype="float16"), target_config(DG2))


def test_space_stays_within_the_device() -> None:
    mlp = MLP.uniform(256, 3, dtype="bfloat16")
    for template, device in ((XMX_PVC, PVC), (XMX_DG2, DG2)):
        target = target_config(device)
        if template.supports(mlp, target) is not None:
            continue
        candidates = list(template.space(mlp, target).enumerate())
        assert candidates
        for staged, registers, sub_groups, _, _ in candidates:
            # 256 x 256 x 2 bytes are exactly PVC's shared memory, and twice DG2's
            assert not staged or device is PVC
            assert int(sub_groups) * int(registers) <= device.threads * 128
            assert int(sub_groups) * device.lanes <= 1024


def test_large_register_file_where_the_small_one_is_tight() -> None:
    for width, registers in ((64, 128), (128, 256)):
        kernel = XMX_PVC.build(MLP.uniform(width, 2, dtype="float16"), None, target_config(PVC))
        assert kernel.knobs["registers"] == registers
        assert kernel.launch is not None
        assert (LARGE_FILE in kernel.launch.build_options) == (registers == 256)


@pytest.mark.parametrize(
    ("mlp", "target", "reason"),
    [
        (MLP.uniform(64, 2), target_config(PVC), "float32 takes the plain OpenCL template"),
        (MLP.uniform(64, 2, dtype="float16"), "llvm", "of kind llvm"),
        (MLP.uniform(64, 2, dtype="float16"), target_config(DG2), "model is dg2, not pvc"),
        (MLP.uniform(64, 2, dtype="float16"), "opencl", "model is unknown, not pvc"),
        (MLP.uniform(16, 70, dtype="float16"), target_config(PVC), "143 arguments"),
    ],
)
def test_refusals(mlp: MLP, target: object, reason: str) -> None:
    assert reason in str(XMX_PVC.supports(mlp, target))
    with pytest.raises(ScheduleError, match=reason):
        XMX_PVC.build(mlp, None, target)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"rows": 8}, "expected knobs of staged, registers"),
        ({"sub_groups": 3}, "expected knobs of the template's space"),
        ({"registers": 256, "sub_groups": 64}, "expected knobs of the template's space"),
    ],
)
def test_bad_knobs(knobs: dict[str, int], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        XMX_PVC.build(MLP.uniform(64, 2, dtype="float16"), None, target_config(PVC), **knobs)
