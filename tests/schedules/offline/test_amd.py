"""Occupancy by hand, the child process that survives its compiler, callbacks put back."""

from __future__ import annotations

import pytest
import tvm_ffi

from tunerplugin.errors import ScheduleError, TargetError
from tunerplugin.schedules.fused_mlp import MLP
from tunerplugin.schedules.fused_mlp.gpu.amd import kernel_of
from tunerplugin.schedules.fused_mlp.gpu.amd_dialect import LLVM
from tunerplugin.schedules.fused_mlp.gpu.amd_isa import instructions
from tunerplugin.schedules.fused_mlp.gpu.amd_kernel import emit
from tunerplugin.schedules.fused_mlp.gpu.amd_plan import Plan, Weights
from tunerplugin.schedules.offline.amd import (
    AmdKernelUse,
    compute_unit,
    read,
    register_limit,
    uses_of,
    waves_per_simd,
)
from tunerplugin.schedules.offline.amd_child import without_rocm


@pytest.mark.parametrize(
    ("processor", "vgprs", "lds", "threads", "expected"),
    [
        ("gfx942", 64, 0, 256, 8),  # 512 / 64
        ("gfx942", 65, 0, 256, 7),  # 72 of 512
        ("gfx90a", 128, 32768, 256, 2),  # two groups of 4 waves on 4 SIMDs
        ("gfx90a", 128, 32768, 512, 4),
        ("gfx942", 16, 65536, 64, 0.25),  # one wave on 4 SIMDs
        ("gfx942", 256, 0, 1024, 0),  # 16 waves, room for 8
        ("gfx1100", 96, 0, 128, 16),  # 1536 / 96
        ("gfx1100", 97, 0, 128, 12),  # 120 of 1536
        ("gfx1201", 24, 32768, 128, 4),  # 4 groups in 128 KiB, 4 waves each
        ("gfx1102", 128, 0, 128, 8),  # 1024 / 128
        ("gfx908", 64, 0, 256, 4),  # 256 / 64
    ],
)
def test_waves_by_hand(processor: str, vgprs: int, lds: int, threads: int, expected: float) -> None:
    assert waves_per_simd(processor, vgprs, lds, threads) == expected


def test_scalar_registers_limit_gfx9_only() -> None:
    assert waves_per_simd("gfx942", 32, 0, 64, sgprs=102) == 7  # 800 / 112
    assert waves_per_simd("gfx1100", 32, 0, 32, sgprs=106) == 16


def test_register_limit_is_that_of_a_full_work_group() -> None:
    assert register_limit("gfx942") == 128  # 16 waves on 4 SIMDs of 512
    assert register_limit("gfx1100") == 192  # 32 waves on 4 SIMDs of 1536
    assert register_limit("gfx908") == 64


def test_unknown_processor() -> None:
    with pytest.raises(TargetError, match="gfx942"):
        compute_unit("sm_90")


def test_text_without_a_kernel() -> None:
    with pytest.raises(ScheduleError, match="exactly one kernel"):
        read("s_endpgm", "gfx942")


def test_callbacks_are_put_back() -> None:
    import tvm.support.rocm  # noqa: F401

    name = "tvm_callback_rocm_link"

    def mine(_: object) -> str:
        return "mine"

    before = tvm_ffi.get_global_func(name)
    try:
        tvm_ffi.register_global_func(name, mine, override=True)
        with without_rocm():
            assert tvm_ffi.get_global_func(name)(b"object") != "mine"
        assert tvm_ffi.get_global_func(name)(b"object") == "mine"
    finally:
        tvm_ffi.register_global_func(name, before, override=True)


def _job(width: int, layers: int, weights: Weights) -> tuple[object, str, int]:
    mlp = MLP.uniform(width, layers, dtype="float16")
    plan = Plan(mlp, instructions("gfx942", "float16")[0], 1, 2, weights)
    return kernel_of(plan, 64, emit(mlp, 64, plan, LLVM()), {}).func, "gfx942", 128


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_too_much_lds_ends_the_child_alone() -> None:
    """96 KiB of LDS: LLVM ends the process; the jobs before and after it are compiled still."""
    first, refused, last = uses_of(
        [_job(16, 1, "layer"), _job(128, 3, "network"), _job(16, 2, "layer")]
    )
    assert isinstance(refused, ScheduleError)
    assert "98304" in str(refused)
    assert isinstance(first, AmdKernelUse) and isinstance(last, AmdKernelUse)
    assert (first.matrix_instructions, last.matrix_instructions) == (1, 2)
    assert first.shared_memory_bytes == 512
    assert first.compiler.startswith("LLVM ")
