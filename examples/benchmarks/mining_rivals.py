"""Black-box searches over the design space of ``mining.py``: what ours is compared with.

All of them see what a black box shows: a point is refused (over the budget, which costs nothing) or
has a score.  Only designs that are scheduled count as evaluations.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tunerplugin.errors import InputError
from tunerplugin.hw.mine import Budget, DesignSpace, Evaluator, Metric, Point
from tunerplugin.hw.mine.space import DIMENSIONS

#: points that TPE may ask for, refused ones included, for each evaluation that it has
_TRIALS = 3


class Spent(Exception):
    """The evaluations that a search may make are used up."""


@dataclass
class BlackBox:
    """Scores points, counts evaluations and CPU seconds, and keeps the best so far."""

    space: DesignSpace
    evaluator: Evaluator
    budget: Budget
    most: int
    #: (evaluations, CPU seconds, score) of every new best
    trace: list[tuple[int, float, float]] = field(default_factory=list)
    known: dict[Point, float | None] = field(default_factory=dict)
    evaluations: int = 0

    def __post_init__(self) -> None:
        self.began = time.process_time()

    def __call__(self, point: Point) -> float | None:
        """The throughput, or ``None`` over the budget; asking again is free."""
        if point not in self.known:
            design = self.space.design(point)
            if not self.budget.allows(*self.evaluator.area_and_power(design)):
                self.known[point] = None
                return None
            if self.evaluations >= self.most:
                raise Spent
            self.evaluations += 1
            score = self.evaluator.evaluate(design).value(Metric.THROUGHPUT)
            self.known[point] = score
            if not self.trace or score > self.trace[-1][2]:
                now = time.process_time() - self.began
                self.trace.append((self.evaluations, now, score))
        return self.known[point]

    def values(self) -> list[tuple[int, ...]]:
        """The values of every dimension."""
        return [getattr(self.space, name) for name in DIMENSIONS]


def random_search(box: BlackBox, seed: int) -> None:
    """Points at random."""
    for _ in _random_points(box, random.Random(seed)):
        pass


def _random_points(box: BlackBox, rng: random.Random) -> Iterator[tuple[float, Point]]:
    """Points within the budget, with their scores."""
    while True:
        point = Point(*(rng.choice(values) for values in box.values()))
        score = box(point)
        if score is not None:
            yield score, point


def genetic(box: BlackBox, seed: int, population: int = 32, mutation: float = 0.25) -> None:
    """A steady-state genetic algorithm: tournaments of 3, uniform crossover, moves by a value or
    two, the worst replaced."""
    rng = random.Random(seed)
    values = box.values()
    alive = list(itertools.islice(_random_points(box, rng), population))
    while True:
        mother, father = (max(rng.sample(alive, 3))[1] for _ in range(2))
        child = []
        for name, domain in zip(DIMENSIONS, values, strict=True):
            index = domain.index(getattr(rng.choice((mother, father)), name))
            if rng.random() < mutation:
                index += rng.choice((-2, -1, 1, 2))
            child.append(domain[min(max(index, 0), len(domain) - 1)])
        point = Point(*child)
        score = box(point)
        if score is not None and all(point != other for _, other in alive):
            alive.remove(min(alive))
            alive.append((score, point))


def tpe(box: BlackBox, seed: int) -> None:
    """Optuna's tree-structured Parzen estimator, indices as whole numbers.

    A refused point counts 0 for it, so that it learns the budget too.  Its own time grows with
    every point that it asks for, so it ends after ``_TRIALS`` times the evaluations.
    """
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=32)
    )
    values = box.values()
    for _ in range(_TRIALS * box.most):
        trial = study.ask()
        chosen = [
            domain[trial.suggest_int(name, 0, len(domain) - 1)]
            for name, domain in zip(DIMENSIONS, values, strict=True)
        ]
        study.tell(trial, box(Point(*chosen)) or 0.0)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError("expected optuna for method tpe; run pip install optuna") from error
    return optuna


def exhaustive(box: BlackBox, seed: int = 0) -> None:
    """Every point of the space."""
    for point in box.space.points():
        box(point)


RIVALS: dict[str, Callable[[BlackBox, int], None]] = {
    "random": random_search,
    "genetic": genetic,
    "tpe": tpe,
}


def run(search: Callable[[BlackBox, int], None], box: BlackBox, seed: int) -> BlackBox:
    """Run a search until it has spent its evaluations."""
    try:
        search(box, seed)
    except Spent:
        pass
    return box
