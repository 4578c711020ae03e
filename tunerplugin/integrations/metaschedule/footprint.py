"""How much shared memory a tiling needs, as a formula fitted to TVM's own answer.

TVM computes buffer shapes by region analysis while lowering.  Instead of repeating that analysis,
the formula is found by asking: lower the trace with every axis as far outside as TVM accepts, then
with one axis at a time moved inside.  Where a dimension grows evenly, as with the affine accesses
of matrix products and convolutions, two more lowerings say by how much; where it does not (group
convolutions grow by a whole group at a time), every extent of that axis is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from ...space.constraints import Dimension, Footprint, Growth, Term
from ...space.tiles import divisors
from ..compat import SBlock, StmtSimplify, s_transform
from .program import kernels, statements
from .trace import Ref, TileSample

#: index of a sampling instruction -> its factors, outermost first
Factors = dict[int, list[int]]


@dataclass(frozen=True)
class SharedBuffer:
    """A buffer in shared memory of one kernel, as allocated."""

    kernel: int
    name: str
    element_bytes: int
    shape: tuple[int, ...]


def shared_buffers(mod: Any) -> dict[tuple[int, str], SharedBuffer]:
    """The shared-memory buffers of a scheduled module, in the shapes that lowering gives them.

    The passes are those of TVM's ``VerifyGPUCode`` up to where buffers have their final shape.
    """
    passes = [
        s_transform.LowerCrossThreadReduction(),
        s_transform.LowerInitBlock(),
        s_transform.PlanAndUpdateBufferAllocationLocation(),
        s_transform.ConvertBlocksToOpaque(),
        s_transform.LiftThreadBinding(),
        s_transform.ManifestSharedMemoryLocalStage(),
        s_transform.CompactBufferAllocation(),
        StmtSimplify(),
        s_transform.LowerAutoCopy(),
        s_transform.UnifyThreadBinding(),
        s_transform.LowerMatchBuffer(),
        # keeps several versions of what a pipelined loop fills (sketches for sm_80 and later)
        s_transform.InjectSoftwarePipeline(),
    ]
    lowered = tvm.transform.Sequential(passes)(mod)
    found: dict[tuple[int, str], SharedBuffer] = {}
    for func in lowered.functions.values():
        for kernel, nest in enumerate(kernels(func)):
            for stmt in statements(nest):
                for buffer in stmt.alloc_buffers if isinstance(stmt, SBlock) else ():
                    if str(buffer.scope()).startswith("shared"):
                        found[kernel, str(buffer.name)] = _read_buffer(kernel, buffer)
    return found


def _read_buffer(kernel: int, buffer: Any) -> SharedBuffer:
    element_bytes = (int(tvm.DataType(str(buffer.dtype)).bits) + 7) // 8
    return SharedBuffer(
        kernel, str(buffer.name), element_bytes, tuple(int(s) for s in buffer.shape)
    )


Buffers = Mapping[tuple[int, str], SharedBuffer]
_Key = tuple[int, str]


@dataclass(frozen=True)
class FittedMemory:
    """What a fit found: the buffers of every kernel, and the tile extents that lower at all."""

    buffers: dict[int, list[Footprint]]
    allowed: list[tuple[Term, frozenset[int]]]


class FootprintFit:
    """Fits one design space.

    ``probe`` lowers the trace with the given factors and reads its buffers; it returns ``None``
    where TVM refuses (a loop would become dynamic, say).  The *inside* of an axis is the product
    of all its factors but those outside of where the buffer is filled.
    """

    def __init__(
        self,
        tiles: Sequence[TileSample],
        positions: Mapping[Ref, int],
        probe: Callable[[Factors], Buffers | None],
    ) -> None:
        self._tiles = [t for t in tiles if t.extent > 1]
        self._positions = positions
        self._probe = probe
        self._full: Factors = {t.instruction: _inside(t, t.extent) for t in tiles}
        self._least: Factors = {t.instruction: _inside(t, 1) for t in tiles}
        self._starts = {t.instruction: 1 for t in tiles}

    def fit(self) -> FittedMemory:
        """See ``FittedMemory``; both parts are empty for spaces without shared memory."""
        if not self._probe(self._full):
            return FittedMemory({}, [])
        allowed = self._find_allowed()
        base = self._probe(self._least)
        if not base:
            return FittedMemory({}, [])
        growths: dict[tuple[_Key, int], list[Growth]] = {}
        terms: dict[int, Term] = {}
        for tile in self._tiles:
            reached = self._raise_each_level(tile)
            levels = [lv for lv, buffers in reached.items() if _shapes(buffers) != _shapes(base)]
            inside = levels or list(range(1, tile.ways))
            term = Term(frozenset(self._positions[tile.instruction, lv] for lv in inside))
            terms[tile.instruction] = term
            if levels:
                self._grow(tile, term, base, reached[max(levels)], growths)
        result: dict[int, list[Footprint]] = {}
        for key, buffer in base.items():
            dimensions = tuple(
                _dimension(size, growths.get((key, d), []), self._tiles_by_term(terms))
                for d, size in enumerate(buffer.shape)
            )
            footprint = Footprint(buffer.element_bytes, dimensions)
            result.setdefault(buffer.kernel, []).append(footprint)
        return FittedMemory(result, [(terms[i], values) for i, values in allowed.items()])

    def _tiles_by_term(self, terms: Mapping[int, Term]) -> dict[Term, int]:
        return {terms[t.instruction]: t.extent for t in self._tiles}

    def _find_allowed(self) -> dict[int, frozenset[int]]:
        """Axes with extents that TVM refuses: the extents that it accepts.

        Only axes that refuse to be wholly outside are looked at closely.
        """
        allowed: dict[int, frozenset[int]] = {}
        for tile in self._tiles:
            if self._probe({**self._full, tile.instruction: _inside(tile, 1)}):
                continue
            good = [
                extent
                for extent in divisors(tile.extent)
                if self._probe({**self._full, tile.instruction: _inside(tile, extent)})
            ]
            allowed[tile.instruction] = frozenset(good)
            self._starts[tile.instruction] = good[0]
            self._least[tile.instruction] = _inside(tile, good[0])
        return allowed

    def _raise_each_level(self, tile: TileSample) -> dict[int, Buffers]:
        """The buffers with the axis raised to its full extent at one level, level by level."""
        reached: dict[int, Buffers] = {}
        start = self._starts[tile.instruction]
        for level in range(1, tile.ways):
            factors = _inside(tile, start)
            factors[0] = 1
            factors[level] *= tile.extent // start
            buffers = self._probe({**self._least, tile.instruction: factors})
            if buffers:
                reached[level] = buffers
        return reached

    def _grow(
        self,
        tile: TileSample,
        term: Term,
        base: Buffers,
        full: Buffers,
        growths: dict[tuple[_Key, int], list[Growth]],
    ) -> None:
        """Add this axis' growth of every dimension: linear if a middle extent agrees."""
        start = self._starts[tile.instruction]
        between = [e for e in divisors(tile.extent) if start < e < tile.extent]
        middle = self._at(tile, between[0]) if between else None
        for key, d, grown in _changes(base, full):
            slope, uneven = divmod(grown, tile.extent - start)
            linear = not uneven
            if linear and middle and key in middle:
                step = middle[key].shape[d] - base[key].shape[d]
                linear = step == slope * (between[0] - start)
            growth = Growth(term, start, slope)
            if not linear:
                growth = Growth(term, start, table=self._table(tile, key, d, base))
            growths.setdefault((key, d), []).append(growth)

    def _at(self, tile: TileSample, extent: int) -> Buffers | None:
        return self._probe({**self._least, tile.instruction: _inside(tile, extent)})

    def _table(
        self, tile: TileSample, key: _Key, dimension: int, base: Buffers
    ) -> tuple[tuple[int, int], ...]:
        table: list[tuple[int, int]] = []
        for extent in divisors(tile.extent):
            buffers = self._at(tile, extent)
            if buffers and key in buffers:
                grown = buffers[key].shape[dimension] - base[key].shape[dimension]
                # never falling, as look-ahead relies on: the least of what follows is a bound
                while table and table[-1][1] > grown:
                    table.pop()
                table.append((extent, grown))
        return tuple(table)


def _inside(tile: TileSample, extent: int) -> list[int]:
    """Factors that put ``extent`` innermost and the rest outermost."""
    return [tile.extent // extent] + [1] * (tile.ways - 2) + [extent]


def _shapes(buffers: Buffers) -> dict[_Key, tuple[int, ...]]:
    return {key: buffer.shape for key, buffer in buffers.items()}


def _changes(base: Buffers, other: Buffers) -> Iterator[tuple[_Key, int, int]]:
    for key, buffer in base.items():
        if key in other:
            for d, (old, new) in enumerate(zip(buffer.shape, other[key].shape, strict=True)):
                if new > old:
                    yield key, d, new - old


def _dimension(base: int, growths: list[Growth], extents: Mapping[Term, int]) -> Dimension:
    most = base + sum(growth.at(extents[growth.term]) for growth in growths)
    return Dimension(base, tuple(growths), most)
