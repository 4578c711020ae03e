"""Isolated measurement for AutoTVM: what is bad costs itself only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tvm import autotvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput
from tvm.autotvm.measure.measure_methods import BuildResult

from tests.relay import templates
from tunerplugin.autotvm import measure_option
from tunerplugin.errors import InputError, MeasureError


@pytest.fixture(scope="module")
def option() -> Iterator[dict[str, Any]]:
    made = measure_option(run_deadline_s=3.0, repeats=3, min_repeat_ms=1.0)
    yield made
    made["runner"].close()


def measured(option: dict[str, Any], task: Any, configs: list[Any]) -> list[Any]:
    """As ``tune`` measures a batch."""
    batch = autotvm.measure.create_measure_batch(task, option)
    return list(batch([MeasureInput(task.target, task, config) for config in configs]))


@pytest.mark.heavy
def test_bad_candidates_cost_themselves_only(option: dict[str, Any]) -> None:
    """In one batch: each ends with the number AutoTVM has for it, and the good ones are timed."""
    task = templates.badly_behaved_task()
    configs = [task.config_space.get(i) for i in range(5)]
    results = dict(
        zip([c["way"].val for c in configs], measured(option, task, configs), strict=True)
    )
    assert {way: MeasureErrorNo(result.error_no).name for way, result in results.items()} == {
        "plain": "NO_ERROR",
        "raises": "INSTANTIATION_ERROR",
        "refuses": "INSTANTIATION_ERROR",
        "crashes": "RUNTIME_DEVICE",
        "hangs": "RUN_TIMEOUT",
    }
    assert "SIGABRT" in str(results["crashes"].costs[1])
    assert "longer than 3 s" in str(results["hangs"].costs[1])
    assert all(0 < cost < 1e-2 for cost in results["plain"].costs)


@pytest.mark.heavy
def test_outputs_of_a_leader_are_checked() -> None:
    """A candidate that leaves its output undone is faster than any other, and wrong."""
    option = measure_option(repeats=1, min_repeat_ms=1.0)
    task = templates.convolution("conv2d_NCHWc.x86")
    (right,) = measured(option, task, [task.config_space.get(5)])
    assert right.error_no == 0 and len(right.costs) == 1
    lazy = templates.lazy_task()
    wrong, honest = measured(option, lazy, [lazy.config_space.get(i) for i in (0, 1)])
    assert wrong.error_no == MeasureErrorNo.WRONG_ANSWER
    assert honest.error_no == MeasureErrorNo.NO_ERROR
    option["runner"].close()


@pytest.mark.heavy
def test_any_tuner_can_use_it(option: dict[str, Any]) -> None:
    task = templates.dense()
    tuner = autotvm.tuner.RandomTuner(task)
    costs: list[Any] = []
    tuner.tune(3, option, callbacks=[lambda _, inputs, results: costs.extend(results)])
    assert [result.error_no for result in costs] == [0, 0, 0] and tuner.best_flops > 0


def test_builds_of_another_builder_are_refused(option: dict[str, Any]) -> None:
    task = templates.dense()
    given = MeasureInput(task.target, task, task.config_space.get(0))
    stock = BuildResult("module.tar", (), None, 0.1)
    with pytest.raises(InputError, match="use its builder and runner together"):
        option["runner"].run([given], [stock])


def test_numbers_that_are_none() -> None:
    with pytest.raises(MeasureError, match="above 0"):
        measure_option(build_deadline_s=0)
