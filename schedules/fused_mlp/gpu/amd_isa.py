"""AMD's matrix instructions: which rows and features of a tile each lane of a wave holds.

A fused kernel computes the transposed layer, D = W^T X^T: the weights are operand A, the batch is
the column index.  A lane then holds, of operand B and of the result alike, *one* row of the batch
and runs of consecutive features of it.  So the result of one layer is the next layer's operand, but
for a conversion, and on gfx11 an exchange between the two halves of a wave.

Layouts: AMD matrix instruction calculator, CDNA 3 ISA guide (chapter 7), RDNA 3 ISA guide (7.9),
RDNA 4 ISA guide (7.12).  The order of k within a block is free, as both operands share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..description import DType
from ..packing import Packing


@dataclass(frozen=True)
class MatrixInstruction:
    """A product of (tile, k) by (k, tile), summed in float32, by one wave of ``wave`` lanes.

    ``intrinsic`` is LLVM's name and ``operand`` the element type it takes for ``storage``.  Lane l
    serves row l % tile of the batch.  The lanes that serve one row, ``groups`` of them, share its
    features: group g holds ``run`` consecutive ones of every ``block = groups * run``.

    ``steps``: a block takes so many instructions, each with one element of the run (float32).
    ``replicated`` (gfx11): an operand holds the whole block in each group; and as the hardware
    deals the rows of a result out to the groups by turns, the weights' columns are stored so that
    runs come out.
    """

    intrinsic: str
    storage: DType
    operand: str
    wave: int
    tile: int
    run: int
    steps: int = 1
    replicated: bool = False

    @property
    def groups(self) -> int:
        """Lanes that serve one row of the batch."""
        return self.wave // self.tile

    @property
    def block(self) -> int:
        """Features of one operand: the k that is summed over at a time."""
        return self.groups * self.run

    @property
    def operand_elements(self) -> int:
        """Elements of an operand in one lane."""
        return self.block if self.replicated else self.run

    @property
    def accumulators(self) -> int:
        """Float32 elements of a (tile, tile) result in one lane."""
        return self.tile * self.tile // self.wave

    def blocks(self, width: int) -> int:
        """Operands that ``width`` features take."""
        return -(-width // self.block)

    def tiles(self, width: int) -> int:
        """Results that ``width`` features take."""
        return -(-width // self.tile)

    def packing(self, k: int, n: int) -> Packing:
        """A weight as the lanes read it, [n tile][k block][lane][run], 16 or 8 bytes a lane.

        A replicated operand is two runs, each of them stored for the tile's lanes together, so that
        both reads touch every bank of shared memory once.
        """
        k_factors = (self.blocks(k), self.groups, self.run)
        if not self.replicated:
            n_factors: tuple[int, ...] = (self.tiles(n), self.tile)
            return Packing(k, n, k_factors, n_factors, (3, 0, 1, 4, 2), self.storage)
        # Row 2 e + g of the result goes to element e of group g, which shall be feature 8 g + e.
        n_factors = (self.tiles(n), self.groups, self.run)
        return Packing(k, n, k_factors, n_factors, (3, 0, 1, 5, 4, 2), self.storage)


def _mfma(
    storage: DType, operand: str, tile: int, suffix: str, steps: int = 1
) -> MatrixInstruction:
    intrinsic = f"llvm.amdgcn.mfma.f32.{tile}x{tile}x{suffix}"
    return MatrixInstruction(intrinsic, storage, operand, 64, tile, 4, steps)


def _wmma(storage: DType, operand: str, name: str, replicated: bool) -> MatrixInstruction:
    intrinsic = f"llvm.amdgcn.wmma.f32.16x16x16.{name}"
    return MatrixInstruction(intrinsic, storage, operand, 32, 16, 8, 1, replicated)


_MFMA = (
    _mfma("float16", "float16", 16, "16f16"),
    _mfma("float16", "float16", 32, "8f16"),
    _mfma("float32", "float32", 16, "4f32", steps=4),
    _mfma("float32", "float32", 32, "2f32", steps=4),
)
_MFMA_BF16 = (
    _mfma("bfloat16", "int16", 16, "16bf16.1k"),
    _mfma("bfloat16", "int16", 32, "8bf16.1k"),
)


def _wmmas(replicated: bool) -> tuple[MatrixInstruction, ...]:
    return (
        _wmma("float16", "float16", "f16", replicated),
        _wmma("bfloat16", "int16", "bf16", replicated),
    )


INSTRUCTIONS: dict[str, tuple[MatrixInstruction, ...]] = {
    "gfx908": _MFMA,
    **{name: _MFMA + _MFMA_BF16 for name in ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")},
    **{name: _wmmas(True) for name in ("gfx1100", "gfx1101", "gfx1102", "gfx1103")},
    **{name: _wmmas(True) for name in ("gfx1150", "gfx1151", "gfx1152", "gfx1153")},
    **{name: _wmmas(False) for name in ("gfx1200", "gfx1201")},
}
"""By LLVM processor name.  gfx908 lacks the bfloat16 instructions of this shape."""


def instructions(processor: str, storage: DType) -> tuple[MatrixInstruction, ...]:
    """What ``processor`` has for ``storage``, the smallest tile first; none for one without."""
    return tuple(one for one in INSTRUCTIONS.get(processor, ()) if one.storage == storage)
