"""How many GPU threads a configuration asks for, told from its splits.

A template binds loops to threads in its own code, so what the threads are is found by asking: one
factor after the other is changed, and the schedule's thread extents tell which factors they are
products of.  A few configurations drawn at random must agree, else nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from ...space import Constraint, Prefix
from .entities import KnobTable
from .space import TemplateSpace

#: threads of each kernel of a configuration, by name; ``None`` where the template refuses it
CountThreads = Callable[[Prefix], Mapping[str, int] | None]

#: TVM's number of the attachment "computed inside a loop of another stage"
_ATTACHED_TO_LOOP = 4

_CHECKS = 12
_SEED = 1


def kernel_threads(schedule: Any) -> dict[str, int]:
    """Threads per block of each kernel of a TE schedule, by the name of its outermost stage."""
    schedule = schedule.normalize()
    bounds = tvm.te.schedule.InferBound(schedule)
    extents: dict[str, dict[str, int]] = {}
    for stage in schedule.stages:
        kernel = stage
        while kernel.attach_type == _ATTACHED_TO_LOOP and kernel.attach_stage is not None:
            kernel = kernel.attach_stage
        axes = extents.setdefault(str(kernel.op.name), {})
        for variable, attributes in stage.iter_var_attrs.items():
            bound = attributes.bind_thread
            if bound is not None and str(bound.thread_tag).startswith("threadIdx"):
                tag, extent = str(bound.thread_tag), int(bounds[variable].extent)
                axes[tag] = max(extent, axes.get(tag, 1))
    return {kernel: math.prod(axes.values()) for kernel, axes in extents.items() if axes}


class ThreadLimit(Constraint):
    """The threads of a block are at most ``limit``.

    ``levels`` names, by knob, the levels of a split whose factors multiply to the threads (0 is the
    innermost), ``scale`` what else they are multiplied with.  Exact on prefixes.
    """

    name = "threads per block"

    def __init__(
        self, space: TemplateSpace, levels: Mapping[str, frozenset[int]], scale: int, limit: int
    ) -> None:
        self._space, self._scale, self._limit = space, scale, limit
        self._least = [
            _least_products(table, levels[table.name]) if table.name in levels else None
            for table in space.tables
        ]

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``: the least that each open split can still become."""
        least = self._scale
        for known, row in zip(self._least, self._space.rows(prefix), strict=True):
            if known is not None:
                least *= known[row]
        return least <= self._limit


def thread_limits(space: TemplateSpace, count: CountThreads, limit: int) -> list[ThreadLimit]:
    """A limit for each kernel whose threads are a product of factors; none for other kernels, nor
    for those that have the same threads in every configuration."""
    rng = np.random.default_rng(_SEED)
    drawn = [found for _ in range(_CHECKS) if (found := _draw(space, rng)) is not None]
    probe, base = _Probe(space, count), _smallest(space)
    made = []
    for kernel in probe.threads(base) or ():
        product = probe.explain(base, kernel)
        if product is None or not product.levels:
            continue
        told = [values for values in drawn if probe.threads(values) is not None]
        if told and all(probe.agrees(product, values, kernel) for values in told):
            made.append(ThreadLimit(space, product.levels, product.scale, limit))
    return made


@dataclass(frozen=True)
class _Product:
    """``scale`` times the factors at these levels, by knob."""

    levels: dict[str, frozenset[int]]
    scale: int


class _Probe:
    def __init__(self, space: TemplateSpace, count: CountThreads) -> None:
        self._space, self._count = space, count
        self._known: dict[Prefix, Mapping[str, int] | None] = {}

    def threads(self, values: Prefix) -> Mapping[str, int] | None:
        """Threads of each kernel, asked for once."""
        if values not in self._known:
            self._known[values] = self._count(values)
        return self._known[values]

    def explain(self, base: Prefix, kernel: str) -> _Product | None:
        """The product that the threads of a kernel are around ``base``."""
        levels: dict[str, frozenset[int]] = {}
        rows = self._space.rows(base)
        for place, table in enumerate(self._space.tables):
            if table.kind == "split":
                found = self._levels(table, rows, place, kernel)
                if found is None:
                    return None
                levels[table.name] = found
        product = _Product(levels, 1)
        threads, factors = self._at(base, kernel), self._value(product, base)
        if threads is None or threads % factors:
            return None
        return _Product(
            {name: chosen for name, chosen in levels.items() if chosen}, threads // factors
        )

    def agrees(self, product: _Product, values: Prefix, kernel: str) -> bool:
        """Whether a configuration has the threads that the product says."""
        return self._at(values, kernel) == self._value(product, values)

    def _levels(
        self, table: KnobTable, rows: list[Prefix], place: int, kernel: str
    ) -> frozenset[int] | None:
        """The levels of one split that count, judged by changing one factor at a time.

        Each change moves the outermost factor too; what explains every change is the answer.
        """
        changes = []
        for row in _neighbours(table, rows[place]):
            changed = [*rows[:place], row, *rows[place + 1 :]]
            values = tuple(value for part in changed for value in part)
            if (threads := self._at(values, kernel)) is not None:
                changes.append((table.factors(row), threads))
        before = self._at(tuple(value for part in rows for value in part), kernel)
        own = table.factors(rows[place])
        for chosen in _subsets(table.levels):
            inside = math.prod(own[level] for level in chosen)
            if all(
                threads * inside == (before or 0) * math.prod(factors[level] for level in chosen)
                for factors, threads in changes
            ):
                return chosen
        return None

    def _at(self, values: Prefix, kernel: str) -> int | None:
        threads = self.threads(values)
        return None if threads is None else threads.get(kernel)

    def _value(self, product: _Product, values: Prefix) -> int:
        total = product.scale
        for table, row in zip(self._space.tables, self._space.rows(values), strict=True):
            for level in product.levels.get(table.name, ()):
                total *= table.factors(row)[level]
        return total


def _neighbours(table: KnobTable, row: Prefix) -> Iterator[Prefix]:
    """For each column, a row that differs there alone."""
    for column in range(len(row)):
        for other in table.rows:
            if other[column] != row[column] and all(
                a == b for i, (a, b) in enumerate(zip(row, other, strict=True)) if i != column
            ):
                yield other
                break


def _subsets(levels: int) -> list[frozenset[int]]:
    """Every set of levels, the smallest first."""
    sets = [
        frozenset(level for level in range(levels) if mask >> level & 1)
        for mask in range(1 << levels)
    ]
    return sorted(sets, key=lambda chosen: (len(chosen), sorted(chosen)))


def _smallest(space: TemplateSpace) -> Prefix:
    """The least inner factors of every split: from there, each can grow alone."""
    values: Prefix = ()
    for table in space.tables:
        sizes = [math.prod(map(int, row)) if table.kind == "split" else 0 for row in table.rows]
        values += table.rows[sizes.index(min(sizes))]
    return values


def _draw(space: TemplateSpace, rng: np.random.Generator) -> Prefix | None:
    """A configuration at random; ``None`` after a dead end of the template's own filter."""
    values: Prefix = ()
    while space.knob(values) is not None:
        legal = space.legal_values(values)
        if not legal:
            return None
        values = (*values, legal[int(rng.integers(len(legal)))])
    return values


def _least_products(table: KnobTable, levels: frozenset[int]) -> dict[Prefix, int]:
    """The least product of the factors at ``levels`` that each beginning of a row leads to."""
    least: dict[Prefix, int] = {}
    for row in table.rows:
        factors = table.factors(row)
        product = math.prod(factors[level] for level in levels)
        for length in range(len(row) + 1):
            least[row[:length]] = min(product, least.get(row[:length], product))
    return least
