"""Tasks are made once: the first design space of a process takes TVM seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import tvm

from tests.integrations import workloads
from tunerplugin.integrations.compat import ms, normalize_mod
from tunerplugin.integrations.metaschedule.limits import complete_target
from tunerplugin.integrations.metaschedule.task import TuningTask

CONFIGS: dict[str, dict[str, Any]] = {
    "llvm": {"kind": "llvm", "num-cores": 2, "mcpu": "x86-64-v3"},
    "cuda": {
        "kind": "cuda",
        "arch": "sm_70",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
    },
    # from sm_80 on TVM adds sketches with asynchronous copies into a pipelined shared buffer
    "ampere": {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
    },
    "opencl": {
        "kind": "opencl",
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 16384,
    },
}


@cache
def _task(operator: str, kind: str) -> TuningTask:
    function = getattr(workloads, operator)()
    target = complete_target(tvm.target.Target(CONFIGS[kind]))
    return TuningTask(operator, normalize_mod(function), target)


@pytest.fixture(scope="session")
def task() -> Callable[[str, str], TuningTask]:
    """The tuning task of a workload on a kind of target."""
    return _task


@pytest.fixture(autouse=True)
def tvm_logger_as_new() -> None:
    """TVM's logger set-up, called a second time, trips over the handler without a name that pytest
    gives to loggers that do not propagate."""
    logging.getLogger(ms.__name__).propagate = True
