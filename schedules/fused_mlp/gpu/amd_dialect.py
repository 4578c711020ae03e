"""How the operations that TIR has no word for are spelled: for LLVM, or for an emulation."""

from __future__ import annotations

from typing import Any, Protocol

from tunerplugin.integrations.compat import T

from .amd_isa import MatrixInstruction

Expression = Any

# v_permlanex16_b32 with these selectors takes lane i of the other half for lane i.
_SAME_LANE_LOW, _SAME_LANE_HIGH = 0x76543210, 0xFEDCBA98 - (1 << 32)


class Dialect(Protocol):
    """What a kernel is written in, besides TIR.

    ``unrolled``: registers are only what constant indices reach, so loops over them are unrolled.
    """

    unrolled: bool

    def multiply(
        self, instruction: MatrixInstruction, a: Expression, b: Expression, c: Expression
    ) -> Expression:
        """``a`` times ``b`` plus ``c``, by one matrix instruction."""

    def other_half(self, value: Expression) -> Expression:
        """The int32 ``value`` of the same lane in the other half of a wave of 32."""

    def fence(self) -> None:
        """Emit a line that the compiler moves nothing across."""

    def pinned(self, instruction: MatrixInstruction, value: Expression) -> Expression:
        """The int32 ``value``, computed here and by the whole wave, whatever branch follows."""


class LLVM:
    """LLVM's intrinsics, for the rocm target."""

    unrolled = True

    def multiply(
        self, instruction: MatrixInstruction, a: Expression, b: Expression, c: Expression
    ) -> Expression:
        """See ``Dialect``."""
        # MFMA: no broadcast of blocks (cbsz, abid, blgp).
        options = (T.int32(0),) * 3 if ".mfma." in instruction.intrinsic else ()
        kind = f"float32x{instruction.accumulators}"
        return T.call_llvm_pure_intrin(kind, _id(instruction.intrinsic), a, b, c, *options)

    def other_half(self, value: Expression) -> Expression:
        """See ``Dialect``."""
        selectors = (T.int32(_SAME_LANE_LOW), T.int32(_SAME_LANE_HIGH))
        flags = (T.boolean(False), T.boolean(False))
        identifier = _id("llvm.amdgcn.permlanex16")
        return T.call_llvm_pure_intrin("int32", identifier, value, value, *selectors, *flags)

    def fence(self) -> None:
        """See ``Dialect``: else loads of weights move up until they fill every register."""
        # Mask 0: nothing may be moved across (LLVM's AMDGPUUsage).
        identifier = _id("llvm.amdgcn.sched.barrier")
        T.evaluate(T.call_llvm_intrin("void", identifier, T.int32(0)))

    def pinned(self, instruction: MatrixInstruction, value: Expression) -> Expression:
        """See ``Dialect``.

        LLVM moves a WMMA into the one branch that uses its result, where lanes sleep; but WMMA
        needs all of them (RDNA 3 ISA guide, 7.9).  It does not move an exchange between lanes, so
        there is one, of every lane with itself.  MFMA ignores which lanes sleep, and is not moved.
        """
        if instruction.wave == 64:
            return value
        selectors = (T.int32(_SAME_LANE_LOW), T.int32(_SAME_LANE_HIGH))
        flags = (T.boolean(False), T.boolean(False))
        identifier = _id("llvm.amdgcn.permlane16")
        return T.call_llvm_pure_intrin("int32", identifier, value, value, *selectors, *flags)


class External:
    """Calls of functions ``multiply`` and ``other_half`` that the device's source brings along.

    So a kernel runs, data movement and all, where there is no such instruction.
    """

    unrolled = False

    def multiply(
        self, instruction: MatrixInstruction, a: Expression, b: Expression, c: Expression
    ) -> Expression:
        """See ``Dialect``."""
        return T.call_extern(f"float32x{instruction.accumulators}", "multiply", a, b, c)

    def other_half(self, value: Expression) -> Expression:
        """See ``Dialect``."""
        return T.call_extern("int32", "other_half", value)

    def fence(self) -> None:
        """See ``Dialect``: nothing to do."""

    def pinned(self, instruction: MatrixInstruction, value: Expression) -> Expression:
        """See ``Dialect``: nothing to do."""
        return value


def _id(intrinsic: str) -> Expression:
    return T.llvm_lookup_intrinsic_id(intrinsic)
