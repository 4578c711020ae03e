"""How near predicted MIOpen tuples come to the recorded ones.

valid          share of the first predictions that the solver accepts
per_parameter  mean share of the fields in which the first prediction agrees
top1/5/10      share of the problems whose recorded tuple is among the first 1/5/10 predictions
edit_distance  mean Levenshtein distance between the first prediction and the record, in edits of
               one value (not divided by the length)

Shares come with Wilson's 95% interval; means with a 95% bootstrap interval.  Both take problems as
independent: the bootstrap draws problems, with all their records.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from harness import Row, Spread, wilson

Tuple = tuple[int, ...]

RESAMPLES = 1000
TOPS = (1, 5, 10)
UNITS = {"edit_distance": "edits"}


@dataclass(frozen=True)
class Answer:
    """The tuples predicted for one record, best first (none: an error of the method).

    ``problem`` identifies what the record is about; ``valid`` is whether the first is accepted.
    """

    problem: Hashable
    recorded: Tuple
    predicted: tuple[Tuple, ...]
    valid: bool


def levenshtein(a: Sequence[int], b: Sequence[int]) -> int:
    """Fewest insertions, deletions and substitutions that turn one into the other."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
        before = row
    return before[-1]


def agreement(a: Sequence[int], b: Sequence[int]) -> float:
    """Share of the positions of ``b`` at which ``a`` has the same value."""
    return sum(x == y for x, y in zip(a, b, strict=False)) / len(b)


def bootstrap(samples: Sequence[float], clusters: Sequence[Hashable], seed: int) -> Spread:
    """The mean and its 95% percentile interval, drawing whole clusters with replacement."""
    numbers: dict[Hashable, int] = {}
    which = np.array([numbers.setdefault(c, len(numbers)) for c in clusters])
    sums = np.bincount(which, weights=samples)
    counts = np.bincount(which)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    means = (drawn @ sums) / (drawn @ counts)
    low, high = np.quantile(means, (0.025, 0.975))
    middle = float(sums.sum() / counts.sum())
    return Spread(middle, min(float(low), middle), max(float(high), middle))


def score(answers: Sequence[Answer], width: int, seed: int) -> dict[str, Spread]:
    """Every metric of a method that was asked for ``width`` tuples; top-k only up to there.

    Raises ``ValueError`` without any answer.
    """
    if not answers:
        raise ValueError("expected at least one answer to score, got none")
    first = [(a.predicted[0] if a.predicted else (), a.recorded) for a in answers]
    problems = [a.problem for a in answers]
    found = {"valid": wilson(sum(a.valid for a in answers), len(answers))}
    agreements = [agreement(guess, truth) for guess, truth in first]
    found["per_parameter"] = bootstrap(agreements, problems, seed)
    for top in TOPS:
        if top <= width:
            hits = sum(a.recorded in a.predicted[:top] for a in answers)
            found[f"top{top}"] = wilson(hits, len(answers))
    edits = [float(levenshtein(guess, truth)) for guess, truth in first]
    found["edit_distance"] = bootstrap(edits, problems, seed)
    return found


def rows_of(case: str, method: str, scores: dict[str, Spread]) -> list[Row]:
    """The scores as rows of the table."""
    return [Row(case, method, metric, *_parts(metric, middle)) for metric, middle in scores.items()]


def _parts(metric: str, middle: Spread) -> tuple[float, str, float, float]:
    return middle.value, UNITS.get(metric, "share"), middle.low, middle.high
