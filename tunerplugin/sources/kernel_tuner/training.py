"""What a predictor learns from recordings: each device in turn as if only the others were known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...errors import RecordError
from ...predictor import Example, OnStep, Predictor
from ..trained import Trained
from .cache import Recording
from .space import References, problem_of, space_of_recordings

#: of the configurations taken from one recording, the share that comes from its fastest tenth
_FAST_SHARE = 0.5

EPOCHS = 10
EXAMPLES = 400
"""Configurations taken from each recording."""


def train(
    recordings: Sequence[Recording],
    seed: int = 0,
    epochs: int = EPOCHS,
    per_recording: int = EXAMPLES,
    on_step: OnStep | None = None,
) -> Trained:
    """A predictor for ``transfer_scorer``, trained on every recording of every kernel.

    Raises ``RecordError`` when there is none.
    """
    groups = group_by_kernel(recordings)
    examples = [e for group in groups for e in examples_of(group, per_recording, seed)]
    if not examples:
        raise RecordError("expected recordings to learn from, got none: give cache files")
    predictor = Predictor(seed)
    report = predictor.fit(examples, epochs=epochs, on_step=on_step)
    rest = sum(len(recording.outcomes) for recording in recordings) - len(examples)
    left_out = +Counter({"configuration beyond the sample of its recording": rest})
    return Trained(predictor, len(examples), left_out, report.decision_loss)


def group_by_kernel(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Recordings of one kernel with the same parameters, in order of first appearance."""
    groups: dict[tuple[str, tuple[str, ...]], list[Recording]] = {}
    for recording in recordings:
        groups.setdefault((recording.kernel, recording.names), []).append(recording)
    return list(groups.values())


def examples_of(recordings: Sequence[Recording], per_recording: int, seed: int) -> list[Example]:
    """Examples of every recording of one kernel, with the other devices as references.

    Half of the ``per_recording`` configurations are drawn from the fastest tenth, the rest from
    all others, failures among them.  With a single recording there is nothing to refer to.
    """
    examples: list[Example] = []
    for number, recording in enumerate(recordings):
        others = [other for other in recordings if other is not recording]
        references = References(recording.device, others) if others else None
        space = space_of_recordings([recording], references)
        problem = problem_of(
            recording.kernel, recording.device, recording.names, recording.problem_size
        )
        rng = np.random.default_rng([seed, number])
        for values in _drawn(recording, per_recording, rng):
            steps, describe = space.steps(values), space.describe(values)
            examples.append(Example(problem, steps, describe, recording.quality(values) or None))
    return examples


def _drawn(
    recording: Recording, count: int, rng: np.random.Generator
) -> list[tuple[int | float | str, ...]]:
    ranked = sorted(recording.outcomes, key=lambda values: -recording.quality(values))
    tenth = max(1, len(ranked) // 10)
    fast, rest = ranked[:tenth], ranked[tenth:]
    first = min(len(fast), round(count * _FAST_SHARE))
    chosen = [fast[i] for i in rng.permutation(len(fast))[:first]]
    chosen += [rest[i] for i in rng.permutation(len(rest))[: count - first]]
    return list(dict.fromkeys([ranked[0], *chosen]))
