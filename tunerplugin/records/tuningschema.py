"""The T4 auto-tuning results format (TuningSchema 1.0.0), which Kernel Tuner, KTT and the
autotuning-methodology tools read.

https://github.com/AutoTuningAssociation/TuningSchema; the field names under ``times`` and the
unit milliseconds are those that Kernel Tuner writes and autotuning-methodology adds up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import RecordError
from ..outcome import Outcome, Status
from ..space import Value
from .codec import dump
from .files import replaced
from .record import Record

SCHEMA_VERSION = "1.0.0"
#: largest T4 file that is read (the largest published ones are some 100 MB)
MAX_FILE_BYTES = 2**30

#: our end states in the schema's closed vocabulary
INVALIDITY: Mapping[Status, str] = {
    Status.OK: "correct",
    Status.ILLEGAL: "constraints",
    Status.COMPILE_ERROR: "compile",
    Status.COMPILE_CRASH: "compile",
    Status.RUN_ERROR: "runtime",
    Status.TIMEOUT: "timeout",
    Status.WRONG_RESULT: "correctness",
    Status.NON_FINITE: "runtime",
}
_STATUS_OF = {
    "correct": Status.OK,
    "constraints": Status.ILLEGAL,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.RUN_ERROR,
    "timeout": Status.TIMEOUT,
    "correctness": Status.WRONG_RESULT,
}


@dataclass(frozen=True)
class T4Row:
    """One result of a T4 file: configuration, end state, run times in milliseconds.

    ``times_ms`` is empty unless ``status`` is ``OK``.
    """

    configuration: Mapping[str, Value]
    status: Status
    times_ms: tuple[float, ...]


def export_t4(
    records: Iterable[Record],
    path: str | PathLike[str],
    names: Callable[[Record], Sequence[str]] | None = None,
) -> int:
    """Write records as a T4 results file; returns how many.

    ``names`` gives the knob names of a record (default ``knob0``, ``knob1``, ...).  Raises
    ``RecordError`` when names and values do not match or the file cannot be written.
    """
    count = 0
    with replaced(Path(path)) as file:
        file.write('{"results":[')
        for record in records:
            file.write(("," if count else "") + "\n" + dump(_result(record, names)))
            count += 1
        file.write(f'\n],"schema_version":"{SCHEMA_VERSION}"}}\n')
    return count


def import_t4(path: str | PathLike[str]) -> tuple[T4Row, ...]:
    """Read a T4 results file, ours or another tuner's.

    A result without a usable time becomes ``NON_FINITE``, never a fast one.  Raises
    ``RecordError`` when the file cannot be read or is not of the format.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise RecordError(f"expected {path} to have at most {MAX_FILE_BYTES} bytes")
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"expected a T4 results file in {path}, got no JSON ({error})") from error
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise RecordError(f"expected a T4 results file in {path}, got no list under 'results'")
    return tuple(_row(result, number, file) for number, result in enumerate(results, 1))


def _result(record: Record, names: Callable[[Record], Sequence[str]] | None) -> dict[str, object]:
    values, outcome = record.values, record.outcome
    labels = names(record) if names else [f"knob{i}" for i in range(len(values))]
    if len(set(labels)) != len(values) or len(labels) != len(values):
        raise RecordError(f"expected {len(values)} distinct knob names, got {list(labels)}")
    measurements = [
        _measurement("status", outcome.status.value),
        _measurement("reason", outcome.reason),
        _measurement("method", record.method),
        _measurement("seed", record.seed),
        _measurement("trial", record.trial),
        _measurement("elapsed", 1e3 * record.elapsed_s, "ms"),
    ]
    if outcome.latency_s is not None:
        measurements.insert(0, _measurement("time", 1e3 * outcome.latency_s, "ms"))
    return {
        "configuration": dict(zip(labels, values, strict=True)),
        "objectives": ["time"],
        "times": _times(outcome),
        "invalidity": INVALIDITY[outcome.status],
        "correctness": 1 if outcome.ok else 0,
        "measurements": measurements,
    }


def _times(outcome: Outcome) -> dict[str, object]:
    """All in milliseconds.  The cost of a candidate is known as a whole: it stands under
    ``benchmark``, the other parts are 0, and their sum is right."""
    return {
        "compilation": 0.0,
        "benchmark": 1e3 * outcome.wall_s,
        "framework": 0.0,
        "search_algorithm": 0.0,
        "validation": 0.0,
        "runtimes": [1e3 * sample for sample in outcome.samples_s],
    }


def _measurement(name: str, value: Value, unit: str = "") -> dict[str, Value]:
    return {"name": name, "value": value, "unit": unit}


def _row(result: Any, number: int, path: Path) -> T4Row:
    where = f"result {number} of {path}"
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise RecordError(f"expected a configuration object in {where}, got {str(result)[:80]}")
    invalidity = result.get("invalidity")
    if not isinstance(invalidity, str) or invalidity not in _STATUS_OF:
        allowed = ", ".join(sorted(_STATUS_OF))
        raise RecordError(f"expected invalidity of {where} in {allowed}, got {invalidity!r}")
    measured = _measured(result)
    status = _status(invalidity, measured.get("status"))
    times_ms: tuple[float, ...] = ()
    if status is Status.OK:
        times_ms = _runtimes(result, measured)
        status = Status.OK if times_ms else Status.NON_FINITE
    return T4Row(result["configuration"], status, times_ms)


def _measured(result: Mapping[str, Any]) -> dict[str, object]:
    """Measurements by name; entries that are not of the format are not looked at."""
    entries = result.get("measurements")
    if not isinstance(entries, list):
        return {}
    pairs = [(e.get("name"), e.get("value")) for e in entries if isinstance(e, dict)]
    return {name: value for name, value in pairs if isinstance(name, str)}


def _status(invalidity: str, ours: object) -> Status:
    """Our finer status where the file is ours and agrees with the vocabulary's coarser one."""
    finer = next((s for s in Status if s.value == ours and INVALIDITY[s] == invalidity), None)
    return finer or _STATUS_OF[invalidity]


def _runtimes(result: Mapping[str, Any], measured: Mapping[str, object]) -> tuple[float, ...]:
    """The repeats, else the one ``time``; empty when any of them is no finite positive time."""
    times = result.get("times")
    samples = times.get("runtimes") if isinstance(times, dict) else None
    if not isinstance(samples, list) or not samples:
        samples = [measured.get("time")]
    numbers = [float(s) for s in samples if isinstance(s, (int, float)) and not isinstance(s, bool)]
    good = len(numbers) == len(samples) and all(math.isfinite(n) and n > 0 for n in numbers)
    return tuple(numbers) if good else ()
