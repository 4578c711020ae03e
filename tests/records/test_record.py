"""What a record refuses: everything that a store could not give back unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tunerplugin.errors import RecordError
from tunerplugin.outcome import Outcome, Status
from tunerplugin.records import TaskKey, Workload
from tunerplugin.testing.records import KEY, make_record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [1, 2]}, r"expected Record.values to be a tuple, got \[1, 2\]"),
        ({"values": (True,)}, "got True; write booleans as 0 and 1"),
        ({"values": (None,)}, "expected int, float or str values, got None"),
        ({"values": (np.int64(3),)}, "expected int, float or str values, got"),
        ({"values": (float("inf"),)}, "expected finite values, got inf"),
        ({"trial": -1}, "expected Record.trial to be an int >= 0, got -1"),
        ({"trial": 1.0}, "expected Record.trial to be an int >= 0, got 1.0"),
        ({"seed": None}, "expected Record.seed to be an int >= 0, got None"),
        ({"elapsed_s": -0.1}, "expected elapsed_s to be finite seconds >= 0, got -0.1"),
        ({"outcome": Outcome(Status.TIMEOUT, wall_s=float("nan"))}, "expected wall_s to be finite"),
        ({"method": 3}, "expected Record.method to be a string, got 3"),
        ({"trace": "\udcff"}, "expected Record.trace to be Unicode text"),
    ],
)
def test_bad_fields(change: dict[str, object], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        replace(make_record(), **change)  # type: ignore[arg-type]


def test_bad_keys_and_workloads() -> None:
    with pytest.raises(RecordError, match="expected TaskKey.device to be a string, got None"):
        replace(KEY, device=None)  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="decode it with errors='replace' first"):
        TaskKey("w", "t", "\udc80", "c", "s")
    with pytest.raises(RecordError, match="expected Workload.module to be a string"):
        Workload("w", "name", {})  # type: ignore[arg-type]
