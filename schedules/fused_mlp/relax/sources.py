"""Amending the OpenCL source of fused kernels within TVM's own build.

TVM has no attribute for a required sub-group size and knows none of the matrix built-ins, so a
template may hand out a function that rewrites its kernel's source (``Launch.amend``).  TVM calls
the global function ``tvm_callback_opencl_postproc`` with the source of every kernel that it
generates, long after the pass has ended; ours looks the kernel up by its name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import tvm_ffi

from ..template import FusedKernel

CALLBACK = "tvm_callback_opencl_postproc"

# TVM generates one source for each kernel, with a declaration of all of them; none calls another.
_DEFINITION = re.compile(r"^__kernel void (fused_mlp_[0-9a-f]{12})\w*\([^;{]*\{", re.MULTILINE)
_DECLARATION = re.compile(r"^__kernel void \w+\([^;{]*\);\n", re.MULTILINE)

_amendments: dict[str, Callable[[str], str]] = {}


def kernel_name(kernel: FusedKernel, target: Any) -> str:
    """A name for the kernel's function: equal for equal kernels, different for others."""
    identity = repr((kernel.mlp, kernel.batch, sorted(kernel.knobs.items()), str(target)))
    return f"fused_mlp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def amend_at_build(kernel: FusedKernel, name: str) -> None:
    """Have the source of the kernel called ``name`` amended wherever this process builds it."""
    if kernel.launch is None or kernel.launch.amend is None:
        return
    if not _amendments:
        _install()
    _amendments[name] = kernel.launch.amend


def _install() -> None:
    """Register the callback; one that somebody else registered runs behind ours."""
    other = tvm_ffi.get_global_func(CALLBACK, allow_missing=True)

    def amend(source: str, target: Any) -> str:
        defined = _DEFINITION.search(source)
        if defined is not None and defined[1] in _amendments:
            source = _amendments[defined[1]](_DECLARATION.sub("", source))
        return str(other(source, target)) if other is not None else source

    tvm_ffi.register_global_func(CALLBACK, amend, override=True)
