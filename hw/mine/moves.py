"""Steps from one design to the next: grow what is critical, pay for it with what is idle."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ..estimate.cost import LIMITS
from .evaluation import Evaluation
from .space import DIMENSIONS, DesignSpace, Point

Fits = Callable[[Point], bool]

#: all vector cores with their lanes, as one dimension: neighbours differ in lanes in total
VECTOR = "vector"
#: what grows when critical operators are bound by one of ``LIMITS``; nothing widens the on-chip
#: bandwidth, which is the reference's
GROWS = {
    "tensor": "tensor_cores",
    "vector": VECTOR,
    "memory": "shared_buffer_bytes",
}
_PAYERS = (VECTOR, "shared_buffer_bytes", "tensor_cores")
#: shapes of one total of lanes that are tried: the fewest cores, and up to these
_MOST_CORES = (1, 3, 8)
#: how many times fewer or more lanes in total are tried with the tensor cores that then fit
_LESS_OR_MORE = 4
LABELS = {
    "tensor_rows": "rows",
    "tensor_columns": "columns",
    "tensor_cores": "tensor cores",
    "vector_lanes": "lanes",
    "vector_cores": "vector cores",
    "shared_buffer_bytes": "shared buffer",
}


def critical_limits(evaluation: Evaluation, least: float = 0.01) -> list[tuple[str, float]]:
    """What critical operators spend their time on, most first, without shares below ``least``."""
    shares = zip(LIMITS, evaluation.limits, strict=True)
    return sorted((s for s in shares if s[1] >= least), key=lambda s: -s[1])


def largest_sizes(space: DesignSpace, fits: Fits) -> list[tuple[int, int]]:
    """Rows and columns that fit with one core, and are in none larger that does."""
    fitting = [
        (rows, columns)
        for rows in space.tensor_rows
        for columns in space.tensor_columns
        if fits(with_size(space, space.smallest, rows, columns, 1))
    ]
    return [
        (r, c)
        for r, c in fitting
        if not any((r, c) != other and r <= other[0] and c <= other[1] for other in fitting)
    ]


def with_size(space: DesignSpace, point: Point, rows: int, columns: int, cores: int) -> Point:
    """The point with other arrays: the greatest count of them up to ``cores``, or the least."""
    count = max((n for n in space.tensor_cores if n <= cores), default=space.tensor_cores[0])
    return replace(point, tensor_rows=rows, tensor_columns=columns, tensor_cores=count)


def moved(space: DesignSpace, point: Point, what: str, steps: int) -> list[Point]:
    """The point with one of ``_PAYERS`` some values up or down; several for ``VECTOR``."""
    if what != VECTOR:
        found = space.moved(point, what, steps)
        return [] if found is None else [found]
    totals = _totals(space)
    ascending = sorted(totals)
    index = ascending.index(point.vector_lanes * point.vector_cores) + steps
    if not 0 <= index < len(ascending):
        return []
    return [
        replace(point, vector_lanes=lanes, vector_cores=cores)
        for lanes, cores in totals[ascending[index]]
    ]


def reshaped(space: DesignSpace, point: Point) -> list[Point]:
    """The point with its lanes in other cores, and with its array units in other arrays."""
    found = moved(space, point, VECTOR, 0)
    for up, down in (("tensor_rows", "tensor_columns"), ("tensor_columns", "tensor_rows")):
        wider = space.moved(point, up, 1)
        if wider is not None:
            found += [p for p in [space.moved(wider, down, -1)] if p is not None]
    for name in ("tensor_rows", "tensor_columns"):
        for steps in (-1, 1):
            other = space.moved(point, name, steps)
            if other is not None:
                units = point.tensor_cores * getattr(point, name) // getattr(other, name)
                counts = [count for count in space.tensor_cores if count <= units]
                found += [replace(other, tensor_cores=counts[-1])] if counts else []
    return found


@lru_cache(maxsize=64)
def _totals(space: DesignSpace) -> dict[int, list[tuple[int, int]]]:
    """Lanes in total -> a few (lanes of a core, cores)."""
    shapes: dict[int, list[tuple[int, int]]] = {}
    for lanes in space.vector_lanes:
        for cores in space.vector_cores:
            shapes.setdefault(lanes * cores, []).append((lanes, cores))
    few: dict[int, list[tuple[int, int]]] = {}
    for total, pairs in shapes.items():
        pairs.sort(key=lambda pair: pair[1])
        few[total] = sorted(
            {
                max(
                    (pair for pair in pairs if pair[1] <= most),
                    key=lambda p: p[1],
                    default=pairs[0],
                )
                for most in _MOST_CORES
            }
        )
    return few


def grown(space: DesignSpace, fits: Fits, point: Point, what: str, steps: int) -> Iterator[Point]:
    """The point with one dimension ``steps`` values up, made to fit in a few ways.

    Where it does not fit, other dimensions shrink, each in its turn first.
    """
    seen = set()
    payers = [name for name in _PAYERS if name != what]
    for larger in moved(space, point, what, steps):
        orders = [payers, payers[::-1]] if not fits(larger) else [payers]
        for order in orders:
            paid = _pay(space, fits, larger, order)
            if paid is not None and paid not in seen:
                seen.add(paid)
                yield paid


def _pay(space: DesignSpace, fits: Fits, point: Point, payers: Sequence[str]) -> Point | None:
    """Shrink one dimension after the other until the point fits."""
    for what in payers:
        while not fits(point):
            smaller = moved(space, point, what, -1)
            if not smaller:
                break
            point = smaller[-1]
    return point if fits(point) else None


def shrunk(space: DesignSpace, point: Point) -> Iterator[Point]:
    """The point with one dimension a value down, for each that can be."""
    for what in _PAYERS:
        yield from moved(space, point, what, -1)


def traded(space: DesignSpace, fits: Fits, point: Point) -> Iterator[Point]:
    """One dimension one or two values down, and another as far up as then fits."""
    for down in _PAYERS:
        for steps in (-1, -2):
            for smaller in moved(space, point, down, steps)[-1:]:
                for up in _PAYERS:
                    if up != down:
                        yield from _filled(space, fits, smaller, up)


def _filled(space: DesignSpace, fits: Fits, point: Point, what: str) -> list[Point]:
    """The point with one dimension as far up as fits; nothing where it cannot go up."""
    largest: list[Point] = []
    start = point
    while True:
        larger = [p for p in moved(space, start, what, 1) if fits(p)]
        if not larger:
            return largest
        largest, start = larger, larger[0]


def balanced(space: DesignSpace, fits: Fits, point: Point) -> Iterator[Point]:
    """Every shape of some less or more lanes in total, with as many tensor cores as then fit."""
    lanes = point.vector_lanes * point.vector_cores
    for total, shapes in _totals(space).items():
        if lanes <= total * _LESS_OR_MORE and total <= lanes * _LESS_OR_MORE:
            for width, cores in shapes:
                other = replace(point, vector_lanes=width, vector_cores=cores)
                yield from _most_tensor_cores(space, fits, other)


def regrouped(space: DesignSpace, point: Point) -> list[Point]:
    """The point's array units in every other size of array that they fill without a rest."""
    units = point.tensor_cores * point.tensor_rows * point.tensor_columns
    return [
        replace(point, tensor_rows=rows, tensor_columns=columns, tensor_cores=count)
        for rows in space.tensor_rows
        for columns in space.tensor_columns
        for count in space.tensor_cores
        if rows * columns * count == units and (rows, columns) != _array(point)
    ]


def _array(point: Point) -> tuple[int, int]:
    return point.tensor_rows, point.tensor_columns


def _most_tensor_cores(space: DesignSpace, fits: Fits, point: Point) -> list[Point]:
    """The point with as many tensor cores as fit; nothing where not even the fewest do."""
    index = bisect.bisect_left(
        space.tensor_cores, True, key=lambda count: not fits(replace(point, tensor_cores=count))
    )
    return [replace(point, tensor_cores=space.tensor_cores[index - 1])] if index else []


def neighbours(space: DesignSpace, fits: Fits, point: Point) -> list[Point]:
    """All that fit of: one dimension up or down, one up with others paying, and other shapes."""
    found = {
        *shrunk(space, point),
        *reshaped(space, point),
        *traded(space, fits, point),
        *balanced(space, fits, point),
    }
    for what in _PAYERS:
        for steps in (1, 2):
            found |= set(grown(space, fits, point, what, steps))
        found |= set(_filled(space, fits, point, what))
    return sorted(p for p in found if p != point and fits(p))


def difference(before: Point, after: Point) -> str:
    """``tensor cores 4 -> 5, lanes 512 -> 256``."""
    changes = []
    for name in DIMENSIONS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            unit = ""
            if name == "shared_buffer_bytes":
                old, new, unit = old / 2**20, new / 2**20, " MiB"
            changes.append(f"{LABELS[name]} {old:g} -> {new:g}{unit}")
    return ", ".join(changes)
