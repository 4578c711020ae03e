"""The operator graph of an ONNX model, through Relax's importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx as nx

from ...errors import GraphError
from .relax_graph import from_relax


def from_onnx(
    model: str | Path | Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    training: bool = False,
    loss: str | None = None,
    optimizer: str | None = None,
    name: str | None = None,
) -> nx.DiGraph:
    """Read an ONNX file or ``onnx.ModelProto``; see ``from_relax`` for the other arguments.

    ``shapes`` gives input name -> shape where the model leaves them open, ``batch`` the first
    dimension of every input that leaves it open.  The initialisers are the weights; with
    ``training`` those of floating point are trained.

    Raises ``GraphError`` when onnx is not installed, the file is no model, an input has no fixed
    shape, or the importer lacks an operator.
    """
    try:
        import onnx
    except ImportError as error:
        raise GraphError(
            "reading ONNX needs onnx, which is not installed; install tunerplugin[onnx]"
        ) from error
    from tvm.relax.frontend.onnx import from_onnx as import_onnx

    proto = _load(onnx, model) if isinstance(model, (str, Path)) else model
    known = _shapes(proto, shapes or {}, batch)
    try:
        module = import_onnx(proto, shape_dict=known, keep_params_in_input=True)
    except (RuntimeError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(f"TVM cannot import this ONNX model: {reason}") from error
    main = module["main"]
    inputs = int(main.attrs["num_input"])
    weights = [p.name for p in main.params[inputs:] if "float" in str(p.ty.dtype)]
    return from_relax(
        module,
        parameters=weights,
        training=training,
        loss=loss,
        optimizer=optimizer,
        name=name or str(proto.graph.name),
    )


def _load(onnx: Any, path: str | Path) -> Any:
    damaged = import_module("google.protobuf.message").DecodeError
    try:
        return onnx.load(str(path))
    except (OSError, damaged, ValueError) as error:
        raise GraphError(f"expected an ONNX model in {path}: {error}") from error


def _shapes(
    proto: Any, given: Mapping[str, Sequence[int]], batch: int | None
) -> dict[str, list[int]]:
    """Fixed shapes of all inputs that are no initialisers."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    found: dict[str, list[int]] = {}
    for value in proto.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        sizes = [dim.dim_value for dim in dims]
        if sizes and sizes[0] < 1 and batch is not None:
            sizes[0] = batch
        found[value.name] = list(given.get(value.name, sizes))
        if min(found[value.name], default=1) < 1:
            shown = [dim.dim_value or dim.dim_param or "?" for dim in dims]
            raise GraphError(
                f"expected a fixed shape of the ONNX input {value.name!r}, got {shown}; give a "
                f"batch where only the first is open, else shapes={{{value.name!r}: [...]}}"
            )
    unknown = sorted(set(given) - set(found))
    if unknown:
        raise GraphError(f"expected shapes of the inputs {sorted(found)}, got {unknown}")
    return found
