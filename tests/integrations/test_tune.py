"""``tune`` and ``predict`` on a module with tasks of every kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import tunerplugin
from tests.integrations import workloads
from tunerplugin.errors import InputError, TargetError, WeightsError
from tunerplugin.integrations.metaschedule import export_database, knob_names
from tunerplugin.measure import Measurer, host_target
from tunerplugin.records import SQLiteStore, export_t4, import_t4

TRIALS = 8


def module() -> Any:
    """A matrix product and a softmax of fixed shape, and a sum over a length known at run time."""
    builder = relax.BlockBuilder()
    length = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    w = relax.Var("w", relax.TensorType((64, 64), "float32"))
    y = relax.Var("y", relax.TensorType((length,), "float32"))
    with builder.function("main", [x, w, y]):
        with builder.dataflow():
            product = builder.emit(relax.op.nn.relu(relax.op.matmul(x, w)))
            soft = builder.emit(relax.op.nn.softmax(product))
            total = builder.emit(relax.op.exp(y))
            result = builder.emit_output(relax.Tuple([soft, total]))
        builder.emit_func_output(result)
    return builder.get()


def outputs(executable: Any) -> list[Any]:
    generator = np.random.default_rng(4)
    shapes = ((64, 64), (64, 64), (5,))
    inputs = [tvm.runtime.tensor(generator.random(s, dtype="float32")) for s in shapes]
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [part.numpy() for part in machine["main"](*inputs)]


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def tuned(work_dir: Path) -> Iterator[Any]:
    yield tunerplugin.tune(module(), work_dir=work_dir, trials=TRIALS, seed=1)


def test_every_function_is_accounted_for(tuned: Any) -> None:
    status = {c.operator: c.status for c in tuned.coverage}
    assert status["matmul"] == "tuned"
    assert status["T_softmax_maxelem"] in {"tuned", "untuned"}
    skipped = [c for c in tuned.coverage if c.status == "skipped"]
    assert len(skipped) == 1
    assert "dynamic shape" in skipped[0].reason
    assert sum(c.trials for c in tuned.coverage) == TRIALS
    assert all(c.trials > 0 for c in tuned.coverage if c.status != "skipped")


def test_nothing_becomes_slower(tuned: Any) -> None:
    for task in tuned.coverage:
        if task.best_s is not None:
            assert task.best_s <= task.untuned_s


def test_the_compiled_module_is_right(tuned: Any) -> None:
    target = tvm.target.Target(host_target())
    expected = outputs(tvm.compile(module(), target=target))
    got = outputs(ms.relax_integration.compile_relax(tuned, module(), target, {}))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_outcome_is_on_disk(tuned: Any, work_dir: Path) -> None:
    with SQLiteStore(work_dir / "records.sqlite", read_only=True) as store:
        ours = [r for r in store.records() if r.method == "ours"]
        assert len(ours) == TRIALS
        assert sum(r.method == "untuned" for r in store.records()) == 2
        assert store.runs()[0].info["seed"] == "1"


def test_the_same_call_again_measures_nothing(
    tuned: Any, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a finished run was measured again")

    monkeypatch.setattr(Measurer, "measure", refuse)
    monkeypatch.setattr(Measurer, "time_pair", refuse)
    again = tunerplugin.tune(module(), work_dir=work_dir, trials=TRIALS, seed=1)
    assert again.coverage == tuned.coverage


def test_more_trials_go_on_from_there(tuned: Any, work_dir: Path) -> None:
    seen = []
    more = tunerplugin.tune(
        module(), work_dir=work_dir, trials=TRIALS + 2, seed=1, progress=seen.append
    )
    assert [event.done for event in seen] == [TRIALS + 1, TRIALS + 2]
    assert sum(c.trials for c in more.coverage) == TRIALS + 2
    with SQLiteStore(work_dir / "records.sqlite", read_only=True) as store:
        ours = [r.values for r in store.records() if r.method == "ours"]
    assert len(set(ours)) == len(ours)


def test_export_is_a_database_of_tvm(tuned: Any, work_dir: Path, tmp_path: Path) -> None:
    with SQLiteStore(work_dir / "records.sqlite", read_only=True) as store:
        count = export_database(store, tmp_path / "database")
        measured = sum(r.outcome.ok and r.method == "ours" for r in store.records())
    assert count == measured
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "database"))
    assert len(database) == count
    target = tvm.target.Target(host_target())
    executable = ms.relax_integration.compile_relax(database, module(), target, {})
    expected = outputs(tvm.compile(module(), target=target))
    np.testing.assert_allclose(outputs(executable)[0], expected[0], rtol=1e-5, atol=1e-6)


def test_t4_export_names_the_knobs(tuned: Any, work_dir: Path, tmp_path: Path) -> None:
    with SQLiteStore(work_dir / "records.sqlite", read_only=True) as store:
        export_t4(store.records(method="ours"), tmp_path / "t4.json", knob_names(store))
    rows = import_t4(tmp_path / "t4.json")
    assert len(rows) >= TRIALS
    for row in rows:
        assert "sketch" in row.configuration
        assert any(name.startswith(("tile", "unroll_explicit")) for name in row.configuration)


def test_prediction_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measurer, "__init__", None)
    database = tunerplugin.predict(module(), seed=2)
    assert {c.status for c in database.coverage} == {"predicted", "skipped"}
    target = tvm.target.Target(host_target())
    got = outputs(ms.relax_integration.compile_relax(database, module(), target, {}))
    expected = outputs(tvm.compile(module(), target=target))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-6)


def test_prediction_for_a_gpu_that_is_not_here() -> None:
    target = {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024}
    target |= {"max_shared_memory_per_block": 49152}
    database = tunerplugin.predict(workloads.dense(), target)
    (task,) = database.coverage
    assert task.status == "predicted"
    (record,) = database.get_all_tuning_records()
    assert "threadIdx.x" in str(record.trace)


def test_limits_that_allow_nothing_are_named() -> None:
    target = {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024}
    target |= {"max_shared_memory_per_block": 4}
    (task,) = tunerplugin.predict(workloads.dense(), target).coverage
    assert task.status == "untuned"
    assert "shared memory refused" in task.reason


def test_a_task_without_legal_candidates_ends_and_says_why(tmp_path: Path) -> None:
    """Limits that refuse everything end the task, not the run; the untuned schedule stays."""
    target = {**host_target(), "feature.tunerplugin.max_unroll": -1}
    (task,) = tunerplugin.tune(workloads.dense(), target, work_dir=tmp_path, trials=4).coverage
    assert (task.status, task.trials) == ("untuned", 0)
    assert "unroll refused" in task.reason


def test_records_of_another_target_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tunerplugin.tune(workloads.add(), work_dir=tmp_path, trials=1)
    other = {**host_target(), "feature.tunerplugin.max_unroll": 64}
    with caplog.at_level("WARNING", logger="tunerplugin"):
        (task,) = tunerplugin.tune(workloads.add(), other, work_dir=tmp_path, trials=1).coverage
    assert "records of another target alone" in caplog.text
    assert task.trials == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"trials": -1}, InputError, "expected trials of at least 0, got -1"),
        ({"jobs": 0}, InputError, "expected jobs of at least 1, got 0"),
        ({"method": "best"}, InputError, "expected a method of ours, random, got 'best'"),
        ({"target": "no-such-kind"}, TargetError, "expected a TVM target"),
        ({"weights": __file__}, WeightsError, "expected"),
    ],
)
def test_bad_arguments(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tunerplugin.tune(workloads.dense(), work_dir=tmp_path, **options)


def test_modules_without_functions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one function to tune"):
        tunerplugin.tune(tvm.IRModule({}), work_dir=tmp_path)
    with pytest.raises(InputError, match="expected an IRModule or PrimFunc"):
        tunerplugin.tune("model", work_dir=tmp_path)


SCRIPT = """
import sys
import tunerplugin
from tests.integrations import workloads
def show(event):
    print(event.done, flush=True)
tunerplugin.tune(workloads.dense(), work_dir=sys.argv[1], trials=int(sys.argv[2]), progress=show)
"""


@pytest.mark.heavy
def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    """Killed in the middle, run again: what was acknowledged is there, the budget is the total."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    child = subprocess.Popen([*command, "1000"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = 0
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged >= 5:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with SQLiteStore(tmp_path / "records.sqlite", read_only=True) as store:
        kept = store.count(method="ours")
    assert kept >= acknowledged
    total = kept + 3
    again = subprocess.run(
        [*command, str(total)], capture_output=True, text=True, check=True, timeout=110
    )
    assert [int(line) for line in again.stdout.split()] == [kept + 1, kept + 2, kept + 3]
    with SQLiteStore(tmp_path / "records.sqlite", read_only=True) as store:
        values = [r.values for r in store.records(method="ours")]
    assert len(values) == total
    assert len(set(values)) == total
