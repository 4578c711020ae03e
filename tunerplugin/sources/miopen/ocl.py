"""OpenCL kernels for direct convolutions.

Ranges and rules are facts of ROCm/MIOpen (MIT) at 2d1fd997, in ``src/solver/conv``:
``conv_ocl_dir2Dfwd.cpp``, ``.._dir2Dfwd_exhaustive_search.cpp``, ``.._dir2Dfwd1x1.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .limits import LDS_BYTES
from .problem import ConvProblem
from .rules import Rule
from .solver import STRIDES_TO_2, Condition, Ranges, Signature, Solver

LEGACY_FIELDS = (
    "grp_tile1",
    "grp_tile0",
    "in_tile1",
    "in_tile0",
    "out_pix_tile1",
    "out_pix_tile0",
    "n_out_pix_tiles",
    "n_in_data_tiles",
    "n_stacks",
)
"""Vertical before horizontal: rows are 1, columns 0."""

_TILES = (8, 16, 32, 64)
_PIXELS = (1, 2, 4)
MIN_GROUP_TILE = 8
MAX_THREADS = 256
"""Threads of a work group in these kernels."""

MAX_SUMS = 128
"""Sums per thread from which on the search tries no more."""


class OclDirectFwd(Solver):
    """Solver ``ConvOclDirectFwd``.

    MIOpen computes ``grp_tile`` anew from the other tiles, so only tuples in which they agree are
    held; older databases have others.  The source never lets more than one stack share the LDS, so
    ``n_stacks`` is free there.  MIOpen's search skips some more pairs of tiles by what the pair
    before them left behind; that accident is not repeated here.
    """

    fields = LEGACY_FIELDS
    full: Ranges = (_TILES, _TILES, _TILES, _TILES, _PIXELS, _PIXELS, (1, 2, 4, 8), _PIXELS, (1, 2))
    searched: Ranges = full
    directions = "FB"
    strides = STRIDES_TO_2
    grouped = True

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """See ``Solver.conditions``."""
        yield from super().conditions(p)
        filter_, pads = (p.y, p.x), (p.pad_h, p.pad_w)
        square = p.y == p.x and p.y in (3, 5, 7, 9, 11)
        speech = filter_ in ((5, 10), (5, 20)) and p.stride_w == 2 and pads == (0, 0)
        even = filter_ == (4, 4) and p.dtype == "FP16" and pads == (0, 0)
        known = p.groups > 1 or square or speech or even
        yield Condition(known, "a filter of 3x3, 5x5, 7x7, 9x9 or 11x11", filter_)
        yield Condition(p.pad_h == p.pad_w, "equal paddings", pads)
        inside = p.forward or (p.pad_h < p.y and p.pad_w < p.x)
        yield Condition(inside, "paddings smaller than the filter", pads)
        precise = not (p.forward and p.dtype == "FP16" and p.stride_w == 2)
        yield Condition(precise, "a stride of 1 with FP16 forward", p.stride_w)

    def ranges(self, p: ConvProblem, full: bool) -> Ranges:
        """See ``Solver.ranges``: the search leaves out tiles that the output cannot fill."""
        if full:
            return self.full
        rows, columns = _searched_tiles(p.ho), _searched_tiles(p.wo)
        stacks = (1, 2) if p.n > 1 else (1,)
        return (_TILES, _TILES, rows, columns, *self.full[4:8], stacks)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        per_group = (min(p.c // p.groups, 4), min(p.k // p.groups, 8))
        kernel = (p.y, p.x, p.stride_h, p.stride_w, p.forward, p.element_bytes, *per_group)
        if full:
            return kernel
        return (*kernel, min(p.ho, 16), min(p.wo, 33), min(p.k, 8), min(p.c, 4), min(p.n, 2))

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """See ``Solver.rules``."""
        kernel = _DirectKernel(p)
        tiles = ("in_tile1", "in_tile0", "out_pix_tile1", "out_pix_tile0")
        rules = [
            _tiling("rows", "1"),
            _tiling("columns", "0"),
            Rule("threads", tiles, lambda *f: kernel.threads(*f) <= MAX_THREADS),
            Rule(
                "lds",
                (*tiles, "n_out_pix_tiles", "n_in_data_tiles"),
                lambda *f: kernel.lds_bytes(*f) <= LDS_BYTES,
            ),
        ]
        if not full:
            rules += _search_rules(p)
        return rules


def _searched_tiles(extent: int) -> tuple[int, ...]:
    """Input tiles that the search tries for an output extent."""
    if extent >= 16:
        return (16, 32)
    return tuple(tile for tile in _TILES if tile == MIN_GROUP_TILE or tile < 2 * extent)


def _tiling(name: str, axis: str) -> Rule:
    fields = (f"grp_tile{axis}", f"in_tile{axis}", f"out_pix_tile{axis}")
    return Rule(name, fields, lambda group, tile, pixels: group * pixels == tile)


def _search_rules(p: ConvProblem) -> list[Rule]:
    sums = ("out_pix_tile1", "out_pix_tile0", "n_out_pix_tiles", "n_stacks")
    return [
        Rule("outputs", ("n_out_pix_tiles",), lambda n: n <= p.k),
        Rule("inputs", ("n_in_data_tiles",), lambda n: n <= p.c),
        Rule("wide", ("in_tile1", "in_tile0"), lambda rows, cols: p.wo <= 32 or rows <= cols),
        Rule("sums", sums, lambda a, b, c, d: a * b * c * d < MAX_SUMS, falling=True),
    ]


class _DirectKernel:
    """Threads and local memory of the kernel of ``ConvOclDirectFwd``."""

    def __init__(self, p: ConvProblem) -> None:
        self._p = p

    def _pixels(self, given: int, stride: int) -> int:
        """Output pixels of a thread along an axis: backward, a stride takes their place."""
        return stride if not self._p.forward and stride > 1 else given

    def _groups(self, rows: int, cols: int, out1: int, out0: int) -> tuple[int, int, int, int]:
        """Threads and pixels along both axes."""
        out1, out0 = self._pixels(out1, self._p.stride_h), self._pixels(out0, self._p.stride_w)
        return max(MIN_GROUP_TILE, rows // out1), max(MIN_GROUP_TILE, cols // out0), out1, out0

    def threads(self, rows: int, cols: int, out1: int, out0: int) -> int:
        """Threads of a work group."""
        group1, group0, _, _ = self._groups(rows, cols, out1, out0)
        return group1 * group0

    def lds_bytes(self, rows: int, cols: int, out1: int, out0: int, n_out: int, n_in: int) -> int:
        """Local memory for the input tiles and the weights."""
        p = self._p
        group1, group0, out1, out0 = self._groups(rows, cols, out1, out0)
        inputs, outputs = min(p.c // p.groups, n_in), min(p.k // p.groups, n_out)
        height = self._local(group1 * out1, p.y, p.stride_h)
        width = self._local(group0 * out0, p.x, p.stride_w)
        return (width * height + outputs * p.y * p.x) * inputs * p.element_bytes

    def _local(self, tile: int, filter_size: int, stride: int) -> int:
        """Input pixels along an axis that a tile of outputs needs."""
        if self._p.forward:
            return (tile - 1) * stride + filter_size
        return (tile + filter_size - 1 + stride - 1) // stride


class OclDirectFwd1x1(Solver):
    """Solver ``ConvOclDirectFwd1x1``.

    Two languages: FP32 forward with channels in sixteens, and all else.  ``out_pix_tile1`` says
    which.  MIOpen accepts any tuple; the full range is what its search walks and the default tuple,
    which databases hold too.
    """

    fields = LEGACY_FIELDS
    directions = "FB"
    filter_size = (1, 1)
    padding = 0
    isas = ("gfx8", "gfx9")  # wrong results on gfx10 and gfx11: MIOpen disables it there

    def ranges(self, p: ConvProblem, full: bool) -> Ranges:
        """See ``Solver.ranges``."""
        walked = self._walked(p, full)
        if not full:
            return walked
        pairs = zip(walked, default_1x1(p), strict=True)
        return tuple(tuple(sorted({*values, default})) for values, default in pairs)

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """See ``Solver.signature``."""
        return (self._walked(p, full), _first(p), default_1x1(p) if full else ())

    @staticmethod
    def _walked(p: ConvProblem, full: bool) -> Ranges:
        """What the search walks; older ones walked 8 threads, where the kernel has its 64."""
        if not _first(p):
            return _second_language(p, full)
        inputs = (64, 128, 256, 2048)
        groups = (8, 64) if full else (64,)
        return ((1,), groups, (1,), (1,), (1,), (0, 1, 4), (16, 32, 64), inputs, (0,))

    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """See ``Solver.rules``."""
        walked, default = self._walked(p, full), default_1x1(p)
        first = _first(p)

        def legal(*tuple_: int) -> bool:
            if tuple_ == default:
                return True
            inside = all(value in values for value, values in zip(tuple_, walked, strict=True))
            return inside and (first or few_sums(*tuple_[5:7]))

        def few_sums(pixels: int, outputs: int) -> bool:
            return not (outputs == 32 and pixels >= 4) and not (outputs == 64 and pixels >= 2)

        if full:
            return [Rule("search or default", self.fields, legal)]
        return [] if first else [Rule("sums", ("out_pix_tile0", "n_out_pix_tiles"), few_sums)]


def _first(p: ConvProblem) -> bool:
    return p.forward and p.dtype == "FP32" and p.c % 16 == 0 and p.k % 16 == 0


def _second_language(p: ConvProblem, full: bool) -> Ranges:
    """The full range has what older searches walked, and pixels that fit the output's true size:
    a SQLite database leaves it open which of two sizes a stride came from.
    """
    if p.stride_w == 1:
        size = p.h * p.w
        count = 1 if size % 2 else 2 if size % 4 else 3
    else:
        odd = p.wo % 2 or (not p.forward and p.w % 2)
        count = 1 if odd and not full else 2
    divided = [size for size in (32, 64) if full or p.k % size == 0]
    outputs = (4, 8, 16, *divided)
    inputs = (4, 8) if p.c % 8 == 0 else (4,)
    return ((1,), (64, 128, 256), (1,), (1,), (0,), _PIXELS[:count], outputs, inputs, (0,))


@dataclass(frozen=True)
class _DefaultAxis:
    """Default tiles along an axis, by the input's extent and the stride."""

    extent: int
    stride: int

    @property
    def pixels(self) -> int:
        """Output pixels of a thread."""
        return max(self.stride, 1 if self.extent <= 8 else 2)

    @property
    def group(self) -> int:
        """Threads."""
        tile = 8 if self.extent <= 8 else 16 if self.extent <= 16 else 32
        return max(MIN_GROUP_TILE, tile // self.pixels)


def default_1x1(p: ConvProblem) -> tuple[int, ...]:
    """What MIOpen takes for ``ConvOclDirectFwd1x1`` without a record."""
    rows, cols = _DefaultAxis(p.h, p.stride_h), _DefaultAxis(p.w, p.stride_w)
    tiles = (rows.group * rows.pixels, cols.group * cols.pixels)
    if _first(p):
        return (rows.group, cols.group, *tiles, 1, 0, 32, 128, 1)
    if p.pad_w > 0 or p.stride_w > 1:
        pixels = 1 if p.wo % 2 or (not p.forward and p.w % 2) else 2
    else:
        pixels = 1 if p.ho * p.wo % 2 else 2
    return (rows.group, 64, *tiles, 0, pixels, 16, 4, 1)
