"""One question for every target: should this kernel be used there?"""

from __future__ import annotations

import pytest
import tvm

from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp import MLP
from tunerplugin.schedules.fused_mlp.dispatch import select
from tunerplugin.schedules.fused_mlp.gpu.intel import PVC, XMX_PVC, target_config
from tunerplugin.schedules.offline import intel
from tunerplugin.schedules.offline.refuse import refusal

SMALL = MLP.uniform(32, 2, dtype="float16")


def test_nobody_can_tell_of_a_cpu_or_an_unknown_device() -> None:
    for target in (host_target(), {"kind": "opencl", "max_num_threads": 256}):
        template, reason = select(SMALL, target)
        assert template is not None, reason
        assert refusal(template.build(SMALL, None, target), target) is None


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_amd_and_intel_compilers_are_asked() -> None:
    amd = {"kind": "rocm", "mcpu": "gfx942"}
    template, reason = select(SMALL, amd)
    assert template is not None, reason
    assert refusal(template.build(SMALL, None, amd), amd) is None
    if missing := intel.available():
        pytest.skip(missing)
    target = tvm.target.Target(target_config(PVC))
    wide = MLP.uniform(128, 2, dtype="float16")
    # width 128 spills with 128 registers and does not with 256 (paper, section III)
    narrow = XMX_PVC.build(wide, None, target, registers=128)
    assert "spill" in (refusal(narrow, target) or "")
    assert refusal(XMX_PVC.build(wide, None, target, registers=256), target) is None
