"""What a kernel takes from an AMD GPU, read from the assembly that TVM's own LLVM makes of it.

No GPU and no ROCm: see ``amd_child``.  Start at ``use_of``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunerplugin.errors import ScheduleError, TargetError

from .report import KernelUse, run_child

DEVICE_THREADS = 1024
"""Work-items that TVM, on a machine with an AMD GPU, tells LLVM a work-group may have."""

_CHILD = Path(__file__).with_name("amd_child.py")
_MATRIX = re.compile(r"v_(?:s?mfma\w*|s?wmma\w*|smfmac\w*|swmmac\w*)")


@dataclass(frozen=True)
class ComputeUnit:
    """What work-groups share: a compute unit, or on RDNA a work-group processor (two of them).

    ``vgprs`` are those of one lane of one SIMD, in allocations of ``vgpr_granule``; so with
    ``sgprs`` (None: no wave is ever short of them).  ``groups``: work-groups of more than one wave,
    as each needs a barrier.
    """

    simds: int
    waves_per_simd: int
    wave: int
    vgprs: int
    vgpr_granule: int
    lds_bytes: int
    lds_granule: int
    groups: int
    sgprs: int | None = None
    sgpr_granule: int = 16


GROUP_LDS_BYTES = 65536
"""Most LDS of one work-group, on every generation here."""

# AMD Instinct MI200 and CDNA 3 ISA guides, sections 2 and 3.6: 512 VGPRs (arch and acc) in eights,
# 8 waves a SIMD, LDS in 512 bytes.  LLVM's AMDGPUBaseInfo has the same, and 800 SGPRs in 16s.
_CDNA = ComputeUnit(4, 8, 64, 512, 8, 65536, 512, 16, sgprs=800)
# Vega and MI100 (CDNA 1 ISA guide): 256 VGPRs in fours, 10 waves a SIMD.
_GFX9 = ComputeUnit(4, 10, 64, 256, 4, 65536, 512, 16, sgprs=800)
# RDNA 2 ISA guide: 1024 VGPRs of wave32 in eights (16s from gfx10.3 on), 16 waves (20 before),
# 128 KiB of LDS in a work-group processor.
_GFX10 = ComputeUnit(4, 20, 32, 1024, 8, 131072, 512, 32)
_GFX103 = ComputeUnit(4, 16, 32, 1024, 16, 131072, 512, 32)
# RDNA 3 and RDNA 4 ISA guides, 3.3: 1536 VGPRs in 24s on the large chips, 1024 in 16s on the
# others; LDS in 1024 bytes.
_RDNA3 = ComputeUnit(4, 16, 32, 1024, 16, 131072, 1024, 32)
_RDNA3_LARGE = ComputeUnit(4, 16, 32, 1536, 24, 131072, 1024, 32)

_LARGE_FILES = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
_CDNA_NAMES = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")


def compute_unit(processor: str) -> ComputeUnit:
    """By LLVM's processor name.  Raises ``TargetError`` for one that is not known."""
    if processor in _CDNA_NAMES:
        return _CDNA
    if processor in _LARGE_FILES:
        return _RDNA3_LARGE
    for prefix, unit in (
        ("gfx9", _GFX9),
        ("gfx103", _GFX103),
        ("gfx10", _GFX10),
        ("gfx11", _RDNA3),
    ):
        if processor.startswith(prefix):
            return unit
    raise TargetError(
        f"expected an AMD processor of gfx9 to gfx12, such as gfx942 or gfx1100, got {processor!r}"
    )


def register_limit(processor: str) -> int:
    """VGPRs that LLVM gives one work-item: a work-group of ``DEVICE_THREADS`` must be resident."""
    unit = compute_unit(processor)
    waves = DEVICE_THREADS // unit.wave // unit.simds
    return unit.vgprs // waves // unit.vgpr_granule * unit.vgpr_granule


@dataclass(frozen=True, kw_only=True)
class AmdKernelUse(KernelUse):
    """``KernelUse`` with what AMD's tools name.

    ``registers`` is ``vgprs``: on CDNA it includes ``agprs``.  ``scratch_bytes``: memory of one
    work-item for spills and for arrays that found no register.  ``waves_per_simd``: resident at
    once, None where the work-group's size is not known.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    waves_per_simd: float | None = None


def rocm_target(processor: str) -> dict[str, Any]:
    """TVM's target for ``processor``.  Raises ``TargetError`` for one that is not known."""
    return {
        "kind": "rocm",
        "mcpu": processor,
        "thread_warp_size": compute_unit(processor).wave,
        "max_num_threads": DEVICE_THREADS,
        "max_threads_per_block": DEVICE_THREADS,
        "max_shared_memory_per_block": GROUP_LDS_BYTES,
        "host": "llvm",
    }


def use_of(
    func: Any, processor: str, group_threads: int | None = None, *, timeout_s: float = 300
) -> AmdKernelUse:
    """What the GPU kernel of a scheduled PrimFunc takes from ``processor`` (gfx942, gfx1100, ...).

    ``group_threads``: work-items of its work-group, for the occupancy.  Raises ``ScheduleError``
    when it cannot be compiled, as when it wants more LDS than there is.
    """
    result = uses_of([(func, processor, group_threads)], timeout_s=timeout_s)[0]
    if isinstance(result, ScheduleError):
        raise result
    return result


def uses_of(
    jobs: Sequence[tuple[Any, str, int | None]], *, timeout_s: float = 300
) -> list[AmdKernelUse | ScheduleError]:
    """``use_of`` for many kernels in one child process (TVM takes seconds to start).

    A kernel that cannot be compiled, ends the compiler or has not come out after ``timeout_s``
    (for all of them together) gives its error as its result; the others are compiled still.
    """
    made = assemblies([(func, processor) for func, processor, _ in jobs], timeout_s=timeout_s)
    return [
        text if isinstance(text, ScheduleError) else read(text, processor, threads)
        for text, (_, processor, threads) in zip(made, jobs, strict=True)
    ]


def assemblies(
    jobs: Sequence[tuple[Any, str]], *, timeout_s: float = 300
) -> list[str | ScheduleError]:
    """The assembly of each (PrimFunc, processor), as in ``uses_of``."""
    import tvm

    asked = [
        {
            "module": tvm.ir.save_json(tvm.IRModule({str(func.attrs["global_symbol"]): func})),
            "target": rocm_target(processor),
            "threads": DEVICE_THREADS,
        }
        for func, processor in jobs
    ]
    results: list[str | ScheduleError] = []
    while len(results) < len(asked):
        command = [sys.executable, str(_CHILD)]
        finished = run_child(command, timeout_s=timeout_s, text=json.dumps(asked[len(results) :]))
        for line in finished.output.splitlines():
            if line.startswith("{"):
                results.append(_result(json.loads(line)))
        if len(results) < len(asked):
            # The first without a result is the one that the compiler did not survive.
            results.append(ScheduleError(f"the compiler ended: {finished.explain()}"))
    return results


def _result(line: dict[str, str]) -> str | ScheduleError:
    if "assembly" in line:
        return line["assembly"]
    return ScheduleError(f"expected a kernel that compiles, got {line['error']}")


def read(text: str, processor: str, group_threads: int | None = None) -> AmdKernelUse:
    """What assembly with one kernel says in its metadata, and a count of its instructions."""
    field = _metadata(text)
    vgprs, sgprs = field("vgpr_count"), field("sgpr_count")
    shared, wave = field("group_segment_fixed_size"), field("wavefront_size")
    body = _instructions(text)
    waves = None
    if group_threads is not None:
        waves = waves_per_simd(processor, vgprs, shared, group_threads, sgprs)
    return AmdKernelUse(
        device=processor,
        compiler=f"LLVM {_llvm_version()} of TVM",
        registers=vgprs,
        spill_bytes=4 * field("vgpr_spill_count"),
        shared_memory_bytes=shared,
        matrix_instructions=sum(bool(_MATRIX.match(name)) for name in body),
        instructions=len(body),
        sub_group_size=wave,
        occupancy=None if waves is None else waves / compute_unit(processor).waves_per_simd,
        vgprs=vgprs,
        agprs=field("agpr_count"),
        sgprs=sgprs,
        vgpr_spills=field("vgpr_spill_count"),
        sgpr_spills=field("sgpr_spill_count"),
        scratch_bytes=field("private_segment_fixed_size"),
        waves_per_simd=waves,
    )


def waves_per_simd(
    processor: str, vgprs: int, lds_bytes: int, group_threads: int, sgprs: int = 0
) -> float:
    """Waves that are resident on a SIMD at once: 0 when not even one work-group fits.

    ``vgprs`` and ``sgprs`` are those of one wave, ``lds_bytes`` those of one work-group.  Whole
    work-groups fill a compute unit, so it is a fraction where they do not divide evenly.
    """
    unit = compute_unit(processor)
    group_waves = -(-group_threads // unit.wave)
    waves = min(unit.waves_per_simd, unit.vgprs // _round_up(max(vgprs, 1), unit.vgpr_granule))
    if unit.sgprs is not None and sgprs:
        waves = min(waves, unit.sgprs // _round_up(sgprs, unit.sgpr_granule))
    groups = waves * unit.simds // group_waves
    if group_waves > 1:
        groups = min(groups, unit.groups)
    if lds_bytes:
        groups = min(groups, unit.lds_bytes // _round_up(lds_bytes, unit.lds_granule))
    return groups * group_waves / unit.simds


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _metadata(text: str) -> Any:
    """The numbers of the one kernel in the code object's metadata."""
    _, found, metadata = text.partition(".amdgpu_metadata")
    if not found or len(re.findall(r"\.symbol:", metadata)) != 1:
        raise ScheduleError("expected assembly with the metadata of exactly one kernel")

    def field(name: str) -> int:
        match = re.search(rf"\.{name}:\s+(\d+)", metadata)
        return int(match.group(1)) if match else 0  # as .agpr_count where there are none

    return field


def _instructions(text: str) -> list[str]:
    """Mnemonics of the kernel's body; conversion routines that TVM adds stand behind it."""
    body = re.search(r"^\w+_kernel:\n(.*?)^\.Lfunc_end", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise ScheduleError("expected assembly with a function called ..._kernel, got none")
    return re.findall(r"^\t([a-z]\w*)", body.group(1), re.MULTILINE)


def _llvm_version() -> int:
    import tvm_ffi

    return int(tvm_ffi.get_global_func("target.llvm_version_major")())
