"""What a schedule needs to know about a CPU, from its TVM target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

L1_BYTES = 32 * 1024
L2_BYTES = 512 * 1024
"""Data caches of one core.  Targets do not name them; current x86 and Arm cores have no less."""


@dataclass(frozen=True)
class Machine:
    """The vector unit of one core: ``lanes`` float32 per register, ``registers`` in all."""

    lanes: int
    registers: int
    cores: int = 1
    l1_bytes: int = L1_BYTES
    l2_bytes: int = L2_BYTES

    @classmethod
    def of(cls, target: Any) -> Machine:
        """That of a ``tvm.target.Target`` of kind llvm.

        Extensions are read from the model and ``mattr`` together: the vector width that LLVM
        reports for a target is the same for all x86.
        """
        from tvm.target import codegen

        features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
        lanes, registers = _vectors(features)
        return cls(lanes, registers, int(target.attrs.get("num-cores", 1)))


def _vectors(features: set[str]) -> tuple[int, int]:
    """Lanes and registers; of x86 (SSE at least) unless told otherwise."""
    if "avx512f" in features:
        return 16, 32
    if "avx" in features:
        return 8, 16
    if "neon" in features:
        return 4, 32
    return 4, 16
