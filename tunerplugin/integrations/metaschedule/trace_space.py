"""A MetaSchedule design space as a ``Space``: knobs are the samples of its trace.

An n-way perfect tile becomes n knobs, a categorical sample one, a compute location one.  Factors
bound to GPU threads are decided first, since the tightest limits hang on them; then each tile from
its innermost factor outwards, so that what is forced in the end is the outermost, which no limit
concerns; then choices, then compute locations in trace order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import SpaceError
from ...space import Knob, Prefix, Space, Value, Word
from ...space.tiles import Tile
from ..compat import ScheduleError, Trace, new_schedule, plain
from .describe import block_family
from .descriptors import describe_tiling
from .program import Block
from .trace import ChoiceSample, LocationSample, Ref, TileSample, read_trace

#: changes when the order or meaning of knobs changes: old records then no longer apply
FORMAT = 1
#: larger than any loop index: TVM answers with the innermost location there is
_BEYOND_EVERY_LOOP = 1 << 20
#: the location that means "inline the block", the least of all
_INLINE = -2


_DECISION = re.compile(r", decision=.*\)$")


@dataclass(frozen=True)
class _Slot:
    """One knob: the sample it belongs to and, for a tile, the level of the factor."""

    sample: TileSample | ChoiceSample | LocationSample
    level: int = 0


class TraceSpace(Space):
    """The space of one design-space trace of ``mod`` (one sketch)."""

    def __init__(self, mod: Any, trace: Trace, blocks: Sequence[Block]) -> None:
        self._mod = mod
        self.trace = trace.simplified(True)
        self._blocks = {block.name: block for block in blocks}
        self.facts = read_trace(self.trace, blocks)
        self._slots = self._order()
        self.positions: dict[Ref, int] = {
            (slot.sample.instruction, slot.level): i for i, slot in enumerate(self._slots)
        }
        self.tiles = tuple(
            Tile(
                tile.extent,
                tuple(self.positions[tile.instruction, level] for level in range(tile.ways)),
                tile.max_innermost,
            )
            for tile in self.facts.tiles
        )
        self._tile_of = {p: tile for tile in self.tiles for p in tile.positions}
        self._knobs: dict[tuple[int, Any], Knob] = {}
        self.version = _fingerprint(self.trace)

    def _order(self) -> list[_Slot]:
        bound = {
            ref
            for binding in self.facts.bindings
            if binding.axis.startswith("threadIdx") and binding.extent is not None
            for ref in binding.extent.refs
        }
        threads: list[_Slot] = []
        rest: list[_Slot] = []
        for tile in self.facts.tiles:
            for level in reversed(range(tile.ways)):
                # a thread factor that is outermost stays last: the last one is forced
                first = (tile.instruction, level) in bound and level > 0
                (threads if first else rest).append(_Slot(tile, level))
        others: list[ChoiceSample | LocationSample] = [*self.facts.choices, *self.facts.locations]
        return threads + rest + [_Slot(sample) for sample in others]

    def knob(self, prefix: Prefix) -> Knob | None:
        """See ``Space.knob``."""
        position = len(prefix)
        if position >= len(self._slots):
            return None
        slot = self._slots[position]
        key: Any = None
        if isinstance(slot.sample, TileSample):
            tile = self._tile_of[position]
            key = (tile.remaining(prefix), sum(p > position for p in tile.positions))
        elif isinstance(slot.sample, LocationSample):
            key = self._location_prefix(prefix)
        if (position, key) not in self._knobs:
            self._knobs[position, key] = self._make_knob(slot, prefix)
        return self._knobs[position, key]

    def _make_knob(self, slot: _Slot, prefix: Prefix) -> Knob:
        sample, level = slot.sample, slot.level
        if isinstance(sample, TileSample):
            tile = self._tile_of[len(prefix)]
            return Knob(
                f"tile{sample.instruction}.{level}",
                (
                    ("kind", "tile"),
                    ("axis", sample.kind),
                    ("axis.index", sample.axis[1] if sample.axis else -1),
                    ("level", level),
                    ("level.from.inside", sample.ways - 1 - level),
                    ("ways", sample.ways),
                    ("extent", sample.extent),
                    ("remaining", tile.remaining(prefix)),
                ),
                tile.domain(prefix),
            )
        if isinstance(sample, ChoiceSample):
            words: tuple[Word, ...] = (("kind", "choice"), ("role", sample.role))
            return Knob(f"{sample.role}{sample.instruction}", words, sample.values)
        words = (("kind", "location"), ("block", block_family(sample.block)))
        domain = self._locations(sample, prefix)
        return Knob(f"location{sample.instruction}", words, domain)

    def _location_prefix(self, prefix: Prefix) -> tuple[Value, ...]:
        """The locations already chosen: what the next one's domain depends on."""
        chosen = zip(self._slots, prefix, strict=False)
        return tuple(v for slot, v in chosen if isinstance(slot.sample, LocationSample))

    def _locations(self, sample: LocationSample, prefix: Prefix) -> tuple[int, ...]:
        """Every location that TVM accepts here, by asking it from the innermost outwards.

        TVM answers a location that does not exist with the next one further out; where there is
        none (asking for -2 where a block cannot be inlined), with -1 again.
        """
        chosen = self._location_prefix(prefix)
        found: set[int] = set()
        wanted = _BEYOND_EVERY_LOOP
        while wanted >= _INLINE:
            answer = self._ask_location(sample, chosen, wanted)
            if answer is None or answer in found:
                break
            found.add(answer)
            wanted = answer - 1
        return tuple(sorted(found)) or (int(plain(self._default(sample))),)

    def _ask_location(
        self, sample: LocationSample, chosen: Sequence[Value], wanted: int
    ) -> int | None:
        """The location that TVM makes of ``wanted``; ``None`` if the trace does not apply."""
        decisions = dict(self.trace.decisions)
        for location, value in zip(self.facts.locations, chosen, strict=False):
            decisions[self.trace.insts[location.instruction]] = value
        decisions[self.trace.insts[sample.instruction]] = wanted
        partial = Trace(self.trace.insts[: sample.instruction + 1], decisions)
        schedule = new_schedule(self._mod)
        try:
            partial.apply_to_schedule(schedule, remove_postproc=True)
        except (ScheduleError, RuntimeError, ValueError):
            return None
        return int(plain(schedule.trace.decisions[schedule.trace.insts[-1]]))

    def _default(self, sample: TileSample | ChoiceSample | LocationSample) -> Any:
        return self.trace.decisions[self.trace.insts[sample.instruction]]

    def to_trace(self, values: Prefix) -> Trace:
        """The trace with these decisions."""
        if len(values) != len(self._slots):
            raise SpaceError(f"expected {len(self._slots)} values, got {len(values)}")
        return self.with_factors(
            {
                tile.instruction: [
                    int(values[self.positions[tile.instruction, level]])
                    for level in range(tile.ways)
                ]
                for tile in self.facts.tiles
            },
            {
                slot.sample.instruction: _decision(slot.sample, value)
                for slot, value in zip(self._slots, values, strict=True)
                if not isinstance(slot.sample, TileSample)
            },
        )

    def with_factors(
        self, factors: dict[int, list[int]], others: dict[int, int] | None = None
    ) -> Trace:
        """The trace with some decisions replaced, by index of the sampling instruction."""
        decisions = dict(self.trace.decisions)
        for instruction, decision in {**factors, **(others or {})}.items():
            decisions[self.trace.insts[instruction]] = decision
        return Trace(self.trace.insts, decisions)

    def from_trace(self, trace: Trace) -> Prefix | None:
        """The values that a trace stands for; ``None`` if it is of another design space."""
        trace = trace.simplified(True)
        if _fingerprint(trace) != self.version:
            return None
        values: list[Value] = []
        for slot in self._slots:
            inst = trace.insts[slot.sample.instruction]
            decision = plain(trace.decisions[inst])
            if isinstance(slot.sample, TileSample):
                values.append(int(decision[slot.level]))
            elif isinstance(slot.sample, ChoiceSample):
                values.append(slot.sample.values[int(decision)])
            else:
                values.append(int(decision))
        return tuple(values)

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """See ``Space.describe``."""
        return describe_tiling(self.facts, self._blocks, self.positions, values)


def _fingerprint(trace: Trace) -> str:
    """What a trace does, apart from its decisions (TVM names variables in order of appearance)."""
    lines = [_DECISION.sub(")", str(line)) for line in trace.as_python()]
    return hashlib.sha256("\n".join([str(FORMAT), *lines]).encode()).hexdigest()[:16]


def _decision(sample: ChoiceSample | LocationSample, value: Value) -> int:
    if isinstance(sample, ChoiceSample):
        return sample.values.index(int(value))
    return int(value)
