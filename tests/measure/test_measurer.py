"""Every way a candidate can end, with real candidates."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import psutil
import pytest

from tests.measure import kernels
from tunerplugin.errors import MeasureError
from tunerplugin.measure import Measurer, MeasureTask, Request, bench
from tunerplugin.outcome import Outcome, Status

Kernel = Callable[[str], str]

EXPECTED = {
    "Double": (Status.OK, ""),
    "CrashesLlvm": (Status.COMPILE_CRASH, "killed by signal 6 (SIGABRT): LLVM ERROR: Cannot sel"),
    "NeedsGpu": (Status.COMPILE_ERROR, "InternalError: "),
    "BuildsForever": (Status.TIMEOUT, "build took longer than 6 s"),
    "Hangs": (Status.TIMEOUT, "run took longer than 5 s"),
    "Wrong": (Status.WRONG_RESULT, "seed 0, b: max difference 0.25, limit "),
    "Aborts": (Status.RUN_ERROR, "killed by signal 6 (SIGABRT)"),
    "NotANumber": (Status.NON_FINITE, "seed 0, b: 16 values are NaN or infinite"),
    "WildWrite": (Status.RUN_ERROR, "killed by signal 11 (SIGSEGV)"),
    "SpoilsInput": (Status.WRONG_RESULT, "seed 0, a: max difference "),
    "OtherShape": (Status.WRONG_RESULT, "expected parameters [((16,), 'float32'), ((16,"),
    "Prints": (Status.OK, ""),
    "Garbage": (Status.COMPILE_ERROR, ""),
    "Vectorized": (Status.OK, ""),
}


def one(measurer: Measurer, task: MeasureTask, module: str) -> Outcome:
    ((index, outcome),) = measurer.measure(task, [Request(7, module)])
    assert index == 7
    return outcome


@pytest.fixture(scope="module")
def outcomes(measurer: Measurer, kernel: Kernel, double: MeasureTask) -> dict[str, Outcome]:
    names = list(EXPECTED)
    modules = ["no module" if n == "Garbage" else kernel(n) for n in names]
    requests = [Request(i, text) for i, text in enumerate(modules)]
    seen = [(names[i], outcome) for i, outcome in measurer.measure(double, requests)]
    assert len(seen) == len(names), "each request has exactly one outcome"
    return dict(seen)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_candidate_of_a_hostile_batch_ends_as_expected(
    outcomes: dict[str, Outcome], name: str
) -> None:
    status, reason = EXPECTED[name]
    outcome = outcomes[name]
    assert (outcome.status, outcome.reason[: len(reason)]) == (status, reason)
    assert "\n" not in outcome.reason
    assert len(outcome.samples_s) == (3 if outcome.ok else 0)
    assert outcome.wall_s > 0


def test_verify_names_the_seed_that_fails(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    assert measurer.verify(double, kernel("Vectorized"), [1, 2]).ok
    # It errs where the first input is above 0.5, which seed 4 is the first to give.
    assert measurer.verify(double, kernel("WrongForSomeSeeds"), [1, 2, 3]).ok
    wrong = measurer.verify(double, kernel("WrongForSomeSeeds"), [3, 4, 5])
    assert wrong.status is Status.WRONG_RESULT
    assert wrong.reason.startswith("seed 4, b: max difference ")
    with pytest.raises(MeasureError, match="at least one seed"):
        measurer.verify(double, kernel("Double"), [])


def test_time_pair_samples_each_round_and_keeps_failures_apart(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    names = ["Double", "Aborts", "Vectorized"]
    untuned, broken, tuned = measurer.time_pair(double, [kernel(n) for n in names], rounds=4)
    assert len(untuned.samples_s) == len(tuned.samples_s) == 4
    assert broken.status is Status.RUN_ERROR


def test_in_place_buffers_start_random_and_are_compared(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    task = MeasureTask("in place", kernel("InPlace"), double.target)
    assert one(measurer, task, kernel("InPlace")).ok
    assert one(measurer, task, kernel("InPlaceIgnoresOld")).status is Status.WRONG_RESULT


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32", "bool"])
def test_dtypes(measurer: Measurer, double: MeasureTask, dtype: str) -> None:
    task = MeasureTask(dtype, kernels.select(dtype, later=False), double.target)
    assert one(measurer, task, task.module).ok
    wrong = kernels.select(dtype, later=True)
    assert one(measurer, task, wrong).status is Status.WRONG_RESULT


def test_a_weight_in_another_layout_is_checked_and_timed(
    measurer: Measurer, double: MeasureTask
) -> None:
    untuned, tuned = kernels.matmul_with_moved_weight()
    assert one(measurer, MeasureTask("layout", untuned, double.target), tuned).ok


def test_slow_candidates_are_not_repeated(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    outcome = one(measurer, double, kernel("TakesOverASecond"))
    assert outcome.ok
    assert len(outcome.samples_s) == 1
    assert outcome.samples_s[0] > 1


@pytest.mark.parametrize("name", ["Aborts", "NeedsGpu"])
def test_a_task_whose_untuned_module_fails_is_refused(
    measurer: Measurer, kernel: Kernel, double: MeasureTask, name: str
) -> None:
    task = MeasureTask("bad task", kernel(name), double.target)
    with pytest.raises(MeasureError, match="untuned module of task bad task"):
        one(measurer, task, kernel("Double"))


def test_a_missing_device_is_told_in_one_sentence(kernel: Kernel, double: MeasureTask) -> None:
    missing = "cuda" if sys.platform == "darwin" else "metal"
    with Measurer(jobs=1, device=missing) as no_device:
        with pytest.raises(MeasureError, match=f"device '{missing}' does not exist"):
            one(no_device, double, kernel("Double"))


def test_bad_arguments_and_a_closed_measurer_are_refused(
    kernel: Kernel, double: MeasureTask
) -> None:
    with pytest.raises(MeasureError, match="jobs=0"):
        Measurer(jobs=0)
    closed = Measurer(jobs=1)
    closed.close()
    closed.close()
    with pytest.raises(MeasureError, match="closed"):
        one(closed, double, kernel("Double"))


def test_an_iterator_can_be_left_early_but_not_interleaved(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    requests = [Request(i, kernel(n)) for i, n in enumerate(["NeedsGpu", "Double", "Hangs"])]
    results = measurer.measure(double, requests)
    next(results)
    with pytest.raises(MeasureError, match="one measurement at a time"):
        measurer.verify(double, kernel("Double"), [0])
    results.close()  # type: ignore[attr-defined]
    assert one(measurer, double, kernel("Double")).ok


def test_a_target_of_another_device_is_refused(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    task = MeasureTask("gpu", double.module, '{"kind": "opencl"}')
    with pytest.raises(MeasureError, match=r"task gpu.*device cpu.*, got one of kind opencl"):
        one(measurer, task, kernel("Double"))
    assert one(measurer, double, kernel("Double")).ok


def test_workers_are_replaced_after_long_service(
    measurer: Measurer, kernel: Kernel, double: MeasureTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one(measurer, double, kernel("Double")).ok
    first = {w.pid for w in _workers()}
    assert one(measurer, double, kernel("Double")).ok
    assert {w.pid for w in _workers()} == first
    monkeypatch.setattr(bench, "_RECYCLE_CANDIDATES", 1)
    assert one(measurer, double, kernel("Double")).ok
    assert {w.pid for w in _workers()} != first


def test_workers_that_cannot_start_are_told_in_one_sentence(
    kernel: Kernel, double: MeasureTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Measurer(jobs=1) as hopeless:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(MeasureError, match="worker to start, got: exit code 1"):
            one(hopeless, double, kernel("Double"))


def _workers() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [c for c in children if "tunerplugin.measure.worker" in c.cmdline()]


def _when_busy(measurer: Measurer, act: Callable[[int], None]) -> threading.Thread:
    """Call ``act`` with the process id of the first worker that runs a candidate."""

    def watch() -> None:
        pool = measurer._bench._pool
        while True:
            for worker in list(pool._workers):
                if worker.command == "run" and worker.pid is not None:
                    time.sleep(0.3)
                    act(worker.pid)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_worker_killed_from_outside_costs_no_candidate(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    killed: list[int] = []

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    thread = _when_busy(measurer, kill)
    names = ["TakesOverASecond", "Double", "Vectorized"]
    requests = [Request(i, kernel(n)) for i, n in enumerate(names)]
    outcomes = dict(measurer.measure(double, requests))
    thread.join(10)
    assert killed
    assert {i: o.status for i, o in outcomes.items()} == dict.fromkeys(range(3), Status.OK)


def test_ctrl_c_reaches_the_caller_only_and_leaves_a_usable_measurer(
    measurer: Measurer, kernel: Kernel, double: MeasureTask
) -> None:
    sessions: list[int] = []

    def interrupt(pid: int) -> None:
        sessions.extend(os.getsid(w.pid) - w.pid for w in _workers())
        os.kill(os.getpid(), signal.SIGINT)

    thread = _when_busy(measurer, interrupt)
    with pytest.raises(KeyboardInterrupt):
        one(measurer, double, kernel("Hangs"))
    thread.join(10)
    assert sessions and not any(sessions), "each worker leads a session of its own"
    assert one(measurer, double, kernel("Double")).ok
