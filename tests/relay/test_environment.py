"""What the second environment is."""

from __future__ import annotations

import tvm
from tvm import autotvm, relay

from tunerplugin.integrations import compat


def test_this_is_the_other_generation() -> None:
    assert compat.RELAY
    assert relay.build and autotvm.task and compat.ms.tune_tir
    assert compat.compiler_version() == f"tvm-{tvm.__version__}"
