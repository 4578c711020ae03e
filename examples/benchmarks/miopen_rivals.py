"""What MIOpen's tuples are predicted with in this benchmark, and the two simplest ways to do it.

Every method is a ``Rival``: it is fitted on the records of one solver and data type, then asked for
the best tuples of problems that it has not seen.  Beside the sizes it sees the GPU and the year of
the database.  Trees (``miopen_trees``) and the sequence model (``miopen_ktn``) learn from the asked
GPU's own architecture where there is enough of it (``Specialised``), which on these records is
better than to learn from all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from miopen_splits import holds, year_of

from tunerplugin.sources.miopen import (
    ConvProblem,
    PerfRecord,
    RuledSpace,
    parse_device,
    space_of,
)

Tuple = tuple[int, ...]
Floats = npt.NDArray[np.float64]

#: records of an architecture that are enough to learn from them alone
ENOUGH = 500


@dataclass(frozen=True)
class Query:
    """A record without its tuple: what a method may know."""

    problem: ConvProblem
    solver: str
    device: str
    source: str

    @property
    def space(self) -> RuledSpace:
        """The legal tuples, over the full ranges."""
        return space_of(self.solver, self.problem, full=True, device=self.device)


def query_of(record: PerfRecord) -> Query:
    """The question that a record answers."""
    return Query(record.problem, record.solver, record.device, record.source)


class Rival(Protocol):
    """A method of the table."""

    @property
    def variants(self) -> Mapping[str, int]:
        """The names of its rows, and how many tuples each asks for."""

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """Learn from records of one solver and data type."""

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """At most ``k`` distinct tuples for each query, best first; ``masked``: legal ones."""


def numbers_of(query: Query | PerfRecord) -> tuple[float, ...]:
    """The problem as numbers: log2 of sizes, window, powers of two that divide, GPU and year."""
    return (*_problem_numbers(query.problem), *device_numbers(query.device, query.source))


@lru_cache(maxsize=1 << 16)
def _problem_numbers(p: ConvProblem) -> tuple[float, ...]:
    sizes = (p.c, p.k, p.h, p.w, p.ho, p.wo, p.n, p.y, p.x, p.groups)
    products = (p.h * p.w, p.n * p.h * p.w, p.n * p.ho * p.wo, p.c * p.k)
    twos = (p.c, p.k, p.n, p.h * p.w, p.ho * p.wo)
    window = (p.pad_h, p.pad_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w)
    return (
        *map(float, np.log2((*sizes, *products))),
        *(float((size & -size).bit_length() - 1) for size in twos),
        *map(float, (p.c % 3, p.k % 3, *window, "FBW".index(p.direction))),
    )


@lru_cache(maxsize=256)
def device_numbers(device: str, source: str) -> tuple[float, ...]:
    """Architecture (its name read in base 16), compute units, year of the database."""
    known = parse_device(device)
    generation = float(int(known.isa.removeprefix("gfx"), 16))
    return (generation, float(known.compute_units), float(year_of(source)))


def table_of(queries: Sequence[Query] | Sequence[PerfRecord]) -> Floats:
    """``numbers_of`` each, as rows."""
    return np.array([numbers_of(query) for query in queries], dtype=np.float64)


def first_legal(query: Query, k: int, ranked: Iterator[Tuple], masked: bool) -> list[Tuple]:
    """The first ``k`` distinct tuples, of the legal ones if ``masked``."""
    space, seen = query.space, set[Tuple]()
    found = (t for t in ranked if t not in seen and not seen.add(t))  # type: ignore[func-returns-value]
    return list(islice((t for t in found if not masked or holds(space, t)), k))


class Majority:
    """The most common tuples: of the same database, then of all."""

    variants: ClassVar[Mapping[str, int]] = {"majority": 10}

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``."""
        by_source: dict[str, Counter[Tuple]] = defaultdict(Counter)
        for record in train:
            by_source[record.source][record.values] += 1
        total = sum(by_source.values(), Counter[Tuple]())
        self._overall = [values for values, _ in total.most_common()]
        self._ranked = {
            source: [values for values, _ in counts.most_common()]
            for source, counts in by_source.items()
        }

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``."""
        return [first_legal(query, k, self._ranking(query), masked) for query in queries]

    def _ranking(self, query: Query) -> Iterator[Tuple]:
        yield from self._ranked.get(query.source, ())
        yield from self._overall


class NearestNeighbour:
    """The tuples of the problems with the nearest logarithms of sizes.

    Euclidean distance over log2 of c, k, h, w, ho, wo, n, y, x, groups; a unit apart are, besides,
    problems of another direction or stride, and records of another architecture, and by a little
    those of another database.
    """

    variants: ClassVar[Mapping[str, int]] = {"1-nn": 10}
    _OTHER_DATABASE = 0.01
    #: neighbours sorted before any other is
    _AT_FIRST = 256

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``."""
        self._values = [record.values for record in train]
        self._places = np.array([self._place(r) for r in train], dtype=np.float64)
        self._sources = np.array([record.source for record in train])

    @staticmethod
    def _place(query: Query | PerfRecord) -> tuple[float, ...]:
        p = query.problem
        sizes = (p.c, p.k, p.h, p.w, p.ho, p.wo, p.n, p.y, p.x, p.groups)
        steps = (p.stride_h, p.stride_w, "FBW".index(p.direction))
        isa = int(parse_device(query.device).isa.removeprefix("gfx"), 16)
        return (*map(float, np.log2(sizes)), *map(float, steps), float(isa))

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``."""
        return [first_legal(query, k, self._ranking(query), masked) for query in queries]

    def _ranking(self, query: Query) -> Iterator[Tuple]:
        apart = self._places - np.array(self._place(query))
        apart[:, 10:] = np.minimum(np.abs(apart[:, 10:]), 1)
        distance = np.square(apart).sum(axis=1)
        distance += self._OTHER_DATABASE * (self._sources != query.source)
        some = min(self._AT_FIRST, len(distance))
        bound = np.partition(distance, some - 1)[some - 1]
        near = np.flatnonzero(distance <= bound)
        for index in near[np.argsort(distance[near], kind="stable")]:
            yield self._values[index]
        for index in np.argsort(distance, kind="stable")[len(near) :]:
            yield self._values[index]


class Specialised:
    """One model for each architecture asked about, fitted when it first is."""

    def __init__(self, make: Callable[[], Rival]) -> None:
        self._make = make
        self.variants = make().variants

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``."""
        self._train = list(train)
        self._models: dict[str, Rival] = {}

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``."""
        by_isa: dict[str, list[int]] = defaultdict(list)
        for index, query in enumerate(queries):
            by_isa[parse_device(query.device).isa].append(index)
        answers: list[list[Tuple]] = [[] for _ in queries]
        for isa, places in by_isa.items():
            found = self._model(isa).predict([queries[i] for i in places], k, masked)
            for place, tuples in zip(places, found, strict=True):
                answers[place] = tuples
        return answers

    def _model(self, isa: str) -> Rival:
        own = [r for r in self._train if parse_device(r.device).isa == isa]
        key = isa if len(own) >= ENOUGH else "all"
        if key not in self._models:
            self._models[key] = self._make()
            self._models[key].fit(own if key == isa else self._train)
        return self._models[key]
