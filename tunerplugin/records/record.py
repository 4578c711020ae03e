"""What is recorded: the frozen values that every store keeps and hands back unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import RecordError
from ..outcome import Outcome
from ..space import Value


def _check_text(owner: str, name: str, text: object) -> None:
    if not isinstance(text, str):
        raise RecordError(f"expected {owner}.{name} to be a string, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordError(
            f"expected {owner}.{name} to be Unicode text, got {text!r}; "
            "decode it with errors='replace' first"
        ) from None


@dataclass(frozen=True)
class TaskKey:
    """What a measurement belongs to; records of different keys never mix.

    ``workload`` is a hash of the workload, ``target`` the canonical JSON text of the target,
    ``device`` the machine (a CPU or GPU model), ``compiler`` its name and version (for example
    ``tvm-0.27.0.post1``) and ``space`` the version of the design space: the same values mean
    another program when any of the five differs.
    """

    workload: str
    target: str
    device: str
    compiler: str
    space: str

    def __post_init__(self) -> None:
        for name in ("workload", "target", "device", "compiler", "space"):
            _check_text("TaskKey", name, getattr(self, name))


@dataclass(frozen=True)
class Workload:
    """One workload: ``key`` as in ``TaskKey.workload``, a name for people, opaque JSON text."""

    key: str
    name: str
    module: str = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("key", "name", "module"):
            _check_text("Workload", name, getattr(self, name))


@dataclass(frozen=True)
class Record:
    """One measured candidate.

    ``values`` is its knob sequence and ``method`` says who proposed it (``"ours"``, ``"random"``,
    ``"untuned"``); ``trial`` is its number within (key, method).  ``elapsed_s`` is the tuning-loop
    time in seconds at acknowledgement, cumulated over resumed runs.  ``trace`` is opaque JSON text
    for exports.  Two records that agree in every field are one record.

    Raises ``RecordError`` for what cannot be stored without loss, NaN and infinities among it.
    """

    key: TaskKey
    values: tuple[Value, ...]
    outcome: Outcome
    method: str
    seed: int
    trial: int
    elapsed_s: float
    trace: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_text("Record", "method", self.method)
        _check_text("Record", "trace", self.trace)
        for name in ("seed", "trial"):
            number = getattr(self, name)
            if type(number) is not int or number < 0:
                raise RecordError(f"expected Record.{name} to be an int >= 0, got {number!r}")
        for name, seconds in (("elapsed_s", self.elapsed_s), ("wall_s", self.outcome.wall_s)):
            if not (math.isfinite(seconds) and seconds >= 0):
                raise RecordError(f"expected {name} to be finite seconds >= 0, got {seconds!r}")
        if not isinstance(self.values, tuple):
            raise RecordError(f"expected Record.values to be a tuple, got {self.values!r}")
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise RecordError(
                    f"expected int, float or str values, got {value!r}; write booleans as 0 and 1"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise RecordError(f"expected finite values, got {value!r}")


@dataclass(frozen=True)
class Run:
    """One run of a tuner: what made the records.

    ``started`` is wall-clock UTC in ISO 8601 (for people; budgets use ``Record.elapsed_s``),
    ``info`` holds seed, versions and arguments, ``records`` counts what the run stored.
    """

    number: int
    started: str
    info: Mapping[str, str]
    records: int
