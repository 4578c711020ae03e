"""The critical-path heuristic and the dimension pruner.

For one size of array the search starts small.  It asks what the critical operators spend their
time on, and grows that: tensor cores, vector lanes or the shared buffer.  When the budget is used
up it pays for growth with what is least critical; at the end it gives back what is idle.  The
graph of a training step holds the backward pass as traced, so a core that a forward operator asks
for serves its mirror image too, and one step resolves both (WHAM's mirror conflict resolution).

Sizes of arrays form a tree: from the largest that fit, rows or columns are halved.  A branch ends
when halving has not helped ``hysteresis`` times in a row.  All this works on estimates.  The best
design of each size, most promising first, is then scheduled, and the best of those is improved by
scheduling neighbours whose estimate promises more, and at the end other vector cores in every size
of array.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import BudgetError
from .judged import Judged
from .moves import (
    GROWS,
    critical_limits,
    difference,
    grown,
    largest_sizes,
    neighbours,
    regrouped,
    shrunk,
    traded,
    with_size,
)
from .space import Point, upwards
from .steps import Step

#: sizes of array whose score is below this share of the best one's are not refined
_PROMISING = 0.95


class Search(Judged):
    """One search; ``run`` returns the best point.  Deterministic."""

    def run(self) -> Point:
        """The best point found.

        Raises ``BudgetError`` when not even the smallest design fits (the message says what it
        needs), and when the throughput floor is out of reach.
        """
        self._check_budget()
        self._schedule_reference()
        balanced: dict[tuple[int, int], Point] = {}
        for rows, columns in largest_sizes(self.space, self.fits):
            small = with_size(self.space, self.space.smallest, rows, columns, 1)
            self._visit(small, None, self.effort.hysteresis, balanced)
        best = self._schedule_best(balanced.values())
        while (better := self._better(best)) is not None:
            best = better
            self._recalibrate()
        if self._score(self.evaluate(best)) < 0:
            reached = self.evaluate(best).throughput
            raise BudgetError(
                f"expected a design of at least {self.floor:.4g} samples/s within {self.budget}, "
                f"the best found reaches {reached:.4g}; lower the floor or raise the budget"
            )
        return best

    def _schedule_reference(self) -> None:
        """Schedule the reference, or the smallest where it does not fit: estimates build on it."""
        nearest = self.space.nearest(self.space.reference)
        start = nearest if self.fits(nearest) else self.space.smallest
        self.evaluate(start)
        self._note("start", f"the reference; {self._described(start)}", start)
        self._recalibrate()

    def _check_budget(self) -> None:
        smallest = self.space.smallest
        if not self.fits(smallest):
            sizes = self.evaluator.area_and_power(self.space.design(smallest))
            area_mm2, power_w = map(upwards, sizes)
            raise BudgetError(
                f"expected a budget that some design fits, got {self.budget}; the smallest design "
                f"({smallest}) takes {area_mm2} mm^2 and {power_w} W in technology "
                f"{self.evaluator.technology.name}"
            )

    def _visit(
        self,
        start: Point,
        parent: Point | None,
        patience: int,
        balanced: dict[tuple[int, int], Point],
    ) -> None:
        size = start.tensor_rows, start.tensor_columns
        if size in balanced:
            return
        self._note("size", f"arrays of {size[0]}x{size[1]}", start)
        point = balanced[size] = self._balance(start)
        if parent is not None:
            better = self._score(self.estimate(point)) > self._score(self.estimate(parent))
            patience = self.effort.hysteresis if better else patience - 1
        if patience < 0:
            self._note("prune", f"halving did not help {self.effort.hysteresis + 1} times", point)
            return
        for dimension in ("tensor_rows", "tensor_columns"):
            halved = self.space.moved(point, dimension, -1)
            if halved is not None:
                units = point.tensor_cores * size[0] * size[1]
                rows, columns = halved.tensor_rows, halved.tensor_columns
                same = with_size(self.space, halved, rows, columns, units // (rows * columns))
                self._visit(same if self.fits(same) else halved, point, patience, balanced)

    def _balance(self, point: Point) -> Point:
        """Grow what is critical, give back what is idle, until neither helps."""
        stride = 1
        while True:
            step = self._grow(point, stride) or (self._grow(point, 1) if stride > 1 else None)
            if step is None:
                step = self._shrink(point) or self._trade(point)
                if step is None:
                    return point
            else:
                stride = 2 * stride if step.action == "grow" else 1
            self.steps.append(step)
            point = step.point

    def _grow(self, point: Point, stride: int) -> Step | None:
        now = self.estimate(point)
        score = self._score(now)
        for limit, share in critical_limits(now):
            if limit not in GROWS:
                continue
            best = self._best_of(grown(self.space, self.fits, point, GROWS[limit], stride))
            if best is not None and self._gains(best, score):
                return Step(
                    "grow",
                    f"critical operators spend {share:.0%} of their time on {limit}: "
                    f"{difference(point, best)}",
                    best,
                    self.estimate(best).value(self.metric),
                    scheduled=False,
                )
        return None

    def _shrink(self, point: Point) -> Step | None:
        score = self._score(self.estimate(point))
        for smaller in shrunk(self.space, point):
            if self._score(self.estimate(smaller)) >= score:
                return Step(
                    "shrink",
                    f"idle: {difference(point, smaller)} costs nothing",
                    smaller,
                    self.estimate(smaller).value(self.metric),
                    scheduled=False,
                )
        return None

    def _trade(self, point: Point) -> Step | None:
        """Less of one thing for more of another, where the size of array is worth it."""
        score = self._score(self.estimate(point))
        if score < _PROMISING * max(map(self._score, self._estimated.values())):
            return None
        best = self._best_of(traded(self.space, self.fits, point))
        if best is None or not self._gains(best, score):
            return None
        value = self.estimate(best).value(self.metric)
        return Step("trade", difference(point, best), best, value, scheduled=False)

    def _schedule_best(self, points: Iterable[Point]) -> Point:
        """Schedule the most promising points, until ``tries`` in a row are no better.

        Each schedule corrects what the others promise.  The best of all that was scheduled.
        """
        left = set(points) - set(self._scheduled)
        best = max(self._scheduled, key=self.rank)
        failures = 0
        while left and failures < self.effort.tries:
            point = min(left, key=lambda p: (-self._score(self.estimate(p)), p))
            left.remove(point)
            better = self.rank(point) > self.rank(best)
            failures = 0 if better else failures + 1
            if better:
                best = point
                self._note("schedule", self._described(point), point)
            self._recalibrate()
        return best

    def _better(self, best: Point) -> Point | None:
        climbed = self._climb(best)
        if climbed is not None:
            return climbed
        close = neighbours(self.space, self.fits, best)
        close.sort(key=lambda p: (-self._score(self.estimate(p)), self._area_mm2(p), p))
        return self._improve(best, close) or self._regroup(best, close)

    def _climb(self, best: Point) -> Point | None:
        """Go to better neighbours by estimates as long as there are; schedule the last."""
        top = best
        while True:
            close = self._best_of(neighbours(self.space, self.fits, top))
            if close is None or not self._gains(close, self._score(self.estimate(top))):
                break
            top = close
        if top in self._scheduled or self.rank(top) <= self.rank(best):
            return None
        self._note("climb", f"{difference(best, top)}: {self._described(top)}", top)
        return top

    def _improve(self, best: Point, close: list[Point]) -> Point | None:
        """The first neighbour that is better when scheduled, or as good and smaller, of those that
        promise most; ``close`` has those that promise most first."""
        now = self.rank(best)
        promising = [p for p in close if p not in self._scheduled]
        for point in promising[: self.effort.patience]:
            if self.rank(point) > now:
                self._note("improve", f"{difference(best, point)}: {self._described(point)}", point)
                return point
        return None

    def _regroup(self, best: Point, close: list[Point]) -> Point | None:
        """The best of what promises more with other vector cores, in every size of array.

        Schedules of one estimate differ by how well operators' parts fit side by side, which
        depends on arrays and vector cores together.
        """
        now = self._score(self.evaluate(best))
        shapes = {(best.vector_lanes, best.vector_cores)}
        tried = []
        for point in close:
            if len(shapes) > self.effort.shapes or self._score(self.estimate(point)) <= now:
                break
            shape = point.vector_lanes, point.vector_cores
            if shape in shapes:
                continue
            shapes.add(shape)
            others = [p for p in regrouped(self.space, point) if self.fits(p)]
            tried += [p for p in (point, *others) if p not in self._scheduled]
        top = max(tried, key=self.rank, default=best)
        if self.rank(top) <= self.rank(best):
            return None
        self._note("regroup", f"{difference(best, top)}: {self._described(top)}", top)
        return top
