"""What a search knows of designs: estimates, schedules, budgets, scores, and the steps it took."""

from __future__ import annotations

from collections.abc import Iterable

from .evaluate import Evaluator
from .evaluation import Evaluation, Metric
from .moves import difference
from .space import Budget, DesignSpace, Point
from .steps import Effort, Step

#: relative improvement that a step of growth must bring
_LEAST_GAIN = 1e-4


class Judged:
    """Designs of a space, each estimated and scheduled once between two calibrations."""

    def __init__(
        self,
        space: DesignSpace,
        evaluator: Evaluator,
        budget: Budget,
        metric: Metric = Metric.THROUGHPUT,
        floor: float = 0.0,
        effort: Effort = Effort(),  # noqa: B008 - a frozen value
    ) -> None:
        self.space, self.evaluator, self.budget = space, evaluator, budget
        self.metric, self.floor, self.effort = metric, floor, effort
        self.steps: list[Step] = []
        self._fits: dict[Point, bool] = {}
        self._estimated: dict[Point, Evaluation] = {}
        self._scheduled: dict[Point, Evaluation] = {}

    @property
    def scheduled(self) -> dict[Point, Evaluation]:
        """All designs that were scheduled."""
        return self._scheduled

    @property
    def estimated(self) -> dict[Point, Evaluation]:
        """All designs that were estimated."""
        return self._estimated

    def evaluate(self, point: Point) -> Evaluation:
        """Schedule a point."""
        found = self._scheduled.get(point)
        if found is None:
            found = self._scheduled[point] = self.evaluator.evaluate(self.space.design(point))
        return found

    def estimate(self, point: Point) -> Evaluation:
        """Estimate a point."""
        found = self._estimated.get(point)
        if found is None:
            found = self._estimated[point] = self.evaluator.estimate(self.space.design(point))
        return found

    def fits(self, point: Point) -> bool:
        """Whether a point is within the budget."""
        found = self._fits.get(point)
        if found is None:
            sizes = self.evaluator.area_and_power(self.space.design(point))
            found = self._fits[point] = self.budget.allows(*sizes)
        return found

    def _score(self, evaluation: Evaluation) -> float:
        return evaluation.score(self.metric, self.floor)

    def rank(self, point: Point) -> tuple[float, float, float]:
        """More is better: the score, and at the same score less area and power."""
        return self.rank_of(self.evaluate(point))

    def rank_of(self, found: Evaluation) -> tuple[float, float, float]:
        """``rank`` of an evaluation."""
        return self._score(found), -found.area_mm2, -found.power_w

    def _area_mm2(self, point: Point) -> float:
        return self.estimate(point).area_mm2

    def _gains(self, point: Point, score: float) -> bool:
        return self._score(self.estimate(point)) > score + abs(score) * _LEAST_GAIN

    def _best_of(self, points: Iterable[Point]) -> Point | None:
        return max(points, key=lambda p: (self._score(self.estimate(p)), p), default=None)

    def _recalibrate(self) -> None:
        self.evaluator.recalibrate()
        self._estimated.clear()

    def _described(self, point: Point) -> str:
        run = self.evaluate(point).runs[0]
        waits = ", ".join(
            f"{name} {cycles}"
            for name, cycles in zip(("tensor", "vector", "memory"), run.waits, strict=True)
        )
        return (
            f"{run.workload} takes {run.seconds * 1e3:.4g} ms "
            f"(no schedule takes less than {run.bound_s * 1e3:.4g} ms), "
            f"{run.forward:.0%} of it forward; cycles waited: {waits}"
        )

    def note_refined(self, before: Point, after: Point, found: Evaluation) -> None:
        """Note that refined schedules changed which point is best."""
        reason = f"{difference(before, after)}: shorter once schedules are refined"
        self.steps.append(Step("refine", reason, after, found.value(self.metric), scheduled=True))

    def _note(self, action: str, reason: str, point: Point) -> None:
        scheduled = point in self._scheduled
        found = self._scheduled[point] if scheduled else self.estimate(point)
        self.steps.append(Step(action, reason, point, found.value(self.metric), scheduled))
