"""MIOpen's tuples predicted by scikit-learn's extremely randomised trees.

Geurts, Ernst and Wehenkel, Machine Learning 63, 2006.  scikit-learn serves for comparison only; it
is no dependency of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from miopen_rivals import Query, Tuple, first_legal, table_of

from tunerplugin.sources.miopen import PerfRecord, RuledSpace

_MIN_LEAF = 3
#: where a forest gives a legal value no chance
_LOG_NEVER = -30.0


def missing_reason() -> str | None:
    """Why the trees cannot grow here; ``None`` when they can."""
    if importlib.util.find_spec("sklearn") is None:
        return "the package scikit-learn is not installed (pip install scikit-learn)"
    return None


def _forest(trees: int, seed: int) -> Any:
    """An unfitted forest that uses one core."""
    ensemble = importlib.import_module("sklearn.ensemble")
    return ensemble.ExtraTreesClassifier(
        trees, min_samples_leaf=_MIN_LEAF, random_state=seed, n_jobs=1
    )


class TreeChain:
    """A classifier for each field, given the problem and the fields before it.

    Beams follow the product of the forests' probabilities; width 1 is greedy.
    """

    variants: ClassVar[Mapping[str, int]] = {
        "extratrees-chain": 1,
        "extratrees-chain-beam-10": 10,
    }

    def __init__(self, trees: int, seed: int) -> None:
        self._trees, self._seed = trees, seed

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``."""
        known, values = table_of(train), np.array([r.values for r in train])
        self._forests = [
            _forest(self._trees, self._seed).fit(
                np.column_stack([known, values[:, :place]]), values[:, place]
            )
            for place in range(values.shape[1])
        ]

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``."""
        known, spaces = table_of(queries), [query.space for query in queries]
        beams: list[list[tuple[float, Tuple]]] = [[(0.0, ())] for _ in queries]
        for forest in self._forests:
            owners = [owner for owner, beam in enumerate(beams) for _ in beam]
            prefixes = [prefix for beam in beams for _, prefix in beam]
            rows = np.column_stack([known[owners], np.array(prefixes).reshape(len(owners), -1)])
            with np.errstate(divide="ignore"):
                logs = np.maximum(np.log(forest.predict_proba(rows)), _LOG_NEVER)
            chances = iter(logs)
            values = [int(value) for value in forest.classes_]
            for owner, beam in enumerate(beams):
                longer = [
                    (score + chance, (*prefix, value))
                    for score, prefix in beam
                    for value, chance in _options(
                        dict(zip(values, map(float, next(chances)), strict=True)),
                        spaces[owner] if masked else None,
                        prefix,
                    )
                ]
                beams[owner] = sorted(longer, key=lambda pair: -pair[0])[:k]
        return [[prefix for _, prefix in beam] for beam in beams]


def _options(
    chances: dict[int, float], space: RuledSpace | None, prefix: Tuple
) -> list[tuple[int, float]]:
    """The next values and the logarithms of their chances; legal ones where there is a space."""
    if space is None:
        return list(chances.items())
    return [(int(v), chances.get(int(v), _LOG_NEVER)) for v in space.legal_values(prefix)]


class TupleForest:
    """One forest for the whole tuple: its leaves vote with the tuples that fell into them.

    Splits lower the mean impurity over all fields, so that memory does not grow with the thousands
    of distinct tuples; on ConvAsm1x1U this is more accurate than tuples as plain classes, too.
    """

    variants: ClassVar[Mapping[str, int]] = {"extratrees-tuple": 10}

    def __init__(self, trees: int, seed: int) -> None:
        self._trees, self._seed = trees, seed

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``."""
        known = table_of(train)
        self._forest = _forest(self._trees, self._seed)
        self._forest.fit(known, np.array([r.values for r in train]))
        self._known = list(dict.fromkeys(r.values for r in train))
        numbers = {values: number for number, values in enumerate(self._known)}
        tuples = np.array([numbers[r.values] for r in train])
        self._votes = [self._leaves(leaves, tuples) for leaves in self._forest.apply(known).T]

    @staticmethod
    def _leaves(leaves: npt.NDArray[np.int64], tuples: npt.NDArray[np.int64]) -> Any:
        """Leaf -> (numbers of tuples, their shares) of one tree."""
        order = np.argsort(leaves, kind="stable")
        names, starts = np.unique(leaves[order], return_index=True)
        parts = np.split(tuples[order], starts[1:])
        found = {}
        for leaf, part in zip(names.tolist(), parts, strict=True):
            inside, counts = np.unique(part, return_counts=True)
            found[leaf] = (inside, counts / len(part))
        return found

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``."""
        answers = []
        for query, row in zip(queries, self._forest.apply(table_of(queries)), strict=True):
            votes = np.zeros(len(self._known))
            for leaves, leaf in zip(self._votes, row.tolist(), strict=True):
                inside, shares = leaves[leaf]
                votes[inside] += shares
            ranked = (self._known[i] for i in np.argsort(-votes, kind="stable"))
            answers.append(first_legal(query, k, ranked, masked))
        return answers
