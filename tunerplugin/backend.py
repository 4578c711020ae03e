"""What happens at ``import tvm``: the ``tvm.backends`` entry point.

TVM calls every entry of that group while it is being imported (``TVM_DEVICE_BACKEND_AUTOLOAD=0``
turns it off), also in processes that never tune.  So no part of the tuner is loaded here; the
names for MetaSchedule come with ``tunerplugin.register()``.  Done is only what is of no use later:
the chips become target tags (``Target("tunerplugin/tpu-v2")``), which takes some 15 ms, and an
apache-tvm-ffi with which TVM 0.27 dies without a word when it writes its first tuning record is
named before that happens.
"""

from __future__ import annotations

import warnings
from importlib import metadata

# First release with which JSONDatabase.commit_workload of TVM 0.27 segfaults (tried: its .post1
# and .post2).
FFI_BROKEN_FROM = (0, 1, 15)


def register_backend() -> None:
    """Register the chips as targets; warn about an apache-tvm-ffi that crashes TVM 0.27."""
    from .hw.target import register_all

    register_all()
    _check_ffi()


def _check_ffi() -> None:
    try:
        tvm_version = metadata.version("apache-tvm")
        ffi_version = metadata.version("apache-tvm-ffi")
    except metadata.PackageNotFoundError:
        return  # a TVM built from source brings its own, matching FFI
    if not tvm_version.startswith("0.27.") or _release(ffi_version) < FFI_BROKEN_FROM:
        return
    warnings.warn(
        f"expected apache-tvm-ffi>=0.1.14.post0,<0.1.15, got {ffi_version}, with which TVM "
        f"{tvm_version} crashes when it writes a tuning record; "
        "run: pip install 'apache-tvm-ffi<0.1.15'",
        RuntimeWarning,
        stacklevel=3,
    )


def _release(version: str) -> tuple[int, ...]:
    """``0.1.14.post1`` -> ``(0, 1, 14)``: the leading whole numbers."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
