"""Cache files: what Kernel Tuner measured of one kernel on one device.

Format: Kernel Tuner's ``process_cache`` (util.py), plain or gzip-compressed JSON.  A file whose
tuner was stopped between two entries lacks the closing braces and is read as it stands; one that
was cut within an entry is damaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import RecordError
from ...outcome import Outcome, Status
from ...space import Value
from .files import parameter_value, parse_json, read_text
from .t1 import problem_size

_FAILURES = {
    "InvalidConfig": Status.ILLEGAL,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.RUN_ERROR,
}
#: what versions before 0.4 wrote for a configuration that did not run
_OLD_FAILURE = 1e20
_MS = 1e-3


@dataclass(frozen=True)
class Recording:
    """One cache file: ``outcomes`` by values, in the order of ``names``.

    ``device`` is the name that the driver gave, or else the file's name (AMD's driver may give
    none).  A latency is the file's own ``time``, its mean over the repeats: what Kernel Tuner's
    strategies minimise, and what optima are quoted in.
    """

    kernel: str
    device: str
    problem_size: tuple[Value, ...]
    names: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    outcomes: Mapping[tuple[Value, ...], Outcome]

    @cached_property
    def best_s(self) -> float:
        """The least latency in seconds; raises ``RecordError`` when nothing ran."""
        times = [o.latency_s for o in self.outcomes.values() if o.latency_s is not None]
        if not times:
            raise RecordError(
                f"expected a configuration that ran on {self.device}, got "
                f"{len(self.outcomes)} that did not: use another recording"
            )
        return min(times)

    def quality(self, values: tuple[Value, ...]) -> float:
        """Best latency / latency in (0, 1]; 0 for what failed or was not recorded."""
        outcome = self.outcomes.get(values)
        latency = outcome.latency_s if outcome else None
        return self.best_s / latency if latency else 0.0


def read_cache(path: str | Path) -> Recording:
    """Read a cache file.

    Raises ``InputError`` when it cannot be opened, and ``RecordError``, naming the file and the
    entry, when it is damaged or no cache.
    """
    place = Path(path)
    content = _parse(read_text(place, RecordError), place)
    names = tuple(_member(content, "tune_params_keys", list, place))
    listed = _member(content, "tune_params", dict, place)
    domains = tuple(_domain(listed, name, place) for name in names)
    entries = _member(content, "cache", dict, place)
    known = [frozenset(domain) for domain in domains]
    outcomes = {
        _values(entry, names, known, f"entry {key!r} of {place}"): _outcome(entry, key, place)
        for key, entry in entries.items()
    }
    if not outcomes or not names:
        raise RecordError(f"expected parameters and measurements in {place}, got none: tune first")
    kernel = _member(content, "kernel_name", str, place)
    device = content.get("device_name") or place.name.split(".")[0]
    return Recording(
        kernel, str(device), problem_size(content.get("problem_size")), names, domains, outcomes
    )


def _parse(text: str, path: Path) -> Any:
    """The JSON of a finished cache, or of one whose tuner still ran."""
    try:
        return parse_json(text, path, RecordError)
    except RecordError:
        stripped = text.rstrip()
        if not stripped.endswith(("},", "}")):
            raise
        closed = stripped.removesuffix(",") + "}}"
        try:
            return parse_json(closed, path, RecordError)
        except RecordError:
            pass
        raise


def _member(content: Any, key: str, kind: type, path: Path) -> Any:
    found = content.get(key) if isinstance(content, dict) else None
    if not isinstance(found, kind):
        raise RecordError(
            f"expected {key} to be a {kind.__name__} in {path}, got {found!r:.80}: "
            "use a cache file of Kernel Tuner"
        )
    return found


def _domain(listed: Mapping[str, Any], name: Any, path: Path) -> tuple[Value, ...]:
    raw = listed.get(name) if isinstance(name, str) else None
    items = raw if isinstance(raw, list) else []
    values = [value for item in items if (value := parameter_value(item)) is not None]
    if not values or len(values) != len(items):
        raise RecordError(
            f"expected a list of numbers or texts for the parameter {name!r} in {path}, "
            f"got {raw!r:.80}: use a cache file of Kernel Tuner"
        )
    return tuple(dict.fromkeys(values))


def _values(
    entry: Any, names: tuple[str, ...], known: list[frozenset[Value]], where: str
) -> tuple[Value, ...]:
    values: list[Value] = []
    for name, domain in zip(names, known, strict=True):
        raw = entry.get(name) if isinstance(entry, dict) else None
        value = parameter_value(raw)
        if value is None or value not in domain:
            raise RecordError(
                f"expected {name} among the {len(domain)} values of its parameter in {where}, "
                f"got {raw!r:.80}: fetch the file again"
            )
        values.append(value)
    return tuple(values)


def _outcome(entry: Mapping[str, Any], key: str, path: Path) -> Outcome:
    raw = entry.get("__error__", entry.get("time"))
    if isinstance(raw, str):
        status = _FAILURES.get(raw)
        if status is None:
            raise RecordError(
                f"expected a time or one of {', '.join(_FAILURES)} in entry {key!r} of {path}, "
                f"got {raw!r:.80}: use a cache file of Kernel Tuner"
            )
        return Outcome(status, reason=f"recorded as {raw}")
    time = _number(raw)
    if time is None:
        raise RecordError(
            f"expected a time in entry {key!r} of {path}, got {raw!r:.80}: fetch the file again"
        )
    if time == _OLD_FAILURE:
        return Outcome(Status.RUN_ERROR, reason=f"recorded as {_OLD_FAILURE:g}")
    return Outcome.from_samples([time * _MS], wall_s=_wall_s(entry))


def _wall_s(entry: Mapping[str, Any]) -> float:
    """What compiling, checking and timing cost, in seconds (the file has milliseconds)."""
    parts = [
        _number(entry.get(f"{part}_time")) for part in ("compile", "verification", "benchmark")
    ]
    return _MS * sum(part for part in parts if part is not None and 0 < part < math.inf)


def _number(raw: Any) -> float | None:
    """A number of the file, however large; ``None`` for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    try:
        return float(raw)
    except OverflowError:
        return math.inf
