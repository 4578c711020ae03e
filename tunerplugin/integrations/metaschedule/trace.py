"""Reading a MetaSchedule trace: what it samples, what its samples are for, what it binds.

A design space of MetaSchedule is a trace: a list of schedule instructions, some of which sample.
This file turns one into plain data.  A sampled number is named by a ``Ref``: the factor of a tile
or the value of a choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compat import Trace, plain
from .program import Block

#: (index of the sampling instruction in the trace, level); a choice has level 0
Ref = tuple[int, int]


@dataclass(frozen=True)
class Product:
    """``scale`` times the sampled numbers at ``refs``: a loop extent known before sampling."""

    refs: frozenset[Ref]
    scale: int = 1

    def times(self, other: Product) -> Product | None:
        """The product, or ``None`` when a number would enter twice."""
        if self.refs & other.refs:
            return None
        return Product(self.refs | other.refs, self.scale * other.scale)


@dataclass(frozen=True)
class TileSample:
    """``SamplePerfectTile``: an axis of ``extent`` in ``ways`` factors, outermost first.

    ``axis`` is the (block name, iteration index) that it splits, when that is plain to see.
    """

    instruction: int
    extent: int
    ways: int
    max_innermost: int
    axis: tuple[str, int] | None
    kind: str


@dataclass(frozen=True)
class ChoiceSample:
    """``SampleCategorical``: one of ``candidates``; ``role`` says what the number is for."""

    instruction: int
    candidates: tuple[int, ...]
    role: str

    @property
    def values(self) -> tuple[int, ...]:
        """The knob's values: the candidates where they are distinct, else their indices."""
        if len(set(self.candidates)) == len(self.candidates):
            return self.candidates
        return tuple(range(len(self.candidates)))


@dataclass(frozen=True)
class LocationSample:
    """``SampleComputeLocation``: where a block is computed (-1 root, -2 inline, else a loop)."""

    instruction: int
    block: str


@dataclass(frozen=True)
class Binding:
    """A loop bound to a GPU thread axis; ``extent`` is ``None`` when not known in advance."""

    instruction: int
    axis: str
    extent: Product | None


@dataclass
class TraceFacts:
    """Everything that decoding needs to know about one design space."""

    tiles: list[TileSample] = field(default_factory=list)
    choices: list[ChoiceSample] = field(default_factory=list)
    locations: list[LocationSample] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    #: extents of loops that TVM will pipeline
    pipelined: list[Product] = field(default_factory=list)
    #: allowed range of the product of a block's thread extents, as multi-level tiling annotates it
    thread_range: tuple[int, int] | None = None
    #: order of the tile levels of the main block, outermost first, e.g. ``SSRSRS``
    tiling_structure: str = ""
    main_block: str = ""


def read_trace(trace: Trace, blocks: Sequence[Block]) -> TraceFacts:
    """Read a design space's trace (simplified, without postprocessing instructions)."""
    return _Reader(blocks).read(trace)


class _Reader:
    """One pass over the instructions, keeping what each random variable stands for.

    Random variables are told apart by identity: they hash by address and the trace keeps them
    alive.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = {block.name: block for block in blocks}
        self._facts = TraceFacts()
        self._block_names: dict[int, str] = {}
        self._loop_axes: dict[int, tuple[str, int]] = {}
        self._numbers: dict[int, Product] = {}
        self._extents: dict[int, Product] = {}
        self._thread_bounds: dict[str, int] = {}

    def read(self, trace: Trace) -> TraceFacts:
        uses = _roles(trace)
        for index, inst in enumerate(trace.insts):
            reader = getattr(self, f"_read_{inst.kind.name}", None)
            if reader is not None:
                reader(index, inst, trace, uses)
        low, high = (self._thread_bounds.get(key) for key in ("low", "high"))
        if low is not None and high is not None:
            self._facts.thread_range = (low, high)
        return self._facts

    def _read_GetSBlock(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        self._block_names[hash(inst.outputs[0])] = str(inst.attrs[0])

    _read_GetBlock = _read_GetSBlock  # its name in Relay-era TVM

    def _read_GetLoops(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        name = self._block_names.get(hash(inst.inputs[0]), "")
        block = self._blocks.get(name)
        if block is None or len(block.extents) != len(inst.outputs):
            return
        for i, loop in enumerate(inst.outputs):
            self._loop_axes[hash(loop)] = (name, i)
            self._extents[hash(loop)] = Product(frozenset(), block.extents[i])

    def _read_SamplePerfectTile(
        self, index: int, inst: Any, trace: Trace, uses: dict[int, str]
    ) -> None:
        ways, bound = (int(plain(a)) for a in inst.attrs)
        extent = math.prod(int(plain(f)) for f in trace.decisions[inst])
        axis = self._loop_axes.get(hash(inst.inputs[0]))
        kind = "unknown"
        if axis is not None and self._blocks[axis[0]].extents[axis[1]] == extent:
            kind = {"S": "spatial", "R": "reduction"}.get(
                self._blocks[axis[0]].kinds[axis[1]], "other"
            )
        else:
            axis = None
        self._facts.tiles.append(TileSample(index, extent, ways, max(bound, 0), axis, kind))
        for level, output in enumerate(inst.outputs):
            self._numbers[hash(output)] = Product(frozenset({(index, level)}))

    def _read_SampleCategorical(
        self, index: int, inst: Any, trace: Trace, uses: dict[int, str]
    ) -> None:
        candidates = tuple(int(plain(c)) for c in plain(inst.attrs[0]))
        role = uses.get(hash(inst.outputs[0]), "choice")
        self._facts.choices.append(ChoiceSample(index, candidates, role))
        # only then is the knob's value the number itself (else its index), and a possible extent
        if len(set(candidates)) == len(candidates) and min(candidates) > 0:
            self._numbers[hash(inst.outputs[0])] = Product(frozenset({(index, 0)}))

    def _read_SampleComputeLocation(
        self, index: int, inst: Any, trace: Trace, uses: dict[int, str]
    ) -> None:
        name = self._block_names.get(hash(inst.inputs[0]), "derived")
        self._facts.locations.append(LocationSample(index, name))

    def _read_Split(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        for loop, factor in zip(inst.outputs, inst.inputs[1:], strict=True):
            number = None if factor is None else self._number(factor)
            if number is not None:
                self._extents[hash(loop)] = number

    def _number(self, factor: Any) -> Product | None:
        known = self._numbers.get(hash(factor))
        if known is not None:
            return known
        value = plain(factor)
        return Product(frozenset(), value) if isinstance(value, int) else None

    def _read_Fuse(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        fused: Product | None = Product(frozenset())
        for loop in inst.inputs:
            part = self._extents.get(hash(loop))
            fused = fused.times(part) if fused is not None and part is not None else None
        if fused is not None:
            self._extents[hash(inst.outputs[0])] = fused

    def _read_Bind(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        extent = self._extents.get(hash(inst.inputs[0]))
        self._facts.bindings.append(Binding(index, str(plain(inst.attrs[0])), extent))

    def _read_Annotate(self, index: int, inst: Any, trace: Trace, uses: dict[int, str]) -> None:
        key = str(plain(inst.attrs[0]))
        if key == "meta_schedule.tiling_structure":
            self._facts.tiling_structure = str(plain(inst.inputs[1]))
            self._facts.main_block = self._block_names.get(hash(inst.inputs[0]), "")
        elif key == "software_pipeline_stage":
            extent = self._extents.get(hash(inst.inputs[0]))
            if extent is not None:
                self._facts.pipelined.append(extent)
        elif key == "meta_schedule.thread_extent_low_inclusive":
            self._thread_bounds["low"] = int(plain(inst.inputs[1]))
        elif key == "meta_schedule.thread_extent_high_inclusive":
            self._thread_bounds["high"] = int(plain(inst.inputs[1]))


def _roles(trace: Trace) -> dict[int, str]:
    """What each sampled number is used for: an annotation's key, or a thread extent."""
    roles: dict[int, str] = {}
    for inst in trace.insts:
        if inst.kind.name == "Annotate":
            roles[hash(inst.inputs[1])] = str(plain(inst.attrs[0])).removeprefix("meta_schedule.")
        elif inst.kind.name == "Split":
            for factor in inst.inputs[1:]:
                if factor is not None:
                    roles.setdefault(hash(factor), "split_factor")
    return roles
