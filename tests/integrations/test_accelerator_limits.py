"""The tuner's limits of an accelerator target are those of the chip's datasheet."""

from __future__ import annotations

import pytest
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target

from tests.integrations.test_spaces import sample
from tunerplugin.errors import TargetError
from tunerplugin.hw.target import register_all
from tunerplugin.integrations.compat import normalize_mod
from tunerplugin.integrations.metaschedule.limits import HardwareLimits, complete_target
from tunerplugin.integrations.metaschedule.task import DesignSpace, TuningTask, UntunableError
from tunerplugin.measure import preload_tensor_intrinsics


@pytest.fixture(autouse=True)
def _tags() -> None:
    preload_tensor_intrinsics()
    register_all()


def test_limits_are_the_chips() -> None:
    target = complete_target("tunerplugin/tpu-v2")
    assert HardwareLimits.of(target) == HardwareLimits(
        max_unroll=512,
        max_shared_memory_bytes=32 << 20,
        max_local_memory_bytes=256 << 10,
        max_vector_bytes=1024 * 2,
    )
    wide = {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.vector_lanes": 8}
    assert HardwareLimits.of(complete_target(wide)).max_vector_bytes == 16


def test_an_incomplete_accelerator_is_named() -> None:
    with pytest.raises(TargetError, match="expected feature.tunerplugin.tensor_cores"):
        complete_target({"kind": "ext_dev", "feature.tunerplugin.tensor_rows": 4})
    with pytest.raises(TargetError, match="got ext_dev: tuning cannot serve it"):
        complete_target({"kind": "ext_dev"})


def test_a_design_space_of_ones_own_gets_the_limits() -> None:
    """TVM has no schedule rules for ``ext_dev``; whoever brings a space has it limited."""
    mod = normalize_mod(te_workload.create_te_workload("GMM", 0))
    limited = {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.max_unroll": 16}
    target = complete_target(limited)
    with pytest.raises(UntunableError, match="TVM finds no design space"):
        TuningTask("GMM", mod, target)
    cpu = Target({"kind": "llvm", "num-cores": 2})
    context = ms.TuneContext(mod=mod, target=cpu, space_generator="post-order-apply")
    space = DesignSpace(tuple(context.generate_design_space()), ())
    task, free = (TuningTask("GMM", mod, t, design_space=space) for t in (target, cpu))
    words = dict(task.problem.words)
    assert (words["target"], words["vector.bits"]) == ("ext_dev", 8 * 2048)
    assert _largest_unroll(task) <= 16 < _largest_unroll(free)


def _largest_unroll(task: TuningTask) -> int:
    """The largest unroll of 40 sampled candidates."""
    found = []
    for index, *values in sample(task, 40):
        sketch = task.sketches[int(index)]
        for choice in sketch.facts.choices:
            if choice.role.startswith("unroll"):
                found.append(int(values[sketch.positions[choice.instruction, 0]]))
    return max(found)
