"""Constraints that a target puts on a design space, for use while decoding."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ...space import Constraint
from ...space.constraints import (
    AtMost,
    Dimension,
    EqualProducts,
    Footprint,
    Growth,
    MemoryLimit,
    OneOf,
    ProductRange,
    Term,
)
from ..compat import ScheduleError, new_schedule
from .footprint import Factors, FootprintFit, SharedBuffer, shared_buffers
from .limits import HardwareLimits
from .program import Block, has_dynamic_loop, kernels, statements
from .trace import Binding, Product
from .trace_space import TraceSpace

_ANY_EXTENT = 1 << 40
_REFUSALS = (ScheduleError, RuntimeError, ValueError)


def hardware_constraints(
    mod: Any, space: TraceSpace, blocks: dict[str, Block], limits: HardwareLimits
) -> tuple[Constraint, ...]:
    """Every limit of the target that concerns this space."""
    return tuple(_Builder(mod, space, blocks, limits).build())


class _Builder:
    def __init__(
        self, mod: Any, space: TraceSpace, blocks: dict[str, Block], limits: HardwareLimits
    ) -> None:
        self._mod, self._space, self._limits = mod, space, limits
        self._main = blocks.get(space.facts.main_block)
        self._choices = {
            space.positions[choice.instruction, 0]: choice.candidates
            for choice in space.facts.choices
        }

    def build(self) -> list[Constraint]:
        made = self._choice_limits()
        if self._limits.max_threads_per_block is not None:
            made += self._thread_limits()
        if self._limits.max_shared_memory_bytes is not None:
            made += self._memory_limits()
        if self._limits.max_threads_per_block is not None:
            made += self._pipeline_limits()
        return made

    def _term(self, product: Product) -> Term:
        positions = frozenset(self._space.positions[ref] for ref in product.refs)
        return Term(positions, product.scale)

    def _choice_limits(self) -> list[Constraint]:
        made: list[Constraint] = []
        widest = max((a.element_bytes for a in self._main.accesses), default=4) if self._main else 4
        for choice in self._space.facts.choices:
            position = self._space.positions[choice.instruction, 0]
            values = choice.values
            if choice.role.startswith("unroll"):
                made.append(AtMost("unroll", position, self._limits.max_unroll, 1, values))
            elif choice.role == "cooperative_fetch" and self._limits.max_vector_bytes:
                limit = self._limits.max_vector_bytes
                made.append(AtMost("vector width", position, limit, widest, values))
        return made

    def _thread_limits(self) -> list[Constraint]:
        """Threads per block of each kernel, and one extent per thread axis of a kernel."""
        assert self._limits.max_threads_per_block is not None
        most = self._limits.max_threads_per_block
        made: list[Constraint] = []
        for bindings in self._thread_axes().values():
            threads: Product | None = Product(frozenset())
            for terms in bindings.values():
                if len(terms) > 1:
                    agreeing = [self._term(term) for term in terms]
                    made.append(EqualProducts("thread agreement", agreeing, most, *self._look()))
                threads = threads.times(terms[0]) if threads else None
            if threads is None:
                continue
            low, high = self._space.facts.thread_range or (1, most)
            term = self._term(threads)
            if not self._is_main(threads):
                low, high = 1, most
            made.append(
                ProductRange("threads per block", term, low, min(high, most), *self._look())
            )
        return made

    def _pipeline_limits(self) -> list[Constraint]:
        """A loop that runs once is simplified away before TVM can pipeline it."""
        return [
            ProductRange("pipelined loop", self._term(extent), 2, _ANY_EXTENT, *self._look())
            for extent in self._space.facts.pipelined
            if extent.refs
        ]

    def _is_main(self, threads: Product) -> bool:
        """Whether these threads run the block that multi-level tiling annotated."""
        tiles = {tile.instruction for tile in self._space.facts.tiles}
        return any(instruction in tiles for instruction, _ in threads.refs)

    def _look(self) -> tuple[tuple[Any, ...], dict[int, tuple[int, ...]]]:
        return self._space.tiles, self._choices

    def _thread_axes(self) -> dict[int, dict[str, list[Product]]]:
        """kernel -> thread axis -> the distinct extents bound to it."""
        axes: dict[int, dict[str, list[Product]]] = defaultdict(lambda: defaultdict(list))
        for binding, kernel in self._bindings_by_kernel():
            if binding.axis.startswith("threadIdx") and binding.extent is not None:
                terms = axes[kernel][binding.axis]
                if binding.extent not in terms:
                    terms.append(binding.extent)
        return axes

    def _bindings_by_kernel(self) -> list[tuple[Binding, int]]:
        """Each binding with the top-level loop nest that it ends up in."""
        schedule = new_schedule(self._mod)
        try:
            self._space.trace.apply_to_schedule(schedule, remove_postproc=True)
        except _REFUSALS:
            return []
        loops = [inst.inputs[0] for inst in schedule.trace.insts if inst.kind.name == "Bind"]
        owner: dict[int, int] = {}
        for func in schedule.mod.functions.values():
            for kernel, nest in enumerate(kernels(func)):
                for stmt in statements(nest):
                    variable = getattr(stmt, "loop_var", None)
                    if variable is not None:
                        owner[hash(variable)] = kernel
        return [
            (binding, owner.get(hash(schedule.get(loop).loop_var), -1))
            for binding, loop in zip(self._space.facts.bindings, loops, strict=True)
        ]

    def _memory_limits(self) -> list[Constraint]:
        made: list[Constraint] = []
        shared = self._limits.max_shared_memory_bytes
        if shared is not None:
            fit = FootprintFit(self._space.facts.tiles, self._space.positions, self._probe).fit()
            for buffers in fit.buffers.values():
                made.append(MemoryLimit("shared memory", buffers, shared, *self._look()))
            for term, allowed in fit.allowed:
                made.append(OneOf("static loops", term, allowed, self._space.tiles))
        accumulator = self._accumulator()
        if accumulator is not None and self._limits.max_local_memory_bytes is not None:
            limit = self._limits.max_local_memory_bytes
            made.append(MemoryLimit("local memory", [accumulator], limit, *self._look()))
        return made

    def _probe(self, factors: Factors) -> dict[tuple[int, str], SharedBuffer] | None:
        schedule = new_schedule(self._mod)
        try:
            trace = self._space.with_factors(factors)
            trace.apply_to_schedule(schedule, remove_postproc=True)
            if has_dynamic_loop(schedule.mod):
                return None
            return shared_buffers(schedule.mod)
        except _REFUSALS:
            return None

    def _accumulator(self) -> Footprint | None:
        """The output tile that a thread block keeps in registers: all that is not blockIdx."""
        if self._main is None or not self._space.facts.thread_range:
            return None
        blocks = {
            ref
            for binding in self._space.facts.bindings
            if binding.axis.startswith("blockIdx") and binding.extent is not None
            for ref in binding.extent.refs
        }
        terms = []
        for tile in self._space.facts.tiles:
            refs = {(tile.instruction, level) for level in range(tile.ways)} - blocks
            if tile.kind == "spatial" and refs:
                terms.append(self._term(Product(frozenset(refs))))
        element = next((a.element_bytes for a in self._main.accesses if a.is_write), 4)
        most = max(self._main.extents, default=1)
        dimensions = tuple(Dimension(1, (Growth(term, slope=1),), most) for term in terms)
        return Footprint(element, dimensions)
