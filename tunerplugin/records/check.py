"""Is a record file sound, and if not, what is lost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..errors import RecordError
from .sqlite import SQLiteStore
from .sqlite_file import SCHEMA_VERSION, integrity_problems, open_to_read


@dataclass(frozen=True)
class CheckReport:
    """What ``check`` found.

    ``records`` and ``workloads`` count the sound ones; ``damaged_records`` and
    ``damaged_workloads`` are row numbers, from 1 in the order of acknowledgement; ``problems``
    are lines for people: SQLite's integrity findings and tables that cannot be read at all.
    """

    path: Path
    schema_version: int
    records: int
    workloads: int
    damaged_records: tuple[int, ...] = ()
    damaged_workloads: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not (self.damaged_records or self.damaged_workloads or self.problems)


def check(path: str | PathLike[str]) -> CheckReport:
    """Read every byte of a record store and decode every row, without changing the file.

    Raises ``RecordError`` when it is not a record store of this version (missing, foreign,
    newer, or damaged where its tables are described).
    """
    file = Path(path)
    with closing(open_to_read(file)) as connection:
        problems = list(integrity_problems(connection))
    sound = {"records": 0, "workloads": 0}
    damaged: dict[str, list[int]] = {"records": [], "workloads": []}
    with SQLiteStore(file, read_only=True) as store:
        scans: dict[str, Callable[[], Iterator[tuple[int, object]]]] = {
            "records": store.scan_records,
            "workloads": store.scan_workloads,
        }
        for table, scan in scans.items():
            try:
                for number, row in scan():
                    if row is None:
                        damaged[table].append(number)
                    else:
                        sound[table] += 1
            except RecordError as error:
                problems.append(f"{table}: {error}")
        try:
            store.runs()
        except RecordError as error:
            problems.append(f"runs: {error}")
    return CheckReport(
        path=file,
        schema_version=SCHEMA_VERSION,
        records=sound["records"],
        workloads=sound["workloads"],
        damaged_records=tuple(damaged["records"]),
        damaged_workloads=tuple(damaged["workloads"]),
        problems=tuple(problems),
    )
