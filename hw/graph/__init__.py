"""Operator graphs of inference and of whole training steps.

``from_torch``, ``from_relax``, ``from_onnx`` and ``workload`` make a graph, ``fuse`` merges its
chains, ``check`` validates it and ``signatures`` says which operators cost the same.  Importing
this package imports neither torch nor TVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .checks import check, count_kinds, gemm_flops, operators, representatives, signatures
from .functions import FUNCTIONS, Primitive
from .fusion import fuse
from .operator import DTYPE_BYTES, Core, Gemm, Kind, Operator, Phase
from .workloads import WHAM_WORKLOADS, WORKLOADS, workload

if TYPE_CHECKING:
    from .onnx_graph import from_onnx
    from .relax_graph import from_relax, read_relax
    from .torch_graph import from_torch

_LAZY = {
    "from_onnx": "onnx_graph",
    "from_relax": "relax_graph",
    "read_relax": "relax_graph",
    "from_torch": "torch_graph",
}

__all__ = [
    "DTYPE_BYTES",
    "FUNCTIONS",
    "WHAM_WORKLOADS",
    "WORKLOADS",
    "Core",
    "Gemm",
    "Kind",
    "Operator",
    "Phase",
    "Primitive",
    "check",
    "count_kinds",
    "from_onnx",
    "from_relax",
    "from_torch",
    "fuse",
    "gemm_flops",
    "operators",
    "read_relax",
    "representatives",
    "signatures",
    "workload",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
