"""Kernel Tuner spaces as ours, with what other devices tell about a configuration.

Where a T1 file says what is legal, its conditions are the constraints; where there is none, the
recorded configurations are the space.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ...errors import SpaceError
from ...space import Constraint, ListSpace, Prefix, Problem, Value, Word
from .cache import Recording
from .conditions import Condition, Recorded
from .devices import device_words, likeness
from .t1 import SpaceFile

#: of a speed in a description: finer than measurements are reproducible
_DIGITS = 3


class References:
    """Recordings of one kernel on other devices, as seen from the device to be tuned for.

    They may cover other parts of the space.
    """

    def __init__(self, device: str, recordings: Sequence[Recording]) -> None:
        #: (likeness to the device, recording)
        self.weighted = tuple((likeness(device, other.device), other) for other in recordings)

    def speed(self, values: Prefix) -> float | None:
        """Mean quality on the other devices in [0, 1], weighted by likeness.

        ``None`` for what none of them recorded.
        """
        known = [(w, r.quality(values)) for w, r in self.weighted if values in r.outcomes]
        if not known:
            return None
        return math.fsum(w * q for w, q in known) / math.fsum(w for w, _ in known)

    def speeds(self, values: Prefix) -> dict[float, float]:
        """Mean quality on the other devices of each likeness that recorded these values."""
        groups: dict[float, list[float]] = {}
        for weight, recording in self.weighted:
            if values in recording.outcomes:
                groups.setdefault(weight, []).append(recording.quality(values))
        return {weight: math.fsum(group) / len(group) for weight, group in sorted(groups.items())}

    def words(self, values: Prefix) -> tuple[Word, ...]:
        """The speeds as words: by likeness, and the weighted mean."""
        words: list[Word] = [
            (f"speed_at_likeness_{weight:g}", round(speed, _DIGITS))
            for weight, speed in self.speeds(values).items()
        ]
        mean = self.speed(values)
        return (*words, ("speed_elsewhere", round(mean, _DIGITS))) if mean is not None else ()


class KernelTunerSpace(ListSpace):
    """The parameters of one kernel, in their order.

    ``references``, if any, enter the description of a configuration.
    """

    def __init__(
        self,
        names: Sequence[str],
        domains: Sequence[Sequence[Value]],
        constraints: Sequence[Constraint],
        references: References | None = None,
    ) -> None:
        super().__init__(
            names, domains, constraints, [parameter_words(name) for name in names], version="1"
        )
        self.references = references
        self._block = [i for i, name in enumerate(names) if name.startswith("block_size")]
        self._tile = [i for i, name in enumerate(names) if name.startswith("tile_size")]

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """Threads of a block, elements of a thread, and what other devices made of it."""
        words: list[Word] = []
        for field, positions in (("threads", self._block), ("elements", self._tile)):
            sizes = [size for i in positions if isinstance(size := values[i], int)]
            if sizes:
                words.append((field, math.prod(sizes)))
        return (*words, *(self.references.words(values) if self.references else ()))


def space_of_file(file: SpaceFile, references: References | None = None) -> KernelTunerSpace:
    """The space that a T1 file describes."""
    conditions = [Condition(text, file.names, file.domains) for text in file.conditions]
    return KernelTunerSpace(file.names, file.domains, conditions, references)


def space_of_recordings(
    recordings: Sequence[Recording], references: References | None = None
) -> KernelTunerSpace:
    """The space of everything that was recorded of one kernel.

    Raises ``SpaceError`` when the recordings' parameters differ.
    """
    first = recordings[0]
    for other in recordings[1:]:
        if other.names != first.names or other.domains != first.domains:
            raise SpaceError(
                f"expected the parameters {first.names} of {first.device} on {other.device} too, "
                f"got {other.names} or other values: read one kernel's files at a time"
            )
    recorded = Recorded(values for recording in recordings for values in recording.outcomes)
    return KernelTunerSpace(first.names, first.domains, [recorded], references)


def problem_of(
    kernel: str, device: str, names: Sequence[str], problem_size: Sequence[Value] = ()
) -> Problem:
    """The words of tuning a kernel on a device; a GPU of the table is known by its figures."""
    words: list[Word] = [("source", "kernel_tuner"), ("kernel", kernel)]
    words += [(f"extent_{axis}", extent) for axis, extent in enumerate(problem_size)]
    words.append(("parameters", len(names)))
    return Problem((*words, *device_words(device)))


def parameter_words(name: str) -> tuple[Word, ...]:
    """What a parameter is, from its name: ``block_size_x`` is the block size along x."""
    words: list[Word] = [("knob", name)]
    parts = [part.lower() for part in re.findall(r"[A-Za-z]+|\d+", name)]
    if len(parts) > 1 and (len(parts[-1]) == 1 or parts[-1].isdigit()):
        words.append(("axis", parts.pop()))
    words.append(("kind", "_".join(parts) or name))
    words += [("part", part) for part in parts] if len(parts) > 1 else []
    return tuple(words)
