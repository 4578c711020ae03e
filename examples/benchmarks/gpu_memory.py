"""TVM's own count of the shared memory that a scheduled GPU program takes."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import analysis
from tvm.s_tir import transform as s_transform
from tvm.tirx import transform as x_transform

#: no GPU has this much per block; only bounds the search
_MOST_BYTES = 1 << 26
_LIMIT = "max_shared_memory_per_block"


def verified_shared_bytes(mod: Any, target: Any) -> int:
    """The least limit in bytes at which TVM's ``verify_gpu_code`` accepts every kernel.

    ``mod`` has passed the postprocessors (all loops are bound); it is lowered by the passes of
    ``VerifyGPUCode`` (TVM 0.27, src/s_tir/meta_schedule/postproc/verify_gpu_code.cc).  This shares
    no code with the prediction that it is compared with.
    """
    (function,) = mod.functions.values()
    attributes = {"global_symbol": "main", "target": target, "tirx.noalias": True}
    for name, value in attributes.items():
        function = function.with_attr(name, value)
    lowered = tvm.transform.Sequential(_passes())(tvm.IRModule({"main": function}))["main"]
    low, high = 0, _MOST_BYTES
    while low < high:
        middle = (low + high) // 2
        if analysis.verify_gpu_code(lowered, {_LIMIT: middle}):
            high = middle
        else:
            low = middle + 1
    return low


def _passes() -> list[Any]:
    return [
        s_transform.LowerCrossThreadReduction(),
        s_transform.LowerInitBlock(),
        s_transform.PlanAndUpdateBufferAllocationLocation(),
        s_transform.ConvertBlocksToOpaque(),
        s_transform.LiftThreadBinding(),
        s_transform.ManifestSharedMemoryLocalStage(),
        s_transform.CompactBufferAllocation(),
        x_transform.StmtSimplify(),
        s_transform.LowerAutoCopy(),
        s_transform.UnifyThreadBinding(),
        s_transform.LowerMatchBuffer(),
        s_transform.InjectSoftwarePipeline(),
        s_transform.LowerOpaqueBlock(),
        x_transform.FlattenBuffer(),
        x_transform.BF16ComputeLegalize(),
        x_transform.NarrowDataType(32),
        x_transform.StmtSimplify(),
        x_transform.VectorizeLoop(True),
        s_transform.InjectVirtualThread(),
        s_transform.InjectDoubleBuffer(),
        x_transform.StorageRewrite(),
        s_transform.MergeSharedMemoryAllocations(),
        x_transform.LowerIntrin(),
    ]
