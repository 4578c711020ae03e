"""``Seq2SeqTuner`` as a tuner of AutoTVM."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import autotvm, relay
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tvm.contrib import graph_executor

from tests.relay import templates
from tests.relay.stock import repaired_local_runner
from tunerplugin.autotvm import Seq2SeqTuner, measure_option
from tunerplugin.errors import InputError
from tunerplugin.integrations.autotvm.outcomes import outcome_of, result_of
from tunerplugin.outcome import Outcome, Status
from tunerplugin.predictor import Predictor
from tunerplugin.search import UniformScorer

Cost = Callable[[Any], float]


def cost_of(config: Any) -> float:
    """Seconds that hang on every split, the least at inner factors of about 4."""
    sizes = [entity.size[-1] for entity in config._entity_map.values()]
    return 1e-3 * (1 + sum(abs(math.log2(size) - 2) for size in sizes))


def drive(tuner: Any, batches: int, size: int = 4, cost: Cost = cost_of) -> list[int]:
    """What ``tune`` does, with costs that are computed; the indices in order."""
    indices = []
    for _ in range(batches):
        if not tuner.has_next():
            break
        configs = tuner.next_batch(size)
        inputs = [MeasureInput(tuner.task.target, tuner.task, config) for config in configs]
        tuner.update(inputs, [MeasureResult((cost(c),), 0, 0.1, 0.0) for c in configs])
        indices += [config.index for config in configs]
    return indices


def uniform(task: Any, seed: int = 0) -> Any:
    return Seq2SeqTuner(task, seed=seed, predictor=UniformScorer())


@pytest.mark.parametrize("size", [1, 7])
def test_a_small_space_is_used_up_exactly(size: int) -> None:
    """The default first, then each valid configuration once, then none."""
    task = templates.every_knob_task(2, 2)
    tuner = uniform(task)
    indices = drive(tuner, 1000, size, lambda config: 1e-3)
    space = task.config_space
    valid = [i for i in range(space.range_length) if space.is_index_valid(i)]
    assert sorted(indices) == valid
    assert not tuner.has_next() and tuner.next_batch(3) == []


def test_the_first_candidate_is_the_untuned_one() -> None:
    task = templates.convolution("conv2d_NCHWc.x86")
    (first,) = uniform(task, seed=5).next_batch(1)
    sizes = [first[name].size[1] for name in ("tile_ic", "tile_oc", "tile_ow")]
    assert (*sizes, first["unroll_kw"].val) == (8, 8, 6, False)


def test_what_the_template_refuses_is_never_proposed() -> None:
    """Neither what raises, nor what registers an error; the tuner learns of both."""
    tuner = uniform(templates.badly_behaved_task())
    proposed = set()
    while tuner.has_next():
        proposed |= {config["way"].val for config in tuner.next_batch(2)}
    assert proposed == {"plain", "crashes", "hangs"}
    refused = tuner.search.history.outcomes
    assert {values[0]: outcome.status for values, outcome in refused.items()} == {
        "raises": Status.ILLEGAL,
        "refuses": Status.ILLEGAL,
    }
    assert "this way lies nothing" in refused["raises",].reason
    assert "not this way" in refused["refuses",].reason


def test_a_template_that_takes_one_in_400() -> None:
    """The one is found, and then nothing is left."""
    tuner = uniform(templates.picky_task(123))
    (only,) = tuner.next_batch(2)
    assert only["number"].val == 123 and not tuner.has_next()
    assert len(tuner.search.history.outcomes) == 399


def test_equal_seeds_propose_equal_candidates() -> None:
    """Also after learning and after a reset; another seed proposes others."""
    task = templates.dense(64, 64, 64)
    tuner = Seq2SeqTuner(task, seed=3)
    first = drive(tuner, 2, 5)
    assert drive(Seq2SeqTuner(task, seed=3), 2, 5) == first
    assert drive(Seq2SeqTuner(task, seed=4), 2, 5) != first
    tuner.reset()
    assert tuner.best_config is None and drive(tuner, 2, 5) == first


def test_it_learns_from_measurements() -> None:
    """24 trials of 343 lead close to the best, closer than uniform draws (whose chance is 7%)."""
    task = templates.dense(64, 64, 64)
    best = min(cost_of(task.config_space.get(i)) for i in range(343))
    found = []
    for seed in range(3):
        tuner = Seq2SeqTuner(task, seed=seed, predictor=Predictor(seed))
        found.append(min(cost_of(task.config_space.get(i)) for i in drive(tuner, 6)))
    assert sorted(found)[1] <= 2 * best


EVERY_RESULT = [
    (MeasureResult((2e-3, 4e-3), 0, 0.5, 0.0), Status.OK),
    (MeasureResult((float("nan"),), 0, 0.5, 0.0), Status.NON_FINITE),
    (MeasureResult((float("inf"),), 0, 0.5, 0.0), Status.NON_FINITE),
    (MeasureResult((0.0,), 0, 0.5, 0.0), Status.NON_FINITE),
    (MeasureResult((), 0, 0.5, 0.0), Status.NON_FINITE),
    (MeasureResult((1e9,), 1, 0.5, 0.0), Status.ILLEGAL),
    (MeasureResult(("trace", RuntimeError("no\nsuch host")), 2, 0.5, 0.0), Status.COMPILE_ERROR),
    (MeasureResult(("trace", RuntimeError("device")), 3, 0.5, 0.0), Status.COMPILE_ERROR),
    (MeasureResult(("trace", ""), 4, 0.5, 0.0), Status.RUN_ERROR),
    (MeasureResult((1e9,), 5, 0.5, 0.0), Status.WRONG_RESULT),
    (MeasureResult((1e9,), 6, 0.5, 0.0), Status.TIMEOUT),
    (MeasureResult((1e9,), MeasureErrorNo.RUN_TIMEOUT, 0.5, 0.0), Status.TIMEOUT),
    (MeasureResult((), 8, 0.5, 0.0), Status.RUN_ERROR),
    (MeasureResult((1e9,), 99, -1.0, 0.0), Status.RUN_ERROR),
]


def test_update_takes_every_result() -> None:
    """Numbers that are no time are failures; the tuner goes on after any."""
    task = templates.dense(64, 64, 64)
    tuner = Seq2SeqTuner(task)
    configs = tuner.next_batch(len(EVERY_RESULT))
    inputs = [MeasureInput(task.target, task, config) for config in configs]
    tuner.update(inputs, [result for result, _ in EVERY_RESULT])
    told = list(tuner.search.history.outcomes.values())
    assert [outcome.status for outcome in told] == [status for _, status in EVERY_RESULT]
    assert told[0].latency_s == 3e-3
    assert told[6].reason == "such host"
    assert len(tuner.next_batch(4)) == 4


@pytest.mark.parametrize("status", list(Status))
def test_outcomes_come_back_from_results(status: Status) -> None:
    """But for a crashed compiler and no finite time, which AutoTVM has no number for."""
    outcome = Outcome(status, (1e-3,) if status is Status.OK else (), "", 0.5)
    coarser = {
        Status.COMPILE_CRASH: Status.COMPILE_ERROR,
        Status.NON_FINITE: Status.RUN_ERROR,
    }
    assert outcome_of(result_of(outcome)).status is coarser.get(status, status)


def test_a_log_goes_out_and_in(tmp_path: Path) -> None:
    """AutoTVM writes what we measured; a new tuner goes on from there without repeating it."""
    task, log = templates.dense(64, 64, 64), str(tmp_path / "tuning.log")
    first = uniform(task)
    configs = first.next_batch(6)
    inputs = [MeasureInput(task.target, task, config) for config in configs]
    results = [MeasureResult((cost_of(config),), 0, 0.1, 0.0) for config in configs[:-1]]
    results.append(MeasureResult(("trace", RuntimeError("broken")), 4, 0.1, 0.0))
    autotvm.callback.log_to_file(log)(first, inputs, results)
    second = uniform(task)
    second.load_history(autotvm.record.load_from_file(log))
    fastest = min(configs[:-1], key=cost_of)
    assert second.best_config.index == fastest.index
    assert second.best_flops == pytest.approx(task.flop / cost_of(fastest))
    every = {config.index for config in configs} | set(drive(second, 1000, 50))
    assert len(every) == 343 and second.search.history.outcomes.keys() >= {
        values for values in first.search.history.outcomes
    }
    statuses = [o.status for o in second.search.history.outcomes.values()]
    assert statuses.count(Status.RUN_ERROR) == 1


def test_records_of_other_tasks_teach() -> None:
    """Unless there are fewer than asked for; they are no trials of this task."""
    other, task = templates.dense(32, 32, 32), templates.dense(64, 64, 64)
    records = [
        (MeasureInput(other.target, other, config), MeasureResult((cost_of(config),), 0, 0.1, 0.0))
        for config in (other.config_space.get(i) for i in range(0, 216, 4))
    ]
    taught, untaught = Predictor(0), Predictor(0)
    for predictor, least in ((taught, 50), (untaught, 500)):
        tuner = Seq2SeqTuner(task, predictor=predictor)
        tuner.load_history(records, min_seed_records=least)
        assert not tuner.search.history.outcomes and tuner.best_config is None
    problem, space = tuner.search.problem, tuner.search.space
    every = list(space.enumerate())
    assert np.ptp(untaught.rank(problem, space, every)) == 0
    chosen = every[int(taught.rank(problem, space, every).argmax())]
    costs = sorted(cost_of(task.config_space.get(i)) for i in range(343))
    assert cost_of(space.config(chosen)) <= costs[343 // 4]


def test_no_task() -> None:
    decoded = autotvm.task.Task("dense_nopack.x86", templates.dense().args)
    with pytest.raises(InputError, match="expected a task with a configuration space"):
        Seq2SeqTuner(decoded)


@pytest.mark.heavy
def test_tune_log_apply_build(tmp_path: Path) -> None:
    """A user's run from a Relay module to a right answer from the tuned library."""
    x, w = relay.var("x", shape=(32, 48)), relay.var("w", shape=(40, 48))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    target = tvm.target.Target(templates.LLVM)
    log = str(tmp_path / "tuning.log")
    option = measure_option(repeats=1, min_repeat_ms=2.0)
    for task in autotvm.task.extract_from_program(mod["main"], target=target, params={}):
        tuner = Seq2SeqTuner(task)
        tuner.tune(6, option, callbacks=[autotvm.callback.log_to_file(log)])
        assert len(tuner.search.history.outcomes) == 6
        statuses = {outcome.status for outcome in tuner.search.history.outcomes.values()}
        assert statuses == {Status.OK}
    option["runner"].close()
    records = list(autotvm.record.load_from_file(log))
    best = {}
    for given, result in records:
        best.setdefault(given.task.name, []).append((np.mean(result.costs), given.config.index))
    with autotvm.apply_history_best(log) as context:
        for task_name, pairs in best.items():
            workload = next(i.task.workload for i, _ in records if i.task.name == task_name)
            assert context.query(target, workload).index == min(pairs)[1]
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(mod, target=target)
    rng = np.random.default_rng(0)
    values = {"x": rng.normal(size=(32, 48)), "w": rng.normal(size=(40, 48))}
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, value in values.items():
        executor.set_input(name, value.astype("float32"))
    executor.run()
    expected = np.maximum(values["x"] @ values["w"].T, 0)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.heavy
def test_stock_builder_and_runner() -> None:
    """AutoTVM's own measurement, once its RPC server takes what its client sends."""
    tuner = uniform(templates.dense())
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(timeout=60, n_parallel=1),
        runner=repaired_local_runner(number=1, repeat=1, timeout=60),
    )
    tuner.tune(2, option)
    statuses = [outcome.status for outcome in tuner.search.history.outcomes.values()]
    assert statuses == [Status.OK, Status.OK]
    assert tuner.best_flops > 0
