"""What LLVM makes of AMD's kernels: matrix instructions, no spills, LDS as planned."""

from __future__ import annotations

import functools
import re

import pytest

from tunerplugin.errors import ScheduleError
from tunerplugin.schedules.fused_mlp import MLP, Residual
from tunerplugin.schedules.fused_mlp.gpu.amd import MATRIX, PLAIN
from tunerplugin.schedules.fused_mlp.template import FusedKernel
from tunerplugin.schedules.offline.amd import AmdKernelUse, assemblies, read, rocm_target

PROCESSORS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
LAYERS = 3


def uniform(width: int) -> MLP:
    """The paper's benchmark, one width throughout."""
    return MLP.uniform(width, LAYERS, dtype="bfloat16" if width == 32 else "float16")


MIXED = MLP.of((35, 64, 64, 3), "silu", dtype="float16", residuals=(None, Residual(1), None))


@functools.cache
def kernels() -> dict[str, tuple[str, FusedKernel]]:
    """Name to (processor, kernel), with the default knobs and a symbolic batch."""
    made = {}
    for processor in PROCESSORS:
        target = rocm_target(processor)
        for width in (16, 32, 64, 128):
            kernel = MATRIX.build(uniform(width), None, target)
            made[f"{processor} {width}"] = (processor, kernel)
        made[f"{processor} mixed"] = (processor, MATRIX.build(MIXED, None, target))
    single = MLP.uniform(64, LAYERS)
    made["gfx942 float32"] = ("gfx942", MATRIX.build(single, None, rocm_target("gfx942")))
    made["gfx1100 plain"] = ("gfx1100", PLAIN.build(single, None, rocm_target("gfx1100")))
    return made


@functools.cache
def compiled() -> dict[str, str | ScheduleError]:
    """All of them, by one child process."""
    jobs = [(kernel.func, processor) for processor, kernel in kernels().values()]
    return dict(zip(kernels(), assemblies(jobs), strict=True))


def assembly(name: str) -> str:
    """One kernel's assembly."""
    result = compiled()[name]
    assert isinstance(result, str), result
    return result


def use(name: str) -> AmdKernelUse:
    """What one kernel takes."""
    processor, kernel = kernels()[name]
    assert kernel.launch is not None
    x, y, z = kernel.launch.threads
    return read(assembly(name), processor, x * y * z)


@pytest.mark.heavy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_uniform_widths(processor: str, width: int) -> None:
    found = use(f"{processor} {width}")
    kernel = kernels()[f"{processor} {width}"][1]
    assert kernel.launch is not None
    # One instruction for 16 x 16 of the weight and 16 rows.
    expected = LAYERS * (width // 16) ** 2 * int(kernel.knobs["row_tiles"])
    assert found.matrix_instructions == expected
    assert found.vgpr_spills == found.sgpr_spills == found.scratch_bytes == 0
    assert found.shared_memory_bytes == kernel.launch.shared_bytes <= 65536
    assert found.sub_group_size == (64 if processor in ("gfx90a", "gfx942") else 32)
    assert found.waves_per_simd is not None and found.waves_per_simd >= 4
    assert found.refusal(65536) is None


@pytest.mark.heavy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_mixed_widths_residual_tail(processor: str) -> None:
    found = use(f"{processor} mixed")
    row_tiles = int(kernels()[f"{processor} mixed"][1].knobs["row_tiles"])
    # 35 -> 3 blocks, 64 -> 4; 3 -> 1 tile.
    assert found.matrix_instructions == (3 * 4 + 4 * 4 + 4 * 1) * row_tiles
    assert found.scratch_bytes == 0


@pytest.mark.heavy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [f"{p} {w}" for p in PROCESSORS[2:] for w in (64, "mixed")])
def test_no_lane_sleeps_in_wmma(name: str) -> None:
    """WMMA and the exchanges between lanes need the whole wave; branches mask lanes off."""
    masked = False
    seen = 0
    for line in assembly(name).splitlines():
        if re.match(r"\.Lfunc_end", line):
            break
        if re.search(r"saveexec|v_cmpx|s_xor_b32 exec|s_and\w* exec", line):
            masked = True
        elif re.search(r"s_or_b32 exec_lo|s_mov_b32 exec_lo", line):
            masked = False
        elif re.search(r"v_wmma|v_permlane", line):
            seen += 1
            assert not masked, line
    assert seen


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_float32_on_cdna() -> None:
    found = use("gfx942 float32")
    assert found.matrix_instructions == 4 * LAYERS * 16 * int(
        kernels()["gfx942 float32"][1].knobs["row_tiles"]
    )
    assert found.scratch_bytes == 0


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_plain_elsewhere() -> None:
    found = use("gfx1100 plain")
    assert found.matrix_instructions == 0
    assert found.scratch_bytes == 0


def test_what_is_not_supported() -> None:
    single = MLP.uniform(64, 2)
    assert MATRIX.supports(single, rocm_target("gfx942")) is None
    assert "float32" in str(MATRIX.supports(single, rocm_target("gfx1100")))
    assert PLAIN.supports(single, rocm_target("gfx1100")) is None
    assert "registers" in str(
        MATRIX.supports(MLP.uniform(256, 2, dtype="float16"), rocm_target("gfx1100"))
    )
    assert "rocm" in str(MATRIX.supports(single, {"kind": "llvm"}))
    assert "rocm" in str(PLAIN.supports(single, {"kind": "llvm"}))


def test_space_holds_the_default_and_no_dead_end() -> None:
    mlp = MLP.uniform(128, 4, dtype="float16")
    for processor in PROCESSORS:
        space = MATRIX.space(mlp, rocm_target(processor))
        candidates = list(space.enumerate())
        default = MATRIX.build(mlp, 64, rocm_target(processor)).knobs
        assert tuple(default.values()) in candidates
        prefixes = {candidate[:n] for candidate in candidates for n in range(4)}
        for prefix in prefixes:
            for value in space.legal_values(prefix):
                assert any(c[: len(prefix) + 1] == (*prefix, value) for c in candidates)
    # 4 layers of 32 KiB do not fit LDS at once.
    assert all("network" not in candidate for candidate in candidates)
