"""HIP kernels that compute a convolution as a matrix product.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997, in ``src/solver/conv``:
``conv_hip_implicit_gemm_nonxdlops_common.cpp``, ``.._fwd_v4r4.cpp``, ``.._wrw_v4r4.cpp`` and
``.._bwd_v1r1.cpp``.  Two of the source's tests never refuse anything that the others leave, and are
not repeated: the largest tiles take 36 KiB (V4R1) and 32 KiB (the others) of the 64 KiB of LDS,
and where clusters fit, every thread has something to copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import gcd

from .problem import ConvProblem
from .rules import Rule
from .solver import Condition, Ranges, Signature, Solver

_16_TO_128 = (16, 32, 64, 128)
MIN_THREADS, MAX_THREADS = 64, 512
"""Threads of a work group of V4R1."""

REPEAT = 2
"""Tiles of a thread along each axis: the inline assembly knows two."""


ISAS = ("gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx94", "gfx103")
"""The instruction sets that the kernels support."""

MAX_TENSOR_BYTES = 1 << 31
"""Memory offsets are signed 32-bit words."""


def _indexable(p: ConvProblem) -> Condition:
    pixels = (p.c * p.n * p.h * p.w, p.k * p.n * p.ho * p.wo, p.c * p.k // p.groups * p.y * p.x)
    size = max(pixels) * p.element_bytes
    return Condition(size < MAX_TENSOR_BYTES, "tensors below 2 GiB", size)


class V4R1Fwd(Solver):
    """Solver ``ConvHipImplicitGemmV4R1Fwd``: rows K, columns B (batch and pixels), sums E."""

    fields = (
        "BPerBlock",
        "KPerBlock",
        "EPerBlock",
        "GemmNRepeat",
        "GemmMPerThreadSubC",
        "GemmNPerThreadSubC",
        "GemmMLevel0Cluster",
        "GemmNLevel0Cluster",
        "GemmMLevel1Cluster",
        "GemmNLevel1Cluster",
        "InBlockCopyClusterLengths_E",
        "InBlockCopyClusterLengths_N1",
        "InBlockCopyClusterLengths_B",
        "InBlockCopyClusterLengths_N2",
        "WeiBlockCopyClusterLengths_E",
        "WeiBlockCopyClusterLengths_K",
    )
    full: Ranges = (
        (8, 16),
        _16_TO_128,
        (4, 8, 16),
        (REPEAT,),
        *(((2, 4),) * 2),
        *(((1, 2, 4),) * 4),
        (4, 8, 16),
        (1, 2),
        (8, 16),
        (1, 2, 4),
        (1, 2, 4),
        _16_TO_128,
    )
    searched: Ranges = (
        (16,),
        *full[1:6],
        *(((2, 4), (4,)) * 2),
        full[10],
        (1, 2),
        (16,),
        (1, 2),
        *full[14:],
    )
    directions = "F"
    dilated = True
    grouped = True
    isas = ISAS

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield _indexable(p)
        c, k, columns = p.c // p.groups, p.k // p.groups, p.n * p.ho * p.wo
        batches = p.n % 8 == 0 and columns % 32 == 0 and columns * k % 1024 == 0
        yield Condition(batches, "images in eights, their pixels in 32s", (p.n, p.ho, p.wo))
        rows = c % epack(p) == 0 and c * p.y * p.x % (8 * epack(p)) == 0 and k % 16 == 0
        yield Condition(rows, "output channels in sixteens and sums in eights", (c, k))

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        sums = p.c // p.groups // epack(p) * p.y * p.x
        # every divisor is a power of two
        return (
            *(p.half, gcd(p.k // p.groups, 128), gcd(sums, 16)),
            *(gcd(p.n, 128), gcd(p.ho * p.wo, 16)),
        )

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """See ``Solver.rules``."""
        sums = p.c // p.groups // epack(p) * p.y * p.x
        in_e, in_n1, in_b, in_n2, wei_e, wei_k = self.fields[10:]
        clusters = self.fields[6:10]

        def columns(block: int, per_thread: int) -> bool:
            batch, rest = divmod(p.n, REPEAT * per_thread)
            return rest == 0 and batch * p.ho * p.wo % block == 0

        def rows(block: int) -> bool:
            return p.k % block == 0 and p.k // block % p.groups == 0

        def threads(m0: int, n0: int, m1: int, n1: int) -> bool:
            return MIN_THREADS <= m0 * n0 * m1 * n1 <= MAX_THREADS

        def copies_inputs(m0: int, n0: int, m1: int, n1: int, *lengths: int) -> bool:
            e, n_1, b, n_2 = lengths
            return m0 * n0 * m1 * n1 == e * n_1 * b * n_2

        def copies_weights(m0: int, n0: int, m1: int, n1: int, e: int, k: int) -> bool:
            return m0 * n0 * m1 * n1 == e * k

        return [
            Rule("rows", ("KPerBlock",), rows),
            Rule("sums", ("EPerBlock",), lambda block: sums % block == 0),
            Rule("columns", ("BPerBlock", "GemmNPerThreadSubC"), columns),
            Rule("square", self.fields[4:6], lambda m, n: not p.half or m == n),
            Rule(
                "repeat of rows",
                ("KPerBlock", "GemmMPerThreadSubC", clusters[0], clusters[2]),
                lambda block, each, m0, m1: block == REPEAT * each * m0 * m1,
            ),
            Rule(
                "repeat of columns",
                ("BPerBlock", clusters[1], clusters[3]),
                lambda block, n0, n1: block == n0 * n1,
            ),
            Rule("threads", clusters, threads),
            Rule("input sums", ("EPerBlock", in_e), lambda block, e: block == e),
            Rule("input columns", ("BPerBlock", in_b), lambda block, b: block == b),
            Rule("input lanes", ("GemmNPerThreadSubC", in_n2), lambda each, n2: each % n2 == 0),
            Rule("input copy", (*clusters, in_e, in_n1, in_b, in_n2), copies_inputs),
            Rule("weight sums", ("EPerBlock", wei_e), lambda block, e: block % e == 0),
            Rule("weight rows", ("KPerBlock", wei_k), lambda block, k: block % k == 0),
            Rule("weight copy", (*clusters, wei_e, wei_k), copies_weights),
        ]


def epack(p: ConvProblem) -> int:
    """Elements of the sum that are packed: two halves."""
    return 2 if p.half else 1


class _BlockedGemm(Solver):
    """A matrix product with fixed clusters of threads; six fields, 324 tuples."""

    fields = (
        "BlockSize",
        "GemmMPerBlock",
        "GemmNPerBlock",
        "GemmKPerBlock",
        "GemmMPerThread",
        "GemmNPerThread",
    )
    full: Ranges = ((64, 128, 256), (32, 64, 128), (32, 64, 128), (4, 8, 16), (2, 4), (2, 4))
    searched: Ranges = full
    dilated = True
    isas = ISAS
    #: threads along rows and along columns, by block size
    CLUSTERS = {64: (8, 8), 128: (16, 8), 256: (16, 16)}

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield _indexable(p)
        rows, columns, sums = gemm = self.gemm(p)
        fits = rows % 32 == columns % 32 == sums % 4 == 0
        yield Condition(fits, "rows and columns in 32s and sums in fours", gemm)

    @abstractmethod
    def gemm(self, p: ConvProblem) -> tuple[int, int, int]:
        """Rows, columns and sums of the matrix product."""

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        rows, columns, sums = self.gemm(p)
        return (gcd(rows, 128), gcd(columns, 128), gcd(sums, 16))

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """See ``Solver.rules``."""
        rows, columns, sums = self.gemm(p)
        _, m, n, k, m_thread, n_thread = self.fields

        def cluster(axis: int, size: int, block: int, each: int) -> bool:
            return block == REPEAT * each * self.CLUSTERS[size][axis]

        return [
            Rule("rows", (m,), lambda block: rows % block == 0),
            Rule("columns", (n,), lambda block: columns % block == 0),
            Rule("sums", (k,), lambda block: sums % block == 0),
            Rule("clusters of rows", ("BlockSize", m, m_thread), lambda *f: cluster(0, *f)),
            Rule("clusters of columns", ("BlockSize", n, n_thread), lambda *f: cluster(1, *f)),
        ]


class V4R4Fwd(_BlockedGemm):
    """Solver ``ConvHipImplicitGemmV4R4Fwd``."""

    directions = "F"
    dtypes = ("FP32",)

    def gemm(self, p: ConvProblem) -> tuple[int, int, int]:
        """See ``_BlockedGemm.gemm``."""
        return p.k, p.n * p.ho * p.wo, p.c * p.y * p.x


class V4R4WrW(_BlockedGemm):
    """Solver ``ConvHipImplicitGemmV4R4WrW``: the key's input is dy, its output dx."""

    directions = "W"
    dtypes = ("FP32",)

    def gemm(self, p: ConvProblem) -> tuple[int, int, int]:
        """See ``_BlockedGemm.gemm``."""
        return p.c, p.k * p.y * p.x, p.n * p.h * p.w


class BwdDataV1R1(_BlockedGemm):
    """Solver ``ConvHipImplicitGemmBwdDataV1R1``: the key's input is dy, its output dx."""

    directions = "B"
    dtypes = ("FP32", "FP16", "BF16", "BFP16")

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        yield Condition(p.c % epack(p) == 0, f"input channels in {epack(p)}s", p.c)

    def gemm(self, p: ConvProblem) -> tuple[int, int, int]:
        """See ``_BlockedGemm.gemm``."""
        return p.k * p.y * p.x, p.n * p.h * p.w, p.c // epack(p)
