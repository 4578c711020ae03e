"""The plugin in MetaSchedule of the Relay era, and ``tune`` and ``predict`` on Relay modules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import meta_schedule as ms
from tvm import relay
from tvm.contrib import graph_executor

import tunerplugin
from tests.integrations import workloads
from tests.integrations.conftest import task, tvm_logger_as_new  # noqa: F401  fixtures
from tests.integrations.inprocess import InProcessBuilder, InProcessRunner

# What must hold of design spaces and their limits holds in both generations.
from tests.integrations.test_spaces import (  # noqa: F401
    Tasks,
    sample,
    test_all_sampling_instructions_become_knobs,
    test_decisions_reach_the_program,
    test_foreign_traces_are_not_ours,
    test_locations_are_those_that_tvm_accepts,
)
from tunerplugin.errors import InputError, TargetError
from tunerplugin.integrations import compat
from tunerplugin.integrations.metaschedule import export_database
from tunerplugin.integrations.metaschedule.footprint import shared_buffers
from tunerplugin.integrations.metaschedule.limits import complete_target
from tunerplugin.integrations.metaschedule.module import module_tasks
from tunerplugin.measure import Measurer, host_target
from tunerplugin.records import SQLiteStore
from tunerplugin.space.constraints import MemoryLimit

TARGET = tvm.target.Target(host_target(2))
X_SHAPE, IMAGE_SHAPE = (8, 64), (1, 4, 10, 10)
TRIALS = 6


@pytest.fixture(autouse=True, scope="module")
def no_download() -> Iterator[None]:
    """TVM itself would look for schedules of AutoTVM's authors on the net."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPHUB_LOCATION", "NONE")
        yield


def network() -> tuple[Any, dict[str, Any]]:
    """Two outputs: relu(dense(x)) and a convolution of an image; weights as parameters."""
    generator = np.random.default_rng(0)
    x, image = relay.var("x", shape=X_SHAPE), relay.var("image", shape=IMAGE_SHAPE)
    w, k = relay.var("w", shape=(32, 64)), relay.var("k", shape=(8, 4, 3, 3))
    dense = relay.nn.relu(relay.nn.dense(x, w))
    convolution = relay.nn.conv2d(image, k, padding=(1, 1), channels=8, kernel_size=(3, 3))
    function = relay.Function([x, image, w, k], relay.Tuple([dense, convolution]))
    shapes = {"w": (32, 64), "k": (8, 4, 3, 3)}
    params = {
        name: tvm.nd.array(generator.uniform(-1, 1, shape).astype("float32"))
        for name, shape in shapes.items()
    }
    return tvm.IRModule.from_expr(function), params


def outputs(library: Any) -> list[Any]:
    machine = graph_executor.GraphModule(library["default"](tvm.cpu()))
    generator = np.random.default_rng(1)
    machine.set_input("x", generator.uniform(-1, 1, X_SHAPE).astype("float32"))
    machine.set_input("image", generator.uniform(-1, 1, IMAGE_SHAPE).astype("float32"))
    machine.run()
    return [machine.get_output(i).numpy() for i in range(2)]


def assert_right(database: Any) -> None:
    """``compile_relay`` with the database computes what ``relay.build`` computes."""
    mod, params = network()
    library = ms.relay_integration.compile_relay(database, mod, TARGET, params)
    with tvm.transform.PassContext(opt_level=3):
        plain = relay.build(mod, target=TARGET, params=params)
    for got, want in zip(outputs(library), outputs(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_tune_tir_by_name_with_worker_processes(tmp_path: Path) -> None:
    tunerplugin.register()
    tunerplugin.register()
    database = ms.tune_tir(
        workloads.dense(),
        TARGET,
        work_dir=str(tmp_path),
        max_trials_global=6,
        num_trials_per_iter=3,
        strategy="constrained-beam",
        cost_model="seq2seq",
        builder=tunerplugin.local_builder(2),
        seed=0,
        num_tuning_cores=1,
    )
    records = database.get_all_tuning_records()
    assert len({str(record.trace) for record in records}) == 6
    assert all(0 < float(s) < 1 for r in records for s in r.run_secs)  # a failure is 1e10
    schedule = ms.tir_integration.compile_tir(database, workloads.dense(), TARGET)
    generator = np.random.default_rng(2)
    a = generator.random((32, 64), dtype="float32")
    b = generator.random((64, 48), dtype="float32")
    c = compat.tensor(np.zeros((32, 48), "float32"))
    compat.compile_module(schedule.mod, TARGET)["main"](compat.tensor(a), compat.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)


def saved(model: Any, folder: Path) -> bytes:
    model.save(str(folder / "model.safetensors"))
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("strategy", "cost_model"),
    [("constrained-beam", "seq2seq"), ("constrained-beam", "random"), ("replay-trace", "seq2seq")],
)
def test_tune_relay_by_name(tmp_path: Path, strategy: str, cost_model: str) -> None:
    tunerplugin.register()
    folder = tmp_path / "artifacts"
    folder.mkdir()
    mod, params = network()
    model = tunerplugin.Seq2SeqModel(seed=0) if cost_model == "seq2seq" else cost_model
    before = saved(model, tmp_path) if cost_model == "seq2seq" else b""
    database = ms.relay_integration.tune_relay(
        mod,
        params,
        TARGET,
        str(tmp_path / "work"),
        max_trials_global=12,
        num_trials_per_iter=3,
        builder=InProcessBuilder(folder),
        runner=InProcessRunner(),
        strategy=strategy,
        cost_model=model,
        task_scheduler="round-robin",
        seed=0,
        num_tuning_cores=1,
    )
    tuned = {str(r.workload.mod) for r in database.get_all_tuning_records()}
    assert len(tuned) >= 2
    assert (tmp_path / "work" / "database_tuning_record.json").stat().st_size > 0
    if cost_model == "seq2seq":
        assert saved(model, tmp_path) != before  # it learnt
    assert_right(database)


@pytest.mark.parametrize("kind", ["cuda", "opencl"])
def test_gpu_limits_are_obeyed_while_decoding(task: Tasks, kind: str) -> None:  # noqa: F811
    tuning = task("dense", kind)
    (memory,) = [c for c in tuning.sketches[0].constraints if c.name == "shared memory"]
    assert isinstance(memory, MemoryLimit)
    for values in sample(tuning, 10, seed=9):
        tuning.schedule(values)  # VerifyGPUCode has the last word
        scheduled = compat.new_schedule(tuning.mod)
        trace = tuning.sketches[0].to_trace(values[1:])
        trace.apply_to_schedule(scheduled, remove_postproc=True)
        buffers = shared_buffers(scheduled.mod).values()
        allocated = sum(b.element_bytes * math.prod(b.shape) for b in buffers)
        assert memory.bytes_used(values[1:]) == allocated


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    work_dir = tmp_path_factory.mktemp("relay")
    mod, params = network()
    yield tune(mod, params, work_dir), work_dir


def tune(mod: Any, params: dict[str, Any], work_dir: Path) -> Any:
    return tunerplugin.tune(mod, TARGET, params=params, work_dir=work_dir, trials=TRIALS, jobs=2)


def test_tune_takes_a_relay_module(tuned: tuple[Any, Path]) -> None:
    database, work_dir = tuned
    operators = {c.operator for c in database.coverage}
    assert {"T_matmul_NT", "conv2d_NCHWc"} <= operators
    assert all(c.untuned_s is not None and c.best_s is not None for c in database.coverage)
    assert all(c.best_s <= c.untuned_s for c in database.coverage)
    assert sum(c.trials for c in database.coverage) == TRIALS
    with SQLiteStore(work_dir / "records.sqlite", read_only=True) as store:
        assert store.count(method="ours") == TRIALS
        config = json.loads(next(iter(store.tasks())).target)
    assert tvm.target.Target(config).export()["mcpu"] == TARGET.export()["mcpu"]
    assert_right(database)


def test_the_same_call_again_measures_nothing(
    tuned: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, work_dir = tuned
    monkeypatch.setattr(Measurer, "measure", None)
    monkeypatch.setattr(Measurer, "time_pair", None)
    assert tune(*network(), work_dir).coverage == database.coverage


def test_records_become_a_database_of_tvm(tuned: tuple[Any, Path], tmp_path: Path) -> None:
    with SQLiteStore(tuned[1] / "records.sqlite", read_only=True) as store:
        count = export_database(store, tmp_path)
    assert 0 < count <= TRIALS
    assert_right(ms.database.JSONDatabase(work_dir=str(tmp_path)))


def test_prediction_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measurer, "start", None)
    mod, params = network()
    database = tunerplugin.predict(mod, TARGET, params=params)
    assert {c.status for c in database.coverage} == {"predicted"}
    assert_right(database)


def test_parameters_may_stay_inputs() -> None:
    mod, _ = network()
    operators = {t.operator for t in module_tasks(mod, complete_target(TARGET)).tasks}
    assert {"T_matmul_NT", "conv2d_NCHWc"} <= operators
    with pytest.raises(InputError, match="expected an IRModule or PrimFunc to tune, got Function"):
        module_tasks(mod["main"], TARGET)


def test_a_target_without_triple_means_this_machine() -> None:
    with pytest.warns(UserWarning, match="mtriple"):
        target = complete_target("llvm -mcpu=x86-64-v3 -num-cores=3")
    assert str(target.attrs["mtriple"]) == compat.host_triple()
    assert int(target.attrs["num-cores"]) == 3
    with pytest.raises(TargetError, match="expected a TVM target"):
        complete_target("lvm")
