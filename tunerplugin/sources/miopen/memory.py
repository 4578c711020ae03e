"""What was best for the nearest known convolutions, as a second opinion beside the predictor's.

The predictor generalises, and forgets what was best for a convolution that differs from the one in
question in its batch size alone.  So the records are kept too (problems and tuples as small
integers, some megabytes) and the probability of a value is a mixture, after Khandelwal et al.,
"Generalization through memorization: nearest neighbor language models", ICLR 2020: the share it has
among the tuples of the nearest known convolutions that agree with the prefix, and the predictor's.
Near is judged twice: by sizes alone, and by a distance learnt for each solver and data type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...predictor import Table, learn_metric
from ...search.scorer import FloatArray, Scorer
from ...space import Knob, Problem, Space, Value
from .devices import ISAS, parse_device
from .problem import ConvProblem
from .records import PerfRecord

#: records that are heard under each distance, and what they count together in the mixture, as long
#: as the weight of those that agree is well above FAINT
NEIGHBOURS = 64
SHARE = 0.65
FAINT = 0.02
#: how much further away a record of another number of compute units is
OTHER_UNITS = 0.2
#: records from which a distance of their own is learnt
ENOUGH = 500
#: metrics are kept as whole numbers of this fraction
_METRIC_UNIT = 1e-3

_SIZES = (
    *("c", "k", "h", "w", "n", "ho", "wo", "y", "x", "pad_h", "pad_w"),
    *("stride_h", "stride_w", "dilation_h", "dilation_w", "groups"),
)
_DIRECTIONS = "FBW"
_ISAS = tuple(ISAS)
_LANES = 64
_POWERS = 8
#: what a doubling counts in the plain distance: of a size, of the products (input of all images,
#: pixels, pixels of all images, filters), of a divisor; of the lanes that idle; of another
#: direction and of another instruction set (half here and half there)
_PLAIN = np.array(
    [2.0] * len(_SIZES)
    + [0.6, 0.03, 0.03, 0.03]
    + [0.01] * 4
    + [0.1]
    + [16.0] * len(_DIRECTIONS)
    + [2.0] * len(_ISAS)
)


@dataclass(frozen=True)
class Neighbours:
    """Tuples (M, fields) of the nearest records and their weights (M,), which sum to 1."""

    values: NDArray[np.int64]
    weights: FloatArray


class _Group(NamedTuple):
    """The records of a solver and data type, with the distances that apply to them."""

    features: FloatArray  # (R, F)
    values: NDArray[np.int64]  # (R, fields)
    owners: NDArray[np.int64]  # (R,) the number of the problem
    units: NDArray[np.int64]  # (R,) compute units
    metrics: tuple[FloatArray, ...]  # (F,) each


class Memory:
    """Records by solver and data type, read from the tables of a predictor.

    ``tables`` are those that ``remember`` made.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._groups: dict[tuple[str, str], _Group | None] = {}

    def nearest(self, problem: ConvProblem, solver: str, device: str) -> Neighbours | None:
        """The nearest records of that solver and data type; ``None`` when there is none.

        Each distance (the plain one, and the learnt one if there is) names as many.
        """
        key = (solver, problem.number_format)
        if key not in self._groups:
            self._groups[key] = self._group(*key)
        group = self._groups[key]
        if group is None:
            return None
        numbers = np.array([_numbers(problem)])
        asked = parse_device(device)
        here = _features(numbers, np.array([asked.isa]))
        elsewhere = OTHER_UNITS * (group.units != asked.compute_units)
        values, weights = [], []
        for metric in group.metrics:
            distance = (np.abs(group.features - here) * metric).sum(axis=1) + elsewhere
            order = np.argsort(distance, kind="stable")[:NEIGHBOURS]
            heard = np.exp(distance[order[0]] - distance[order])
            values.append(group.values[order])
            weights.append(heard / heard.sum() / len(group.metrics))
        return Neighbours(np.concatenate(values), np.concatenate(weights))

    def learn(self, seed: int) -> dict[str, Table]:
        """Tables of distances, for every solver and data type with enough records."""
        learnt: dict[str, Table] = {}
        for key in sorted({_key(name) for name in self._tables if name.startswith("rows:")}):
            group = self._group(*key)
            if group is not None and len(group.values) >= ENOUGH:
                metric = learn_metric(group.features, group.values, group.owners, _PLAIN, seed)
                units = np.rint(metric / _METRIC_UNIT).clip(0, 1 << 30)
                learnt[f"metric:{':'.join(key)}"] = units.astype(np.int32)
        return learnt

    def _group(self, solver: str, dtype: str) -> _Group | None:
        parts = []
        for name, table in self._tables.items():
            if name.startswith(f"rows:{solver}:{dtype}:"):
                parts.append((name.rpartition(":")[2], table))
        if not parts:
            return None
        rows: NDArray[np.int64] = np.concatenate([part for _, part in parts]).astype(np.int64)
        devices, lengths = zip(
            *((parse_device(name), len(part)) for name, part in parts), strict=True
        )
        isas = np.repeat([device.isa for device in devices], lengths)
        units = np.repeat([device.compute_units for device in devices], lengths)
        features = _features(self._tables["problems"][rows[:, 0]], isas)
        tuples = self._tables[f"tuples:{solver}"][rows[:, 1]].astype(np.int64)
        metrics = [_PLAIN]
        learnt = self._tables.get(f"metric:{solver}:{dtype}")
        if learnt is not None:
            metrics.append(_METRIC_UNIT * learnt.astype(np.float64))
        return _Group(features, tuples, rows[:, 0], units, tuple(metrics))


def _key(name: str) -> tuple[str, str]:
    """The solver and data type of a table of rows."""
    _, solver, dtype, _ = name.split(":")
    return solver, dtype


def remember(records: Iterable[PerfRecord], seed: int = 0) -> dict[str, Table]:
    """Records as tables of integers, each (problem, device, tuple) once.

    GPUs of one instruction set each keep their own: what was best on several counts as often.

    ``problems`` (P, 17) sizes and direction; ``tuples:<solver>`` (K, fields);
    ``rows:<solver>:<dtype>:<device>`` (R, 2) numbers of a problem and a tuple;
    ``metric:<solver>:<dtype>`` (F,) the learnt distance, in thousandths.
    """
    problems: dict[tuple[int, ...], int] = {}
    tuples: dict[str, dict[tuple[int, ...], int]] = {}
    rows: dict[str, dict[tuple[int, int], None]] = {}
    for record in records:
        known = tuples.setdefault(record.solver, {})
        device = parse_device(record.device).name
        group = rows.setdefault(f"rows:{record.solver}:{record.problem.number_format}:{device}", {})
        number = problems.setdefault(_numbers(record.problem), len(problems))
        group[number, known.setdefault(tuple(record.values), len(known))] = None
    named = {f"tuples:{solver}": list(known) for solver, known in tuples.items()}
    listed: dict[str, Sequence[tuple[int, ...]]] = {"problems": list(problems), **named}
    listed |= {name: list(group) for name, group in rows.items()}
    tables = {name: _smallest(np.array(table)) for name, table in listed.items()}
    return tables | Memory(tables).learn(seed)


class MemoryScorer:
    """The mixture of a scorer and the neighbours of one problem; implements ``Scorer``."""

    def __init__(self, scorer: Scorer, neighbours: Neighbours) -> None:
        self._scorer, self._neighbours = scorer, neighbours

    def start(self, problem: Problem) -> tuple[Any, list[FloatArray], int]:
        """See ``Scorer``: the scorer's state, the neighbours that agree, and the place."""
        return self._scorer.start(problem), [self._neighbours.weights], 0

    def score(
        self,
        state: tuple[Any, list[FloatArray], int],
        knobs: Sequence[Knob],
        legal: Sequence[tuple[Value, ...]],
    ) -> list[FloatArray]:
        """See ``Scorer``."""
        base, agreeing, place = state
        column = self._neighbours.values[:, place]
        scored = []
        for own, weights, values in zip(
            self._scorer.score(base, knobs, legal), agreeing, legal, strict=True
        ):
            heard = np.array([weights[column == value].sum() for value in values])
            total = heard.sum()
            if total > 0:
                share = SHARE * total / (total + FAINT)
                own = np.log((1 - share) * np.exp(own) + share * heard / total)
            scored.append(own)
        return scored

    def extend(
        self,
        state: tuple[Any, list[FloatArray], int],
        parents: Sequence[int],
        knobs: Sequence[Knob],
        values: Sequence[Value],
    ) -> tuple[Any, list[FloatArray], int]:
        """See ``Scorer``."""
        base, agreeing, place = state
        column = self._neighbours.values[:, place]
        kept = [
            np.where(column == value, agreeing[parent], 0.0)
            for parent, value in zip(parents, values, strict=True)
        ]
        return self._scorer.extend(base, parents, knobs, values), kept, place + 1

    def rank(
        self, problem: Problem, space: Space, candidates: Sequence[tuple[Value, ...]]
    ) -> FloatArray:
        """See ``Scorer``."""
        return self._scorer.rank(problem, space, candidates)


def _numbers(p: ConvProblem) -> tuple[int, ...]:
    return (*(int(getattr(p, size)) for size in _SIZES), _DIRECTIONS.index(p.direction))


def _features(numbers: NDArray[Any], isas: NDArray[np.str_]) -> FloatArray:
    """Numbers of problems (P, 17) and instruction sets (P,) -> what distances look at (P, F)."""
    whole = numbers.astype(np.int64)
    c, k, n, ho, wo = (whole[:, _SIZES.index(size)] for size in ("c", "k", "n", "ho", "wo"))
    pixels = ho * wo
    # all four sizes together are more than 64 bits hold
    products = np.stack([c * n, pixels, n * pixels.astype(np.float64), c * k], axis=1)
    divisors = np.stack([_power_of_two(size) for size in (c, k, n, pixels)], axis=1)
    idle = np.log2(_LANES * np.ceil(pixels / _LANES) / np.maximum(pixels, 1))
    parts = [
        np.log2(1.0 + whole[:, :-1]),
        np.log2(1.0 + products),
        divisors,
        idle[:, None],
        np.arange(len(_DIRECTIONS)) == whole[:, -1:],
        np.array(_ISAS) == isas[:, None],
    ]
    return np.concatenate(parts, axis=1).astype(np.float64)


def _power_of_two(size: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often two divides it, at most ``_POWERS`` times."""
    powers = 1 << np.arange(1, _POWERS + 1)
    count: NDArray[np.int64] = (size[:, None] % powers == 0).sum(axis=1)
    return count


def _smallest(table: NDArray[np.int64]) -> Table:
    if np.abs(table).max(initial=0) < 1 << 15:
        return table.astype(np.int16)
    return table.astype(np.int32)
