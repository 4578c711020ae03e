"""The network of the demo, and how builds of it are timed."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tunerplugin.cli import demo_net


def test_tvm_build_equals_torch_and_has_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_BIND_THREADS", "0")
    import tvm
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    net, image, (mod, params) = demo_net.build_net(seed=3)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    bound = tvm.relax.transform.BindParams("main", params)(mod)
    tasks = extract_tasks(tvm.relax.get_pipeline("zero")(bound), target, {})
    assert len(tasks) == 9
    with demo_net.threads(1):
        calls = {
            "torch": demo_net.torch_runner(net, image),
            "tvm": demo_net.runner(tvm.compile(bound, target=target), image),
        }
        first, second = demo_net.time_interleaved(calls, rounds=3, reference="torch")
    assert (first.name, second.name) == ("torch", "tvm")
    assert first.max_abs_error == 0
    assert second.equal
    assert second.max_abs_error < 1e-4
    assert 0 < second.low_s <= second.latency_s <= second.high_s


def test_wrong_outputs_are_seen() -> None:
    right = np.ones((1, 10), np.float32)
    calls = {"right": lambda: right, "nan": lambda: right * np.nan, "off": lambda: right + 0.01}
    timings = {t.name: t for t in demo_net.time_interleaved(calls, 1, "right")}
    assert [timings[name].equal for name in ("right", "nan", "off")] == [True, False, False]


def test_net_depends_on_the_seed_only() -> None:
    import torch

    before = torch.random.get_rng_state()
    _, first, one = demo_net.build_net(seed=5)
    _, second, two = demo_net.build_net(seed=5)
    _, _, other = demo_net.build_net(seed=6)
    np.testing.assert_array_equal(first, second)
    weights = [model.params["p_hidden_weight"].numpy() for model in (one, two, other)]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_threads_are_given_back() -> None:
    import torch

    before = torch.get_num_threads()
    with demo_net.threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with demo_net.threads(None):
        assert torch.get_num_threads() == len(os.sched_getaffinity(0))
