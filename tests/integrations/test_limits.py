"""What targets allow, and that decoding obeys it as TVM would judge it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
import tvm

from tests.integrations.test_spaces import sample
from tunerplugin.errors import TargetError
from tunerplugin.integrations.compat import new_schedule
from tunerplugin.integrations.metaschedule import limits
from tunerplugin.integrations.metaschedule.footprint import shared_buffers
from tunerplugin.integrations.metaschedule.limits import HardwareLimits, complete_target
from tunerplugin.integrations.metaschedule.task import IllegalCandidate, TuningTask
from tunerplugin.space import Prefix
from tunerplugin.space.constraints import MemoryLimit

Tasks = Callable[[str, str], TuningTask]
OURS_ALONE = {"local memory", "unroll"}  # limits that TVM's own judge does not know


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"kind": "llvm"}, {"num-cores"}),
        (
            {"kind": "cuda", "arch": "sm_70"},
            {"max_threads_per_block", "max_shared_memory_per_block"},
        ),
        ({"kind": "vulkan"}, {"max_shared_memory_per_block"}),
    ],
)
def test_missing_attributes_get_defaults_with_one_warning(
    config: dict[str, str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_warned", set())
    before = set(tvm.target.Target(config).attrs)
    with pytest.warns(UserWarning, match="state them in the target to override") as caught:
        target = complete_target(config)
    assert len([w for w in caught if "does not state" in str(w.message)]) == 1
    assert set(target.attrs) - before == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complete_target(config)


def test_stated_attributes_are_kept() -> None:
    target = complete_target(
        {"kind": "opencl", "max_threads_per_block": 128, "max_shared_memory_per_block": 8192}
    )
    found = HardwareLimits.of(target)
    assert (found.max_threads_per_block, found.max_shared_memory_bytes) == (128, 8192)
    assert found.max_vector_bytes == 16


def test_features_override_what_tvm_has_no_attribute_for() -> None:
    target = complete_target(
        {
            "kind": "cuda",
            "arch": "sm_70",
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": 49152,
            "feature.tunerplugin.max_unroll": 64,
            "feature.tunerplugin.max_local_memory_per_block": 4096,
        }
    )
    found = HardwareLimits.of(target)
    assert (found.max_unroll, found.max_local_memory_bytes) == (64, 4096)


@pytest.mark.parametrize("target", ["lvm", "nvidia/no-such-gpu", '{"kind": "llvm", "mcpus": "x"}'])
def test_unknown_targets_are_refused(target: str) -> None:
    with pytest.raises(TargetError, match="expected a TVM target"):
        complete_target(target)


def test_kinds_without_tuning_are_refused() -> None:
    with pytest.raises(TargetError, match="expected a target of kind llvm, cuda"):
        complete_target({"kind": "webgpu"})


@pytest.mark.parametrize("operator", ["dense", "conv2d", "group_conv2d", "softmax"])
@pytest.mark.parametrize("kind", ["cuda", "ampere", "opencl"])
def test_decoded_candidates_pass_tvm(task: Tasks, operator: str, kind: str) -> None:
    tuning = task(operator, kind)
    refused = 0
    for values in sample(tuning, 40, seed=3):
        try:
            tuning.schedule(values)
        except IllegalCandidate:
            refused += 1
    assert refused <= 1


@pytest.mark.parametrize("operator", ["dense", "conv2d", "group_conv2d"])
@pytest.mark.parametrize("kind", ["ampere", "opencl"])
def test_constraints_agree_with_tvm(task: Tasks, operator: str, kind: str) -> None:
    """On candidates drawn without limits: what TVM accepts we accept, and nearly the reverse."""
    tuning = task(operator, kind)
    sketch = len(tuning.sketches) - 1  # the pipelined one, where there is one
    space = tuning.sketches[sketch]
    generator = random.Random(5)
    wrongly_refused, wrongly_accepted, accepted = 0, 0, 0
    for _ in range(60):
        values: Prefix = ()
        while (knob := space.knob(values)) is not None:
            values = (*values, generator.choice(knob.domain))
        ours = [c.name for c in space.constraints if not c.allows(values)]
        if OURS_ALONE & set(ours):
            continue
        try:
            tuning.schedule((sketch, *values))
        except IllegalCandidate:
            wrongly_accepted += not ours
        else:
            accepted += 1
            wrongly_refused += bool(ours)
    assert accepted > 0
    assert wrongly_refused == 0
    assert wrongly_accepted <= 2


@pytest.mark.parametrize("operator", ["dense", "conv2d", "group_conv2d"])
def test_shared_memory_is_predicted_to_the_byte(task: Tasks, operator: str) -> None:
    tuning = task(operator, "cuda")
    space = tuning.sketches[0]
    memory = [
        c for c in space.constraints if isinstance(c, MemoryLimit) and c.name == "shared memory"
    ]
    assert memory
    exact = 0
    drawn = sample(tuning, 20, seed=9)
    for values in drawn:
        schedule = new_schedule(tuning.mod)
        space.to_trace(values[1:]).apply_to_schedule(schedule, remove_postproc=True)
        allocated = 0
        for buffer in shared_buffers(schedule.mod).values():
            size = buffer.element_bytes
            for extent in buffer.shape:
                size *= extent
            allocated += size
        exact += allocated == sum(limit.bytes_used(values[1:]) for limit in memory)
    assert exact >= len(drawn) - 1
