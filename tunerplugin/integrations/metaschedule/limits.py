"""What a target's hardware allows, with documented defaults for what its description leaves out.

Defaults, used with one warning per target, when the target does not say:

=====================  =====  =====  ======  ======  =====  ===================================
attribute              cuda   rocm   opencl  vulkan  metal  where the default comes from
=====================  =====  =====  ======  ======  =====  ===================================
threads per block      1024   256    256     256     256    CUDA C programming guide, table of
                                                            compute capabilities; TVM's own
                                                            defaults for the others
shared memory, KiB     48     64     16      16      32     the same; required minimum of Vulkan
register file, KiB     256    256    256     256     256    64 Ki 32-bit registers a block (CUDA
                                                            guide, CDNA ISA), taken as the bound
                                                            of the others too
unrolled steps         1024   1024   512     512     512    TVM's GPU space ends at 1024; drivers
                                                            that compile at load time take
                                                            seconds for long code
=====================  =====  =====  ======  ======  =====  ===================================

A vector access is at most 16 bytes on every GPU (TVM's ``VerifyGPUCode`` says so too).  On a CPU
only the unrolled steps (512) are limited; ``num-cores``, which TVM's scheduling rules demand,
defaults to the cores of this machine.  ``feature.tunerplugin.max_local_memory_per_block`` (bytes)
and ``feature.tunerplugin.max_unroll`` in a target override the last two rows.

An accelerator (``Target("tunerplugin/tpu-v2")``) needs no defaults: a vector access is at most its
lanes wide, and what a core keeps must fit its private buffer.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import Any

from ...errors import TargetError
from ...hw.target import from_target, is_accelerator
from ...measure.host import available_cores
from ..compat import RELAY, host_triple, target_config

MAX_VECTOR_BYTES = 16
REGISTER_FILE_BYTES = 256 * 1024
_FEATURE = "feature.tunerplugin."


@dataclass(frozen=True)
class _Defaults:
    threads: int
    shared_kib: int
    unroll: int


_GPU_DEFAULTS = {
    "cuda": _Defaults(1024, 48, 1024),
    "rocm": _Defaults(256, 64, 1024),
    "opencl": _Defaults(256, 16, 512),
    "vulkan": _Defaults(256, 16, 512),
    "metal": _Defaults(256, 32, 512),
}
_CPU_UNROLL = 512
_warned: set[str] = set()


@dataclass(frozen=True)
class HardwareLimits:
    """The limits that decoding obeys.  ``None`` means that the target has no such limit."""

    max_unroll: int
    max_threads_per_block: int | None = None
    max_shared_memory_bytes: int | None = None
    max_local_memory_bytes: int | None = None
    max_vector_bytes: int | None = None

    @classmethod
    def of(cls, target: Any) -> HardwareLimits:
        """Read a target that ``complete_target`` has completed."""
        kind, attrs = str(target.kind.name), target.attrs
        if kind == "ext_dev" and is_accelerator(target):
            return cls._of_accelerator(target)
        if kind not in _GPU_DEFAULTS:
            return cls(int(attrs.get(_FEATURE + "max_unroll", _CPU_UNROLL)))
        local = attrs.get(_FEATURE + "max_local_memory_per_block", REGISTER_FILE_BYTES)
        return cls(
            int(attrs.get(_FEATURE + "max_unroll", _GPU_DEFAULTS[kind].unroll)),
            int(attrs["max_threads_per_block"]),
            int(attrs["max_shared_memory_per_block"]),
            int(local),
            MAX_VECTOR_BYTES,
        )

    @classmethod
    def _of_accelerator(cls, target: Any) -> HardwareLimits:
        design = from_target(target)
        return cls(
            int(target.attrs.get(_FEATURE + "max_unroll", _CPU_UNROLL)),
            max_shared_memory_bytes=design.shared_buffer_bytes,
            max_local_memory_bytes=design.core_buffer_bytes,
            max_vector_bytes=design.vector_lanes * design.element_bytes,
        )


def is_gpu(target: Any) -> bool:
    """Whether schedules for this target bind loops to GPU threads."""
    return str(target.kind.name) in _GPU_DEFAULTS


def complete_target(target: Any) -> Any:
    """The target with every attribute that tuning needs.

    ``target`` is a ``tvm.target.Target`` or whatever its constructor takes.  Raises
    ``TargetError`` for unknown targets and for kinds that MetaSchedule cannot tune.
    """
    import tvm

    try:
        target = target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        first = str(error).strip().splitlines()[-1]
        raise TargetError(
            f"expected a TVM target (a kind such as llvm, a tag, or JSON), got {target!r}: {first}"
        ) from error
    kind = str(target.kind.name)
    if kind == "ext_dev" and is_accelerator(target):
        from_target(target)  # refuses what is incomplete
        return target
    missing = {k: v for k, v in _wanted(kind).items() if k not in target.attrs}
    if not missing:
        return target
    config = target_config(target)
    _warn_once(config, missing)
    return tvm.target.Target({**config, **missing})


def _wanted(kind: str) -> dict[str, Any]:
    if kind == "llvm":
        # vendors' Relay-era builds compile for their own boards unless told otherwise
        triple = {"mtriple": host_triple()} if RELAY else {}
        return {"num-cores": available_cores(), **triple}
    if kind not in _GPU_DEFAULTS:
        known = ", ".join(["llvm", *_GPU_DEFAULTS])
        raise TargetError(f"expected a target of kind {known}, got {kind}: tuning cannot serve it")
    defaults = _GPU_DEFAULTS[kind]
    return {
        "max_threads_per_block": defaults.threads,
        "max_shared_memory_per_block": defaults.shared_kib * 1024,
    }


def _warn_once(config: dict[str, Any], missing: dict[str, Any]) -> None:
    text = json.dumps(config, sort_keys=True)
    if text not in _warned:
        _warned.add(text)
        filled = ", ".join(f"{name}={value}" for name, value in missing.items())
        warnings.warn(
            f"target {config['kind']} does not state {', '.join(missing)}: using {filled}; "
            "state them in the target to override",
            stacklevel=4,
        )
