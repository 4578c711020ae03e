"""What a kernel uses on an Intel GPU that need not be there, read with ``ocloc``.

``ocloc`` is the driver's own compiler, run offline (Debian: intel-opencl-icd, libigc-tools).
Registers, shared memory and sub-group size stand in the binary's ``.ze_info``; spills and
instructions are read from the assembly that IGC dumps, because ``.ze_info`` was seen to leave
spills out.
"""

from __future__ import annotations

import functools
import math
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunerplugin.errors import ScheduleError, TargetError

from ..fused_mlp.gpu.intel import DG2, PVC, XMX, target_config
from ..fused_mlp.template import FusedKernel
from .opencl import Program, program_of
from .report import KernelUse, run_child

DEVICES: Mapping[str, XMX] = {device.model: device for device in (PVC, DG2)}
"""The devices whose limits are known, by the name that ``ocloc`` has for them."""

_TIMEOUT_S = 300.0
_GRF_FILE = 128  # registers of a hardware thread in the mode with the most threads


def available() -> str | None:
    """Why kernels cannot be read out here; ``None``: they can."""
    if shutil.which("ocloc") is None:
        return "ocloc is absent (Debian: intel-opencl-icd libigc-tools)"
    return None


def use_of(kernel: FusedKernel | Program, device: str, timeout_s: float = _TIMEOUT_S) -> KernelUse:
    """What a kernel uses on ``device`` (``"pvc"`` or ``"dg2"``), remembered by its source.

    Raises ``TargetError`` where ``ocloc`` or the device is unknown, and ``ScheduleError`` with the
    compiler's words when it does not compile within ``timeout_s``.
    """
    if device not in DEVICES:
        raise TargetError(f"expected a device of {', '.join(DEVICES)}, got {device!r}")
    if isinstance(kernel, FusedKernel):
        kernel = program_of(kernel, target_config(DEVICES[device]))
    items = math.prod(kernel.threads)
    return _use_of(kernel.source, kernel.build_options, items, device, timeout_s)


def occupancy(device: XMX, sub_groups: int, registers: int, shared_memory_bytes: int) -> float:
    """Share of a core's hardware threads that work-groups of ``sub_groups`` can fill at once."""
    groups = device.threads * _GRF_FILE // registers // sub_groups
    if shared_memory_bytes:
        groups = min(groups, device.core_shared_bytes // shared_memory_bytes)
    return groups * sub_groups / device.threads


@functools.lru_cache(maxsize=4096)
def _use_of(
    source: str, options: tuple[str, ...], items: int, device: str, timeout_s: float
) -> KernelUse:
    if (reason := available()) is not None:
        raise TargetError(reason)
    with tempfile.TemporaryDirectory(prefix="tunerplugin-ocloc-") as name:
        folder = Path(name)
        (folder / "kernel.cl").write_text(source, encoding="utf-8")
        _compile(folder, options, device, timeout_s)
        information = _ze_info(next((folder / "out").glob("*.bin")).read_bytes())
        assembly = _assembly(folder / "dump").read_text(encoding="utf-8", errors="replace")
    return _read(information, assembly, DEVICES[device], items)


def _compile(folder: Path, options: tuple[str, ...], device: str, timeout_s: float) -> None:
    command = ["ocloc", "compile", "-file", "kernel.cl", "-device", device, "-out_dir", "out"]
    command += ["-output", "kernel", "--format", "zebin", "-options", " ".join(options)]
    environment = {
        **os.environ,
        "IGC_ShaderDumpEnable": "1",
        "IGC_DumpToCustomDir": f"{folder / 'dump'}/",
    }
    # ocloc must find the driver's own libraries, not those of an OpenCL runtime for CPUs.
    environment.pop("LD_LIBRARY_PATH", None)
    done = run_child(command, timeout_s=timeout_s, cwd=str(folder), environment=environment)
    if not done.ok or "Build succeeded" not in done.output:
        raise ScheduleError(f"ocloc for {device}: {done.explain()}")


def _assembly(dump: Path) -> Path:
    """The kernel's last assembly: after a spill IGC tries again and numbers what it dumps."""
    files = sorted(dump.glob("*_1_simd*_entry_*.asm")) or sorted(dump.glob("*_simd*_entry_*.asm"))
    if not files:
        raise ScheduleError("expected an assembly dump of IGC (Debian: libigc-tools), got none")
    return files[-1]


def _read(information: str, assembly: str, device: XMX, items: int) -> KernelUse:
    registers = _number(r"grf_count:\s+(\d+)", information)
    instructions = re.findall(r"^ +(?:\([^)]*\) +)?([a-z]\w*)[\w.]* +\(", assembly, re.MULTILINE)
    shared = _number(r"slm_size:\s+(\d+)", information, 0)
    lanes = _number(r"simd_size:\s+(\d+)", information)
    return KernelUse(
        device=device.model,
        compiler=_version(),
        registers=registers,
        spill_bytes=_number(r"^//\.spill size (\d+)", assembly, 0),
        shared_memory_bytes=shared,
        matrix_instructions=instructions.count("dpas") + instructions.count("dpasw"),
        instructions=_number(r"^//\.instCount (\d+)", assembly),
        sub_group_size=lanes,
        occupancy=occupancy(device, -(-items // lanes), registers, shared),
    )


def _number(pattern: str, text: str, default: int | None = None) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None and default is None:
        raise ScheduleError(f"expected {pattern!r} in what ocloc wrote, which it does not have")
    return int(found.group(1)) if found else int(default or 0)


@functools.cache
def _version() -> str:
    """ocloc's own version, which it does not print; Debian's package manager knows it."""
    try:
        done = run_child(["dpkg-query", "-W", "-f", "${Version}", "libigc1"], timeout_s=30)
    except FileNotFoundError:
        return "ocloc"
    return f"ocloc, IGC {done.output}" if done.ok else "ocloc"


def _ze_info(binary: bytes) -> str:
    """The section ``.ze_info`` of a zebin, an ELF64 file: YAML text."""
    section_table = struct.unpack_from("<Q", binary, 0x28)[0]
    entry_bytes, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", binary, section_table + i * entry_bytes)
        for i in range(count)
    ]
    table = sections[names][4]

    def name(section: tuple[Any, ...]) -> str:
        start = table + section[0]
        return binary[start : binary.index(b"\0", start)].decode()

    for section in sections:
        if name(section) == ".ze_info":
            return binary[section[4] : section[4] + section[5]].decode()
    raise ScheduleError("expected a section .ze_info in the binary of ocloc, got none")
