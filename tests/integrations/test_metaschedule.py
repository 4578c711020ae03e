"""The plugin inside TVM's own tuning loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import tunerplugin
from tests.integrations import workloads
from tests.integrations.conftest import CONFIGS
from tests.integrations.inprocess import InProcessBuilder, InProcessRunner

TARGET = tvm.target.Target(CONFIGS["llvm"])


def tune(tmp_path: Path, mod: Any, runner: Any = None, **options: Any) -> Any:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    return ms.tune_tir(
        mod,
        TARGET,
        str(tmp_path / "work"),
        max_trials_global=options.pop("trials", 12),
        num_trials_per_iter=6,
        builder=InProcessBuilder(folder),
        runner=runner or InProcessRunner(),
        seed=1,
        num_tuning_cores=1,
        **options,
    )


def result_of(database: Any, mod: Any, *inputs: Any) -> Any:
    schedule = ms.tir_integration.compile_tir(database, mod, TARGET)
    assert schedule is not None
    output = tvm.runtime.tensor(np.zeros((32, 48), "float32"))
    tvm.compile(schedule.mod, target=TARGET)(*[tvm.runtime.tensor(a) for a in inputs], output)
    return output.numpy()


@pytest.mark.parametrize(
    "halves",
    [
        {"strategy": "constrained-beam", "cost_model": "seq2seq"},
        {"strategy": "constrained-beam", "cost_model": "random"},
        {"strategy": "constrained-beam", "cost_model": "none"},
        {"strategy": "evolutionary", "cost_model": "seq2seq"},
        {"strategy": "replay-trace", "cost_model": "seq2seq"},
    ],
    ids=lambda halves: "+".join(halves.values()),
)
def test_each_half_works_with_the_other_of_tvm(tmp_path: Path, halves: dict[str, str]) -> None:
    tunerplugin.register()
    mod = workloads.dense()
    database = tune(tmp_path, mod, **halves)
    assert len(database.get_all_tuning_records()) == 12
    generator = np.random.default_rng(2)
    a = generator.random((32, 64), dtype="float32")
    b = generator.random((64, 48), dtype="float32")
    np.testing.assert_allclose(result_of(database, mod, a, b), a @ b, rtol=1e-5)


def test_objects_work_as_well_as_names(tmp_path: Path) -> None:
    model = tunerplugin.Seq2SeqModel(seed=3)
    strategy = tunerplugin.BeamSearch(seed=3)
    database = tune(tmp_path, workloads.dense(), strategy=strategy, cost_model=model)
    assert len(database.get_all_tuning_records()) == 12
    records = database.get_all_tuning_records()
    traces = {str(record.trace) for record in records}
    assert len(traces) == 12  # nothing was measured twice


def test_registering_twice_is_registering_once() -> None:
    tunerplugin.register()
    first = ms.search_strategy.SearchStrategy.create, ms.cost_model.CostModel.create
    tunerplugin.register()
    assert (ms.search_strategy.SearchStrategy.create, ms.cost_model.CostModel.create) == first
    stock = ms.search_strategy.SearchStrategy.create("replay-trace")
    assert isinstance(stock, ms.search_strategy.ReplayTrace)
    with pytest.raises(ValueError, match="Unknown SearchStrategy: no-such"):
        ms.search_strategy.SearchStrategy.create("no-such")


def test_failed_runs_do_not_end_the_tuning(tmp_path: Path) -> None:
    runner = InProcessRunner(fail_every=3)
    database = tune(
        tmp_path,
        workloads.dense(),
        runner,
        strategy=tunerplugin.BeamSearch(),
        cost_model=tunerplugin.Seq2SeqModel(),
    )
    assert runner.runs == 12
    times = [float(s) for r in database.get_all_tuning_records() for s in r.run_secs]
    assert sum(t < 1e9 for t in times) == 8  # TVM keeps failures as 1e10 seconds


def test_a_small_space_ends_the_task(tmp_path: Path) -> None:
    database = tune(
        tmp_path, workloads.add(), strategy=tunerplugin.BeamSearch(), cost_model="none", trials=500
    )
    assert 0 < len(database.get_all_tuning_records()) < 500


def test_cost_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = tunerplugin.Seq2SeqModel(seed=1)
    tune(tmp_path, workloads.dense(), strategy=tunerplugin.BeamSearch(), cost_model=model)
    path = tmp_path / "model.safetensors"
    model.save(str(path))
    twin = tunerplugin.Seq2SeqModel(seed=1)
    twin.load(str(path))
    context = ms.TuneContext(
        mod=workloads.dense(), target=TARGET, space_generator="post-order-apply", num_threads=1
    )
    candidates = [
        ms.MeasureCandidate(s, ms.arg_info.ArgInfo.from_entry_func(s.mod, remove_preproc=True))
        for s in context.generate_design_space()
    ]
    expected = model.predict(context, candidates)
    np.testing.assert_array_equal(twin.predict(context, candidates), expected)
    assert expected.min() >= 0 and expected.max() <= 1
    (tmp_path / "torn.safetensors").write_bytes(path.read_bytes()[:100])
    # TVM's FFI keeps the sentence, not the type
    with pytest.raises(RuntimeError, match="expected a safetensors file"):
        twin.load(str(tmp_path / "torn.safetensors"))


def test_relax_with_many_tasks(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 32), "float32"))
    w = relax.Var("w", relax.TensorType((32, 24), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            soft = builder.emit(relax.op.nn.softmax(product))
            result = builder.emit_output(relax.op.nn.relu(relax.op.permute_dims(soft)))
        builder.emit_func_output(result)
    mod = builder.get()
    folder = tmp_path / "artifacts"
    folder.mkdir()
    prepared = relax.get_pipeline("zero")(mod)
    database = ms.relax_integration.tune_relax(
        prepared,
        {},
        TARGET,
        str(tmp_path / "work"),
        max_trials_global=18,
        num_trials_per_iter=3,
        builder=InProcessBuilder(folder),
        runner=InProcessRunner(),
        strategy=tunerplugin.BeamSearch(),
        cost_model=tunerplugin.Seq2SeqModel(),
        task_scheduler="round-robin",
        seed=0,
    )
    assert len({str(r.workload.mod) for r in database.get_all_tuning_records()}) >= 2
    executable = ms.relax_integration.compile_relax(database, mod, TARGET, {})
    generator = np.random.default_rng(0)
    a = generator.random((16, 32), dtype="float32")
    b = generator.random((32, 24), dtype="float32")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b)).numpy()
    exp = np.exp(a @ b - (a @ b).max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, (exp / exp.sum(axis=1, keepdims=True)).T, rtol=1e-5)
