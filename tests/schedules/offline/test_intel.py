"""Kernels for Intel GPUs, read out by Intel's own compiler without one."""

from __future__ import annotations

import pytest

from tunerplugin.errors import ScheduleError, TargetError
from tunerplugin.schedules.fused_mlp import MLP
from tunerplugin.schedules.fused_mlp.gpu.intel import PVC, XMX_DG2, XMX_PVC, target_config
from tunerplugin.schedules.fused_mlp.gpu.opencl import PLAIN
from tunerplugin.schedules.fused_mlp.template import knobs_of
from tunerplugin.schedules.offline.intel import DEVICES, available, occupancy, use_of
from tunerplugin.schedules.offline.opencl import Program, program_of
from tunerplugin.schedules.offline.refuse import refusal

needs_ocloc = pytest.mark.skipif(available() is not None, reason=str(available()))
TEMPLATES = {"pvc": XMX_PVC, "dg2": XMX_DG2}


@needs_ocloc
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("device", "width", "dtype"),
    [
        ("pvc", 16, "bfloat16"),
        ("pvc", 64, "float16"),
        ("pvc", 128, "float16"),
        ("dg2", 16, "bfloat16"),
        ("dg2", 64, "float16"),
        ("dg2", 128, "float16"),
    ],
)
def test_matrix_instructions_and_no_spills(device: str, width: int, dtype: str) -> None:
    mlp = MLP.uniform(width, 2, dtype=dtype)  # type: ignore[arg-type]
    kernel = TEMPLATES[device].build(mlp, None, target_config(DEVICES[device]))
    use = use_of(kernel, device)
    lanes = DEVICES[device].lanes
    # one DPAS for each 16 inputs and each `lanes` outputs of a layer: 8 rows of one sub-group
    assert use.matrix_instructions == 2 * (width // 16) * (width // lanes)
    assert use.spill_bytes == 0
    assert use.sub_group_size == lanes
    assert use.registers == kernel.knobs["registers"]
    assert use.occupancy == 128 / use.registers
    assert use.shared_memory_bytes == width * width * 2
    assert use.instructions > use.matrix_instructions
    assert use.refusal(DEVICES[device].shared_bytes) is None


@needs_ocloc
@pytest.mark.heavy
def test_what_spills_is_refused() -> None:
    """The paper: above width 64 it spilled; 128 in the small file, all sums at once, does."""
    mlp = MLP.uniform(128, 2, dtype="float16")
    target = target_config(PVC)
    space = XMX_PVC.space(mlp, target)

    def refuses(candidate: tuple[int, ...]) -> str | None:
        return refusal(XMX_PVC.build(mlp, None, target, **knobs_of(space, candidate)), target)

    # staged, registers, sub-groups, rows of a sub-group, accumulators
    assert "registers spill on pvc" in str(refuses((1, 128, 32, 8, 8)))
    assert refuses((1, 256, 32, 8, 8)) is None


@needs_ocloc
@pytest.mark.heavy
@pytest.mark.parametrize("device", ["pvc", "dg2"])
def test_plain_template_compiles_too(device: str) -> None:
    mlp = MLP.uniform(32, 2)
    kernel = PLAIN.build(mlp, None, target_config(DEVICES[device]))
    use = use_of(kernel, device)
    assert use.matrix_instructions == 0 and use.spill_bytes == 0
    assert kernel.launch is not None and use.shared_memory_bytes >= kernel.launch.shared_bytes


def one_line(statement: str) -> Program:
    source = f"__kernel void k(__global int* a) {{ {statement} }}"
    return Program(source, "k", ("a",), (), "a", 1, (1, 1, 1))


@needs_ocloc
def test_bad_source_is_told_in_the_compilers_words() -> None:
    program = Program(
        "__kernel void k(__global int* a) { b[0] = 1; }", "k", (), (), "a", 1, (1, 1, 1)
    )
    with pytest.raises(ScheduleError, match="undeclared identifier 'b'"):
        use_of(program, "pvc")


@needs_ocloc
def test_a_compiler_that_takes_too_long_is_ended() -> None:
    program = Program(
        "__kernel void k(__global int* a) { a[0] = 1; }", "k", (), (), "a", 1, (1, 1, 1)
    )
    with pytest.raises(ScheduleError, match="still running at the time limit"):
        use_of(program, "pvc", timeout_s=0.001)


def test_occupancy_by_hand() -> None:
    # 64 threads of 128 registers on an Xe-HPC core: two work-groups of 32
    assert occupancy(PVC, 32, 128, 8192) == 1.0
    assert occupancy(PVC, 32, 256, 8192) == 0.5
    # 48 of the 64, and only one work-group's weights fit
    assert occupancy(PVC, 24, 128, 0) == 0.75
    assert occupancy(PVC, 16, 128, 72 * 1024) == 0.25
    # the work-group is too large for the large register file
    assert occupancy(PVC, 64, 256, 0) == 0.0


def test_unknown_device() -> None:
    kernel = XMX_PVC.build(MLP.uniform(16, 2, dtype="float16"), None, target_config(PVC))
    with pytest.raises(TargetError, match="expected a device of pvc, dg2, got 'h100'"):
        use_of(kernel, "h100")


@pytest.mark.parametrize("device", ["pvc", "dg2"])
def test_large_file_is_asked_of_the_compiler(device: str) -> None:
    mlp = MLP.uniform(128, 2, dtype="float16")
    target = target_config(DEVICES[device])
    kernel = TEMPLATES[device].build(mlp, None, target, registers=256, sub_groups=8)
    options = program_of(kernel, target).build_options
    assert "-cl-intel-256-GRF-per-thread" in options and "-cl-std=CL2.0" in options
