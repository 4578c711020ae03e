"""Writing tuples where MIOpen looks for a user's: its text performance database.

A line is ``key=solver:values;solver:values``, one for each problem (ROCm/MIOpen
``src/db_record.cpp``).  MIOpen reads ``<device>.<version>.udb.txt`` in its user database folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import InputError
from ...records.files import replaced
from .problem import ConvProblem, format_key
from .solvers import solver_of

Entry = tuple[ConvProblem, str, Sequence[int]]
"""A problem, a solver's name, and its tuple."""


def write_user_db(path: Path, entries: Iterable[Entry]) -> int:
    """Write ``entries`` into a user database, new or not; returns how many tuples it changed.

    Whatever else an existing file holds stays, in its order; a tuple of the same problem and solver
    is replaced.  The file changes as a whole or not at all; MIOpen must not write it meanwhile.
    Raises ``InputError`` for an unknown solver, a tuple of another length or a file that is not
    such a database, and ``RecordError`` when the file cannot be written.
    """
    wanted = _by_key(entries)
    lines, changed = [], 0
    for line in _existing(path):
        key, equals, contents = line.partition("=")
        new = wanted.pop(key, None) if equals else None
        if new is not None:
            line, count = _merged(key, contents, new)
            changed += count
        lines.append(line)
    for key, new in wanted.items():
        line, count = _merged(key, "", new)
        lines.append(line)
        changed += count
    with replaced(path) as file:
        file.writelines(f"{line}\n" for line in lines)
    return changed


def _by_key(entries: Iterable[Entry]) -> dict[str, dict[str, str]]:
    """The tuples as text, by key and solver; of equal ones, the last."""
    wanted: dict[str, dict[str, str]] = {}
    for problem, name, values in entries:
        fields = solver_of(name).fields
        if len(values) != len(fields):
            raise InputError(
                f"expected {len(fields)} values for {name} ({', '.join(fields)}), got {values}"
            )
        wanted.setdefault(format_key(problem), {})[name] = ",".join(str(int(v)) for v in values)
    return wanted


def _existing(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            f"expected a readable database, got {path}: {error.strerror}; name a file"
        ) from error
    if not data.isascii() or b"\x00" in data:
        raise InputError(
            f"expected a text database, got {path} with other bytes; choose another file"
        )
    return [line for line in data.decode("ascii").splitlines() if line.strip()]


def _merged(key: str, contents: str, new: dict[str, str]) -> tuple[str, int]:
    """A line with new tuples in place of the old, and how many differ."""
    items = [item for item in contents.split(";") if item]
    old = dict(reversed([item.partition(":")[::2] for item in items]))  # MIOpen takes the first
    changed = sum(old.get(solver) != values for solver, values in new.items())
    kept = [
        f"{solver}:{new[solver]}" if (solver := item.partition(":")[0]) in new else item
        for item in items
    ]
    added = [f"{solver}:{values}" for solver, values in new.items() if solver not in old]
    return f"{key}={';'.join([*kept, *added])}", changed
