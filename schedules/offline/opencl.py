"""OpenCL C of a fused kernel, and running it on any OpenCL device that pyopencl finds.

TVM's wheel generates OpenCL but cannot start it.  ``program_of`` takes the source from TVM;
``run`` starts it in a child process (extra ``opencl``): a driver's crash or a kernel that never
ends is an error here, not the end of the caller.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tunerplugin.errors import MeasureError, ScheduleError, TargetError

from ..fused_mlp.template import ENTRY, FusedKernel
from .report import run_child

Array = npt.NDArray[Any]

_CHILD = Path(__file__).with_name("opencl_child.py")
_VENDORS = Path("/etc/OpenCL/vendors")


@dataclass(frozen=True)
class Program:
    """OpenCL C with what starts it.

    ``parameters`` are the kernel's, in its own order (TVM sorts them): a buffer's name, or that of
    the symbolic batch.  ``inputs`` and ``output`` name buffers in the order of the PrimFunc.  A
    work-group has ``threads`` work-items in x, y and z and takes ``rows`` of the batch.
    """

    source: str
    entry: str
    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    rows: int
    threads: tuple[int, int, int]
    build_options: tuple[str, ...] = ()

    def with_options(self, *options: str) -> Program:
        """The same program with more options for its compiler."""
        return replace(self, build_options=(*self.build_options, *options))


@dataclass(frozen=True)
class Device:
    """An OpenCL device: its platform's name and version, its own name, extensions and limits."""

    platform: str
    version: str
    name: str
    extensions: tuple[str, ...]
    shared_memory_bytes: int
    max_work_group: int


@dataclass(frozen=True)
class Run:
    """What a program computed, and how long each launch took on the device, in seconds."""

    output: Array
    seconds: tuple[float, ...]


def program_of(kernel: FusedKernel, target: Any) -> Program:
    """A fused kernel as TVM compiles it for an OpenCL target, amended as its ``Launch`` says.

    Raises ``ScheduleError`` for a kernel without ``launch``.
    """
    import tvm

    if kernel.launch is None:
        raise ScheduleError("expected a kernel of a GPU template, got one without a launch")
    module = tvm.IRModule({ENTRY: kernel.func})
    compiled = tvm.compile(module, target=tvm.target.Target(target))
    source = compiled.mod.imports[0].inspect_source()
    if kernel.launch.amend is not None:
        source = kernel.launch.amend(source)
    buffers = [str(parameter.name) for parameter in kernel.func.params]
    return Program(
        source,
        *_signature(source),
        inputs=tuple(buffers[:-1]),
        output=buffers[-1],
        rows=kernel.launch.rows,
        threads=kernel.launch.threads,
        build_options=kernel.launch.build_options,
    )


def _signature(source: str) -> tuple[str, tuple[str, ...]]:
    """Name and parameter names of the one kernel; TVM calls buffer b ``b_ptr``."""
    found = re.findall(r"__kernel void (\w+)\(([^)]*)\)\s*\{", source)
    if len(found) != 1:
        raise ScheduleError(f"expected one kernel in the source, got {len(found)}")
    entry, parameters = found[0]
    names = [parameter.split()[-1].removesuffix("_ptr") for parameter in parameters.split(",")]
    return entry, tuple(names)


def devices(timeout_s: float = 60) -> tuple[Device, ...]:
    """The OpenCL devices of this machine; none where pyopencl is absent.

    Besides the system's drivers, Intel's CPU runtime from ``pip install intel-opencl-rt
    intel-cmplr-lib-rt`` is found in this Python's environment.
    """
    if importlib.util.find_spec("pyopencl") is None:
        return ()
    answer = _ask({"do": "list"}, {}, timeout_s)
    return tuple(
        Device(**{**device, "extensions": tuple(device["extensions"])})
        for device in answer["devices"]
    )


@functools.cache
def device_of(platform: str) -> Device:
    """The first device whose platform's name contains ``platform``, e.g. ``"Intel"``.

    Raises ``TargetError`` when there is none.
    """
    known = devices()
    for device in known:
        if platform in device.platform:
            return device
    names = ", ".join(device.platform for device in known) or "none"
    raise TargetError(f"expected an OpenCL platform like {platform!r}, got {names}")


def run(
    program: Program,
    arguments: Sequence[Array],
    output: Array,
    platform: str,
    *,
    launches: int = 1,
    timeout_s: float = 120,
) -> Run:
    """Run on the first device of a platform.

    ``arguments``: the inputs in the PrimFunc's order, the first one (batch, ...); ``output``: an
    array of the output's shape and dtype, whose values the kernel finds in its buffer.  Raises
    ``TargetError`` when there is no such device and ``MeasureError`` when the program cannot be
    built or run there, or takes longer than ``timeout_s`` with its compilation.
    """
    device_of(platform)
    batch = len(arguments[0])
    groups = -(-batch // program.rows)
    request = {
        "do": "run",
        "platform": platform,
        "source": program.source,
        "options": list(program.build_options),
        "entry": program.entry,
        "parameters": list(program.parameters),
        "output": program.output,
        "scalars": {"batch": batch},
        "local": list(program.threads),
        "global": [program.threads[0] * groups, *program.threads[1:]],
        "launches": launches,
    }
    named = dict(zip(program.inputs, arguments, strict=True)) | {program.output: output}
    answer = _ask(request, named, timeout_s)
    raw = np.frombuffer(answer["bytes"], output.dtype).reshape(output.shape)
    return Run(raw.copy(), tuple(answer["seconds"]))


def _ask(request: Mapping[str, Any], arrays: Mapping[str, Array], timeout_s: float) -> Any:
    """One conversation with the child, through files in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="tunerplugin-opencl-") as name:
        folder = Path(name)
        vendors = _vendors(folder)
        for array, values in arrays.items():
            (folder / array).write_bytes(np.ascontiguousarray(values).tobytes())
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        done = run_child(
            [sys.executable, str(_CHILD), str(folder)],
            timeout_s=timeout_s,
            environment={**os.environ, "OCL_ICD_VENDORS": str(vendors)},
        )
        if not done.ok:
            raise MeasureError(f"OpenCL program: {done.explain()}")
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        if request["do"] == "run":
            answer["bytes"] = (folder / request["output"]).read_bytes()
        return answer


def _vendors(folder: Path) -> Path:
    """A folder of drivers: the system's, or the user's own, and the runtime in this environment.

    The wheel's own driver file names a folder of another installer, so one is written here.
    """
    vendors = folder / "vendors"
    vendors.mkdir()
    given = os.environ.get("OCL_ICD_VENDORS")
    for driver in (Path(given) if given else _VENDORS).glob("*.icd"):
        (vendors / driver.name).write_text(driver.read_text(encoding="utf-8"), encoding="utf-8")
    runtime = Path(sys.prefix) / "lib" / "libintelocl.so"
    if runtime.exists():
        (vendors / "intel-cpu.icd").write_text(f"{runtime}\n", encoding="utf-8")
    return vendors
