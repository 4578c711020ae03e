"""This machine's CPU: its target for TVM, its cores and its name in record keys."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import Any

_CPUINFO = Path("/proc/cpuinfo")
_CPU_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")

_FLAG_OF_FEATURE = {
    "avx": "avx",
    "avx2": "avx2",
    "f16c": "f16c",
    "fma": "fma",
    "fma4": "fma4",
    "xop": "xop",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "tbm": "tbm",
    "lzcnt": "abm",
    "popcnt": "popcnt",
    "movbe": "movbe",
    "adx": "adx",
    "aes": "aes",
    "vaes": "vaes",
    "pclmul": "pclmulqdq",
    "vpclmulqdq": "vpclmulqdq",
    "sha": "sha_ni",
    "gfni": "gfni",
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "avxvnniint16": "avx_vnni_int16",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "amx-fp16": "amx_fp16",
}
"""LLVM's name of an x86 extension that code generation uses, and Linux's name of the same."""


_LEVELS = {
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v2": "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
}
"""Levels of the x86-64 psABI, highest first: LLVM's name, and Linux's of what each adds."""


def host_target(num_cores: int | None = None) -> dict[str, Any]:
    """The TVM target of this CPU, as the dictionary that ``tvm.target.Target`` takes.

    LLVM names the CPU model; a hypervisor may hide some of that model's extensions, and code for
    them ends in SIGILL.  So what Linux does not list is switched off in ``mattr``.  Elsewhere the
    model is trusted.  A model that is newer than the LLVM of this TVM is called generic by it: then
    the highest level of x86-64 that Linux lists stands in.  ``num_cores`` defaults to
    ``available_cores()``.
    """
    from tvm.target import Target, codegen

    from ..integrations.compat import host_triple

    flags = _cpu_flags()
    mcpu = str(codegen.llvm_get_system_cpu())
    if mcpu == "generic":
        mcpu = x86_level(flags) or mcpu
    target: dict[str, Any] = {
        "kind": "llvm",
        "mtriple": host_triple(),
        "mcpu": mcpu,
        "num-cores": available_cores() if num_cores is None else num_cores,
    }
    if flags:
        features = {str(f) for f in codegen.llvm_get_cpu_features(Target(target))}
        masked = masked_features(features, flags)
        if masked:
            target["mattr"] = masked
    return target


def x86_level(flags: set[str]) -> str:
    """The highest psABI level whose extensions, and those of all lower ones, Linux lists, or ""."""
    reached = ""
    for level, added in reversed(_LEVELS.items()):
        if not flags.issuperset(added.split()):
            break
        reached = level
    return reached


def masked_features(features: set[str], flags: set[str]) -> list[str]:
    """Attributes such as ``-avx512f`` for the LLVM features whose Linux flag is missing."""
    known = sorted(features & _FLAG_OF_FEATURE.keys())
    return [f"-{name}" for name in known if _FLAG_OF_FEATURE[name] not in flags]


def available_cores() -> int:
    """Physical cores that this process may use: affinity and container quota respected."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = {_core_of(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _quota_cores()))


def device_name(num_cores: int | None = None) -> str:
    """CPU model and number of cores used, the device's part of a record key.

    Virtual machines often hide the model's name; family and model numbers still tell.
    """
    name = " ".join(_cpuinfo_field("model name").split())
    name = name or platform.processor() or platform.machine() or "cpu"
    numbers = [_cpuinfo_field("cpu family"), _cpuinfo_field("model")]
    detail = f" (family {numbers[0]} model {numbers[1]})" if all(numbers) else ""
    return f"{name}{detail} x{available_cores() if num_cores is None else num_cores}"


def _core_of(cpu: int) -> tuple[str, str]:
    """Package and core of a logical CPU; hardware threads of one core agree."""
    folder = _CPU_TOPOLOGY / f"cpu{cpu}" / "topology"
    try:
        package = (folder / "physical_package_id").read_text(encoding="ascii").strip()
        return package, (folder / "core_id").read_text(encoding="ascii").strip()
    except OSError:
        return "", str(cpu)


def _quota_cores() -> int:
    """Whole cores within the cgroup's CPU quota (a huge number without one)."""
    unlimited = 1 << 30
    try:
        quota, period = _CGROUP_QUOTA.read_text(encoding="ascii").split()[:2]
        return unlimited if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return unlimited


def _cpu_flags() -> set[str]:
    """Linux's list of x86 extensions; empty on other systems and architectures."""
    return set(_cpuinfo_field("flags").split())


def _cpuinfo_field(name: str) -> str:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
