"""One measurer for all tests here: every worker start costs seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.measure import kernels
from tunerplugin.measure import Measurer, MeasureTask

TARGET = json.dumps({"kind": "llvm", "num-cores": 2})


@pytest.fixture(scope="session")
def measurer() -> Iterator[Measurer]:
    with Measurer(jobs=2, build_deadline_s=6, run_deadline_s=5, min_repeat_ms=1) as shared:
        yield shared


@pytest.fixture(scope="session")
def kernel() -> Callable[[str], str]:
    """The text of a module of ``kernels`` by name."""
    return lambda name: kernels.text(getattr(kernels, name))


@pytest.fixture(scope="session")
def double(kernel: Callable[[str], str]) -> MeasureTask:
    """The task that most kernels here are candidates of."""
    return MeasureTask("double", kernel("Double"), TARGET)
