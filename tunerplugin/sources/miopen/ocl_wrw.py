"""The OpenCL kernel for backward weights.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997:
``src/solver/conv/conv_ocl_dir2D_bwdWrW_2.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator

from .limits import LDS_BYTES, WAVE_SIZE, ceil_div
from .problem import ConvProblem
from .rules import Rule
from .solver import Condition, Ranges, Signature, Solver

MAX_WORKSPACE_BYTES = 6 << 30
"""Beyond 6 GiB, one allocation fails on some devices (ROCm/MIOpen issue 1185)."""

_COUNTS = (1, 2, 3, 4, 8)
_SEARCHED_COUNTS = (1, 3, 8)


class OclBwdWrW2(Solver):
    """Solver ``ConvOclBwdWrW2<n>``, where n is the number of images that a work group loops over.

    MIOpen also asks the device for its largest allocation; no database knows that.
    """

    fields = (
        "n_waves",
        "read_size",
        "n_out_channels_per_tile",
        "n_out_channels_tiles",
        "n_out_rows_in_lcl",
    )
    full: Ranges = (_COUNTS, tuple(range(6, 13)), _COUNTS, _COUNTS, tuple(range(2, 12)))
    searched: Ranges = (
        _SEARCHED_COUNTS,
        full[1],
        _SEARCHED_COUNTS,
        _SEARCHED_COUNTS,
        (2, 3, 5, 7, 9, 11),
    )
    directions = "W"
    grouped = True

    def __init__(self, name: str, batch_loops: int) -> None:
        super().__init__(name)
        self._batch_loops = batch_loops

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        filter_, loops = (p.y, p.x), self._batch_loops
        tuned = p.groups > 1 or filter_ not in ((1, 1), (3, 3))
        yield Condition(tuned, "groups, or a filter other than 1x1 and 3x3", filter_)
        overlap = p.y - p.stride_h
        yield Condition(p.pad_h <= overlap, f"a vertical padding of at most {overlap}", p.pad_h)
        yield Condition(p.n >= loops, f"a batch of at least {loops}", p.n)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        return (
            *(p.w, p.wo, p.pad_w, p.y, p.x, p.stride_h, p.stride_w),
            *(min(p.c // p.groups, 64), p.groups == 1, p.dtype, self._allocates(p)),
        )

    def _allocates(self, p: ConvProblem) -> bool:
        """Whether the partial sums of every work group can be allocated."""
        blocks = ceil_div(p.n, self._batch_loops)
        partial_sums = p.k // p.groups * p.y * p.x * p.c * blocks * p.element_bytes
        return blocks == 1 or partial_sums <= MAX_WORKSPACE_BYTES

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """See ``Solver.rules``."""
        kernel = _Kernel(p)
        per_group = p.c // p.groups
        return [
            Rule("workspace", (), lambda: self._allocates(p)),
            Rule("waves", ("n_waves",), lambda waves: kernel.blocks(waves) > 0),
            Rule("read size", ("read_size",), lambda read: read <= p.w),
            Rule("groups", ("n_out_channels_tiles",), lambda tiles: p.groups == 1 or tiles == 1),
            Rule(
                "channels",
                ("n_out_channels_per_tile", "n_out_channels_tiles"),
                lambda per_tile, tiles: per_tile * tiles <= per_group,
                falling=True,
            ),
            Rule("rows", ("n_out_rows_in_lcl",), lambda rows: rows >= p.y),
            Rule(
                "lds",
                ("n_waves", "read_size", "n_out_channels_tiles", "n_out_rows_in_lcl"),
                lambda *f: kernel.lds_bytes(*f) <= LDS_BYTES,
            ),
        ]


class _Kernel:
    """Local memory of the kernel.  Its input image is the problem's output (dx) and vice versa."""

    def __init__(self, p: ConvProblem) -> None:
        self._p = p
        #: filter columns of a work item; those of wide, even filters are shared by two
        self._columns = p.x if p.x <= 7 or p.x % 2 else p.x // 2
        self._items = p.y * ceil_div(p.x, self._columns)

    def blocks(self, waves: int) -> int:
        """Filters that a work group can hold at once."""
        return WAVE_SIZE * waves // self._items

    def lds_bytes(self, waves: int, read: int, tiles: int, rows: int) -> int:
        """Bytes for the input rows and the output rows, or for the sum over the work group."""
        p = self._p
        blocks = self.blocks(waves)
        if not blocks:
            return 0
        loops = ceil_div(p.w, blocks)
        held = min(blocks, ceil_div(p.w, loops))
        sums = self._items * self._columns * held * tiles
        outputs = rows * max(loops * held, ceil_div(p.w, read) * read) * tiles
        return max(self._inputs(read, rows) + outputs, sums) * p.element_bytes

    def _inputs(self, read: int, rows: int) -> int:
        """Elements of the input rows with their padding."""
        p = self._p
        padded = p.wo + 2 * p.pad_w
        scanned = p.pad_w + ceil_div(p.wo, read) * read
        needed = max(padded, scanned, p.x + (p.w - 1) * p.stride_w)
        right = needed - padded
        width = p.pad_w + p.wo + right
        if p.dtype == "FP32":  # an odd width spreads rows over the banks
            width = width // 2 * 2 + 1
        height = (rows - 1) * p.stride_h + p.y
        return width * height + p.pad_w + right
