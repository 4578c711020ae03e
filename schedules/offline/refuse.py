"""Whether a kernel should be built for a device that is not here, by its compiler's own word."""

from __future__ import annotations

import math
from typing import Any

from tunerplugin.errors import ScheduleError

from ..fused_mlp.template import FusedKernel


def refusal(kernel: FusedKernel, target: Any) -> str | None:
    """Why ``kernel`` should not be used on ``target``: it spills, does not fit or does not compile.

    None where it is sound, and where nobody can tell: on a CPU, on an OpenCL device that Intel's
    offline compiler does not know, or without that compiler.
    """
    from tvm.target import Target

    target = target if isinstance(target, Target) else Target(target)
    try:
        if target.kind.name == "rocm":
            return _amd(kernel, target)
        if target.kind.name == "opencl":
            return _intel(kernel, target)
    except ScheduleError as error:
        return str(error)
    return None


def _amd(kernel: FusedKernel, target: Any) -> str | None:
    from ..fused_mlp.gpu.amd import processor_of
    from .amd import GROUP_LDS_BYTES, use_of

    assert kernel.launch is not None  # as every GPU kernel has
    use = use_of(kernel.func, processor_of(target), math.prod(kernel.launch.threads))
    return use.refusal(GROUP_LDS_BYTES)


def _intel(kernel: FusedKernel, target: Any) -> str | None:
    from .intel import DEVICES, available, use_of

    device = DEVICES.get(str(target.attrs.get("model", "")))
    if device is None or available() is not None:
        return None
    return use_of(kernel, device.model).refusal(device.shared_bytes)
