"""ASAP and ALAP times, slack and the critical path, as if there were cores for all.

The terms are those of high-level synthesis; WHAM calls the slack *mobility*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .problem import Precedence


@dataclass(frozen=True)
class Levels:
    """Times in cycles, by task number.

    ``asap`` and ``alap`` are starts, the latter such that the last task ends with the critical
    path.  ``tail`` is the longest path from a task's start to the end, the task included.
    """

    asap: list[int]
    alap: list[int]
    tail: list[int]
    critical_path: int

    @property
    def slack(self) -> list[int]:
        """How much later a task may start without making the whole longer."""
        return [late - early for early, late in zip(self.asap, self.alap, strict=True)]

    def critical(self) -> list[int]:
        """The tasks without slack, in order."""
        return [task for task, slack in enumerate(self.slack) if slack == 0]


def levels(precedence: Precedence, durations: Sequence[int]) -> Levels:
    """Levels of tasks that take ``durations`` cycles."""
    asap = starts_asap(precedence, durations)
    tail = [0] * len(durations)
    for task in range(len(durations) - 1, -1, -1):
        longest = 0
        for after in precedence.successors[task]:
            if tail[after] > longest:
                longest = tail[after]
        tail[task] = longest + durations[task]
    longest_path = max(tail, default=0)
    return Levels(asap, [longest_path - rest for rest in tail], tail, longest_path)


def starts_asap(precedence: Precedence, durations: Sequence[int]) -> list[int]:
    """The earliest start of each task."""
    start = [0] * len(durations)
    end = [0] * len(durations)
    for task, before in enumerate(precedence.predecessors):
        ready = 0
        for other in before:
            if end[other] > ready:
                ready = end[other]
        start[task] = ready
        end[task] = ready + durations[task]
    return start


def critical_path(precedence: Precedence, durations: Sequence[int]) -> int:
    """The length of the longest path, in cycles."""
    starts = starts_asap(precedence, durations)
    return max((s + d for s, d in zip(starts, durations, strict=True)), default=0)
