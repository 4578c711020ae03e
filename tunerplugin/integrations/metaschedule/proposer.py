"""From a tuner's candidates to distinct scheduled programs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from ...outcome import Outcome, Status
from ...search import LearningScorer, Tuner, TunerOptions
from ...space import Prefix
from ..compat import Schedule
from .task import IllegalCandidate, TuningTask

#: asks in a row that yield nothing new before a task counts as used up
_MAX_FRUITLESS = 16


@dataclass(frozen=True)
class Proposal:
    """A candidate and its scheduled program, which passed TVM's postprocessors."""

    values: Prefix
    schedule: Schedule


class Proposer:
    """Asks one task's tuner and lets TVM judge.

    Some candidates are one and the same program (a compute location that TVM moves outwards, a
    factor of a loop that is inlined anyway); each program is proposed once.
    """

    def __init__(
        self,
        task: TuningTask,
        predictor: LearningScorer,
        seed: int,
        options: TunerOptions | None = None,
    ) -> None:
        self.task = task
        self.tuner = Tuner(task.problem, task.space, predictor, seed=seed, options=options)
        self._programs: set[int] = set()
        self._suggested: deque[Prefix] = deque()
        #: how many candidates TVM was asked about, refused, and had seen before
        self.verdicts: Counter[str] = Counter()

    def suggest(self, candidates: Iterable[Prefix]) -> None:
        """Propose these before anything else, in this order; what is illegal is passed over."""
        legal = [values for values in candidates if self.task.space.contains(values)]
        for values in legal:
            self.tuner.discard(values)  # the search need not find them itself
        self._suggested.extend(legal)

    def propose(self, n: int) -> list[Proposal]:
        """Up to ``n`` programs that were not proposed before; fewer when the space is used up."""
        found: list[Proposal] = []
        while self._suggested and len(found) < n:
            proposal = self._judge(self._suggested.popleft())
            if proposal is not None:
                found.append(proposal)
        fruitless = 0
        while len(found) < n and fruitless < _MAX_FRUITLESS:
            before = len(found)
            candidates = self.tuner.ask(n - len(found))
            if not candidates:
                break
            for candidate in candidates:
                proposal = self._judge(candidate.values)
                if proposal is not None:
                    found.append(proposal)
            fruitless = 0 if len(found) > before else fruitless + 1
        return found

    def predict(self, width: int = 256) -> list[Proposal]:
        """Legal programs in the order in which the predictor expects them to be fast.

        The beam's candidates, re-ranked by the value head; stops at the first that TVM accepts.
        """
        for values in self.tuner.rank_beam(width):
            proposal = self._judge(values)
            if proposal is not None:
                return [proposal]
        return []

    def restore(self, values: Prefix, outcome: Outcome) -> bool:
        """Take in a candidate measured earlier; ``False`` if it no longer applies."""
        if not self.task.space.contains(values):
            return False
        try:
            self._programs.add(self.task.schedule(values).program)
        except IllegalCandidate:
            return False
        self.tuner.tell(values, outcome)
        return True

    def _judge(self, values: Prefix) -> Proposal | None:
        self.verdicts["asked"] += 1
        try:
            scheduled = self.task.schedule(values)
        except IllegalCandidate as error:
            self.verdicts["illegal"] += 1
            self.tuner.tell(values, Outcome(Status.ILLEGAL, reason=str(error)))
            return None
        if scheduled.program in self._programs:
            self.verdicts["repeated"] += 1
            self.tuner.discard(values)
            return None
        self._programs.add(scheduled.program)
        # what TVM made of it, where it moved a compute location
        canonical = self.task.values_of(scheduled.schedule.trace) or values
        if canonical != values:
            self.tuner.discard(canonical)
            values = canonical if self.task.space.contains(canonical) else values
        return Proposal(values, scheduled.schedule)
