"""The predictor and beam search of ``tunerplugin.sources.miopen``, as a method of the table.

One predictor is trained for a whole split: all solvers, data types and GPUs that may be learnt from
teach it together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from harness import note
from miopen_rivals import Query, Tuple

from tunerplugin.predictor import Predictor
from tunerplugin.sources.miopen import Chooser, PerfRecord, RuledSpace, train
from tunerplugin.sources.miopen.learning import BEAM


class Ours:
    """Trained on ``records`` when it is first asked; cases and their own records do not matter."""

    variants: ClassVar[Mapping[str, int]] = {
        "ours": BEAM,
        "ours-beam-1": 1,
        "ours-beam-5": 5,
        "ours-beam-20": 20,
    }

    def __init__(self, records: Sequence[PerfRecord], epochs: int, seed: int) -> None:
        self._records, self._epochs, self._seed = records, epochs, seed
        self._chooser: Chooser | None = None

    def fit(self, train: Sequence[PerfRecord]) -> None:
        """See ``Rival.fit``: of the split's records, at the first case."""
        if self._chooser is None:
            self._chooser = Chooser(self._trained())

    def predict(self, queries: Sequence[Query], k: int, masked: bool) -> list[list[Tuple]]:
        """See ``Rival.predict``; the beam is ``k`` wide."""
        assert self._chooser is not None
        answers: list[list[Tuple]] = []
        for query in queries:
            space = query.space if masked else unruled(query.space)
            found = self._chooser.choose(query.problem, query.solver, query.device, k, k, space)
            answers.append([tuple(int(v) for v in candidate.values) for candidate in found])
        return answers

    def _trained(self) -> Predictor:
        begin = time.monotonic()
        trained = train(self._records, self._seed, self._epochs)
        seconds = time.monotonic() - begin
        note(f"ours: {trained.examples} records, loss {trained.loss:.3f}, {seconds:.0f} s")
        return trained.predictor


@lru_cache(maxsize=4096)
def unruled(space: RuledSpace) -> RuledSpace:
    """The ranges of a space without its rules."""
    knobs = [space.knob(prefix) for prefix in _first_prefixes(space)]
    words = [knob.words for knob in knobs if knob is not None]
    return RuledSpace(space.names, space.ranges, [], words, closed=True)


def _first_prefixes(space: RuledSpace) -> list[tuple[int, ...]]:
    """A prefix of each length; the words of a field do not hang on it."""
    values = tuple(values[0] for values in space.ranges)
    return [values[:length] for length in range(len(values))]
