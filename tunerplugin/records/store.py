"""The record store interface, and the store that lives in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from ..errors import RecordError
from .codec import record_digest
from .record import Record, Run, TaskKey, Workload

#: the order in which a foreign record's differing field is looked for
_FOREIGN_FIELDS = ("target", "device", "compiler", "space")

#: the record file of a work directory
STORE_NAME = "records.sqlite"


def utc_now() -> str:
    """Wall-clock time for people, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RecordStore(ABC):
    """Keeps workloads, records and runs; an acknowledged record is never lost or changed.

    A third-party store gives the six abstract methods and passes
    ``tunerplugin.testing.RecordStoreConformance``; the other methods follow from them and are
    overridden only for speed.  Every method raises ``RecordError`` when the store cannot be read
    or written.  A store belongs to the thread that opened it.
    """

    @abstractmethod
    def put_workload(self, workload: Workload) -> None:
        """Keep a workload; a key that is there already stays as it is."""

    @abstractmethod
    def workloads(self) -> Iterator[Workload]:
        """Every workload, in the order of ``put_workload``."""

    @abstractmethod
    def append(self, record: Record) -> bool:
        """Keep a record durably, or raise.

        Returning is the acknowledgement.  ``False`` means that this very record (equal in every
        field) was there already, so that a replayed or imported run adds nothing twice.
        """

    @abstractmethod
    def records(self, key: TaskKey | None = None, method: str | None = None) -> Iterator[Record]:
        """Records of that key and method (``None``: all) in the order of their acknowledgement.

        The iterator ends with the last record that was there when it started, so that a loop may
        append.
        """

    @abstractmethod
    def start_run(self, info: Mapping[str, str]) -> int:
        """Note a run (seed, versions, arguments), return its number; later appends are its own."""

    @abstractmethod
    def runs(self) -> tuple[Run, ...]:
        """Every run in order, numbered from 1."""

    def extend(self, records: Iterable[Record]) -> int:
        """Append several records; returns how many were new."""
        return sum(self.append(record) for record in records)

    def count(self, key: TaskKey | None = None, method: str | None = None) -> int:
        """How many records ``append`` acknowledged for that key and method."""
        return sum(1 for _ in self.records(key, method))

    def tasks(self) -> dict[TaskKey, int]:
        """Every key with records, and how many."""
        return dict(Counter(record.key for record in self.records()))

    def ignored(self, key: TaskKey, apart_from: str | None = None) -> dict[str, int]:
        """Records of the same workload that ``records(key)`` leaves out, by the field that differs.

        Each counts once, under the first of target, device, compiler and space that differs;
        a field without any is absent.  Those by the method ``apart_from`` do not count.
        """
        counts: Counter[str] = Counter()
        for other, count in self.tasks().items():
            if other.workload == key.workload and other != key:
                differing = (f for f in _FOREIGN_FIELDS if getattr(other, f) != getattr(key, f))
                apart = 0 if apart_from is None else self.count(other, apart_from)
                counts[next(differing)] += count - apart
        return dict(+counts)

    def close(self) -> None:  # noqa: B027  (a store without resources has nothing to close)
        """Release files and locks; calling it twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MemoryStore(RecordStore):
    """A store for tests and one-off searches: everything is gone when the process ends."""

    def __init__(self) -> None:
        self._workloads: dict[str, Workload] = {}
        self._records: dict[bytes, Record] = {}
        self._runs: list[Run] = []

    def put_workload(self, workload: Workload) -> None:
        """See ``RecordStore.put_workload``."""
        self._workloads.setdefault(workload.key, workload)

    def workloads(self) -> Iterator[Workload]:
        """See ``RecordStore.workloads``."""
        return iter(tuple(self._workloads.values()))

    def append(self, record: Record) -> bool:
        """See ``RecordStore.append``."""
        identity = record_digest(record)
        if identity in self._records:
            return False
        self._records[identity] = record
        if self._runs:
            self._runs[-1] = replace(self._runs[-1], records=self._runs[-1].records + 1)
        return True

    def records(self, key: TaskKey | None = None, method: str | None = None) -> Iterator[Record]:
        """See ``RecordStore.records``."""
        snapshot = tuple(self._records.values())
        return (
            record
            for record in snapshot
            if (key is None or record.key == key) and (method is None or record.method == method)
        )

    def start_run(self, info: Mapping[str, str]) -> int:
        """See ``RecordStore.start_run``."""
        check_info(info)
        self._runs.append(Run(len(self._runs) + 1, utc_now(), dict(info), 0))
        return len(self._runs)

    def runs(self) -> tuple[Run, ...]:
        """See ``RecordStore.runs``."""
        return tuple(self._runs)


def check_info(info: Mapping[str, str]) -> None:
    """Refuse run information that is not text."""
    for name, text in info.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise RecordError(f"expected run information as text, got {name!r}: {text!r}")
