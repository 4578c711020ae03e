"""What every record store must do.

class TestMyStore(RecordStoreConformance):
    def make_store(self, tmp_path):
        return MyStore(tmp_path / "records")
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ..errors import RecordError
from ..outcome import Outcome, Status
from ..records import Record, RecordStore, TaskKey, Workload

KEY = TaskKey("9f86d081", '{"kind":"llvm"}', "example-cpu", "tvm-0.27.0", "1")


def make_record(trial: int = 0, key: TaskKey = KEY, method: str = "ours") -> Record:
    """A measured record; ``trial`` makes its values, times and elapsed seconds distinct."""
    outcome = Outcome.from_samples((0.001 + trial * 1e-6, 0.0011), wall_s=0.25)
    return Record(key, (trial, 2.5, "unroll"), outcome, method, 7, trial, 0.5 * trial, '["trace"]')


class RecordStoreConformance(ABC):
    """Inherit, override ``make_store``, and let pytest collect the subclass."""

    @abstractmethod
    def make_store(self, tmp_path: Path) -> RecordStore:
        """A new, empty store; ``tmp_path`` is a writable directory of this test's own."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[RecordStore]:
        """The store under test, closed after it."""
        with self.make_store(tmp_path) as store:
            yield store

    def test_new_store_is_empty(self, store: RecordStore) -> None:
        """Nothing is there before something is put there."""
        assert list(store.records()) == []
        assert list(store.workloads()) == []
        assert store.count() == 0
        assert store.tasks() == {} and store.runs() == ()

    def test_records_come_back_equal_and_in_order(self, store: RecordStore) -> None:
        """Also when trials are acknowledged out of order."""
        records = [make_record(trial) for trial in (3, 1, 2)]
        assert [store.append(record) for record in records] == [True] * 3
        assert list(store.records()) == records
        assert store.count() == 3

    @pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
    def test_failures_are_kept_with_their_reason(self, store: RecordStore, status: Status) -> None:
        """Every end state comes back with its text, whatever the compiler wrote."""
        reason = 'line 1\nline 2\t"quoted" \\ \x00 é 漢 \U0001f600 \udcff'
        record = replace(make_record(), outcome=Outcome(status, (), reason, 1.5))
        store.append(record)
        assert list(store.records()) == [record]

    def test_value_types_survive(self, store: RecordStore) -> None:
        """1, 1.0 and "1" are three values; large ints and long fractions lose nothing."""
        values = (1, 1.0, "1", -(2**80), 0.1 + 0.2, 5e-324, "", "é\x00")
        store.append(replace(make_record(), values=values))
        (record,) = store.records()
        assert record.values == values
        assert [type(value) for value in record.values] == [type(value) for value in values]

    def test_same_record_is_kept_once(self, store: RecordStore) -> None:
        """Replaying a run adds nothing; a record that differs in one field is another record."""
        first = make_record()
        others = [
            replace(first, trial=1),
            replace(first, seed=8),
            replace(first, elapsed_s=9.0),
            replace(first, method="random"),
            replace(first, values=(0.0, 2.5, "unroll")),
            replace(first, trace=""),
            replace(first, key=replace(KEY, space="2")),
            replace(first, outcome=replace(first.outcome, wall_s=0.5)),
        ]
        for record in (first, *others):
            assert store.append(record)
            assert not store.append(record)
        assert list(store.records()) == [first, *others]

    def test_extend_counts_what_is_new(self, store: RecordStore) -> None:
        """Duplicates within the batch and with the store are left out."""
        store.append(make_record(0))
        batch = [make_record(trial) for trial in (0, 1, 2, 1)]
        assert store.extend(iter(batch)) == 2
        assert [record.trial for record in store.records()] == [0, 1, 2]

    @pytest.mark.parametrize("field", ["workload", "target", "device", "compiler", "space"])
    def test_keys_never_mix(self, store: RecordStore, field: str) -> None:
        """Another key, in any one field, sees nothing."""
        other = replace(KEY, **{field: "other"})
        store.append(make_record())
        assert list(store.records(other)) == [] and store.count(other) == 0
        store.append(make_record(1, other))
        assert [record.trial for record in store.records(KEY)] == [0]
        assert [record.trial for record in store.records(other)] == [1]
        assert store.tasks() == {KEY: 1, other: 1}

    def test_ignored_counts_by_field(self, store: RecordStore) -> None:
        """Foreign records of the workload count once each, by the first differing field."""
        foreign = [
            replace(KEY, target="other"),
            replace(KEY, target="other", device="other", space="other"),
            replace(KEY, device="other"),
            replace(KEY, compiler="other"),
            replace(KEY, space="other"),
            replace(KEY, space="third"),
            replace(KEY, workload="other", target="other"),
        ]
        store.append(make_record())
        for key in foreign:
            store.append(make_record(0, key))
        assert store.ignored(KEY) == {"target": 2, "device": 1, "compiler": 1, "space": 2}
        assert store.ignored(replace(KEY, workload="unknown")) == {}
        store.append(make_record(1, foreign[2], "imported"))
        assert store.ignored(KEY)["device"] == 2
        assert store.ignored(KEY, apart_from="imported")["device"] == 1
        assert store.ignored(KEY, apart_from="ours") == {"device": 1}

    def test_filter_by_method(self, store: RecordStore) -> None:
        """With and without a key."""
        other = replace(KEY, device="other")
        for trial, method in enumerate(("untuned", "ours", "random", "ours")):
            store.append(make_record(trial, KEY, method))
        store.append(make_record(9, other, "ours"))
        assert [record.trial for record in store.records(KEY, "ours")] == [1, 3]
        assert [record.trial for record in store.records(method="ours")] == [1, 3, 9]
        assert store.count(KEY, "ours") == 2 and store.count(method="ours") == 3
        assert store.count(KEY) == 4 and store.count(KEY, "unknown") == 0

    def test_appending_while_reading(self, store: RecordStore) -> None:
        """The iterator ends with the record that was last when it started."""
        store.extend(make_record(trial) for trial in range(3))
        seen = []
        for record in store.records():
            seen.append(record.trial)
            store.append(make_record(10 + record.trial))
        assert seen == [0, 1, 2]
        assert store.count() == 6

    def test_workloads_are_kept_once(self, store: RecordStore) -> None:
        """The first text stays; order is that of arrival."""
        first, second = Workload("b", "conv", '{"é": 1}'), Workload("a", "dense", "{}")
        for workload in (first, second, first, Workload("b", "renamed", "[]")):
            store.put_workload(workload)
        assert list(store.workloads()) == [first, second]

    def test_runs_own_their_records(self, store: RecordStore) -> None:
        """Records count for the run that was started last; duplicates count for nobody."""
        store.append(make_record(0))
        assert store.start_run({"seed": "0", "argv": "tune é \udcff"}) == 1
        store.extend([make_record(0), make_record(1), make_record(2)])
        assert store.start_run({}) == 2
        store.append(make_record(3))
        first, second = store.runs()
        assert (first.number, first.records, second.number, second.records) == (1, 2, 2, 1)
        assert dict(first.info) == {"seed": "0", "argv": "tune é \udcff"}
        assert dict(second.info) == {}
        assert first.started <= second.started and "T" in first.started

    def test_run_information_is_text(self, store: RecordStore) -> None:
        """A number is refused before it is stored."""
        with pytest.raises(RecordError, match="expected run information as text, got 'seed': 0"):
            store.start_run({"seed": 0})  # type: ignore[dict-item]
        assert store.runs() == ()

    def test_nan_cannot_be_recorded(self, store: RecordStore) -> None:
        """Neither as a time, nor as a value, nor as a cost; the measurement becomes a failure."""
        with pytest.raises(ValueError, match="finite positive"):
            Outcome(Status.OK, (math.nan,))
        for bad in ({"values": (math.nan,)}, {"elapsed_s": math.inf}, {"elapsed_s": math.nan}):
            with pytest.raises(RecordError, match="finite"):
                replace(make_record(), **bad)
        store.append(replace(make_record(), outcome=Outcome.from_samples((math.nan,))))
        (record,) = store.records()
        assert record.outcome.status is Status.NON_FINITE and record.outcome.latency_s is None

    def test_close_twice(self, tmp_path: Path) -> None:
        """Closing is idempotent, by hand and by the context manager."""
        with self.make_store(tmp_path) as store:
            store.append(make_record())
            store.close()
        store.close()
