"""The pass as a pipeline: ``tvm.compile(mod, target, relax_pipeline="tunerplugin-fused-mlp")``."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.pipeline import PIPELINE_MAP

from ..dispatch import current_target
from .fuse import FuseMLP

PIPELINE = "tunerplugin-fused-mlp"


@tvm.transform.module_pass(opt_level=0, name=PIPELINE)
class FusedMLPPipeline:
    """``FuseMLP`` and then the pipeline that ``tvm.compile`` takes by default.

    ``options`` are those of ``FuseMLP``.  Without a target there it is ``Target.current()``, which
    ``tvm.compile`` sets.
    """

    def __init__(self, **options: Any) -> None:
        self.fuse = FuseMLP(**options)

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """The module, ready for code generation."""
        target = self.fuse.target or current_target()
        # As tvm.compile chooses: GPUs need the thread bindings of dlight.
        rest = (
            relax.get_default_pipeline(target)
            if "gpu" in target.keys
            else relax.get_pipeline("default")
        )
        with target:
            return rest(self.fuse(mod))


def register_pipeline() -> None:
    """Make ``relax_pipeline="tunerplugin-fused-mlp"`` work; a second call does nothing."""
    if PIPELINE not in PIPELINE_MAP:
        relax.register_pipeline(PIPELINE)(FusedMLPPipeline)
