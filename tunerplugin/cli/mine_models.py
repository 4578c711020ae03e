"""What ``tunerplugin mine`` takes as MODEL: a built-in workload, or a file of the user's."""

from __future__ import annotations

import argparse
import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, TunerError

if TYPE_CHECKING:
    import networkx as nx

#: what a script's function may return besides a graph
_RETURNS = "a graph, (module, inputs), (module, inputs, loss) or (module, inputs, loss, targets)"


def kinds() -> str:
    """For help texts and errors."""
    from tunerplugin.hw.graph import WORKLOADS

    return f"model.py:FUNCTION, model.onnx, relax.json or one of {', '.join(WORKLOADS)}"


def read(text: str, args: argparse.Namespace) -> nx.DiGraph:
    """The operator graph of MODEL.  Raises ``InputError`` or ``GraphError`` with what to do."""
    from tunerplugin.hw.graph import WORKLOADS, from_onnx, from_relax, read_relax, workload

    optimizer = args.optimizer if args.train else None
    path, _, function = text.partition(":")
    if text in WORKLOADS:
        return workload(
            text,
            args.batch,
            args.sequence,
            training=args.train,
            optimizer=optimizer,
            recompute=args.recompute,
            dtype=args.dtype,
        )
    suffix = Path(path).suffix
    if suffix not in (".py", ".onnx", ".json"):
        raise InputError(f"expected {kinds()}, got {text!r}")
    _check_file(path)
    if suffix == ".py":
        graph = _from_script(Path(path), function or "build", args)
    elif suffix == ".onnx":
        graph = from_onnx(path, training=args.train, loss=args.loss, optimizer=optimizer)
    else:
        graph = from_relax(
            read_relax(path), training=args.train, loss=args.loss, optimizer=optimizer
        )
    graph.graph["name"] = Path(path).stem
    if args.batch is not None:
        graph.graph["batch"] = args.batch
    return graph


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise InputError(f"expected a model file, got {path!r}, which is not one; check the path")


def _from_script(path: Path, function: str, args: argparse.Namespace) -> nx.DiGraph:
    import networkx as nx

    from tunerplugin.hw.graph import from_torch

    made = _call(path, function)
    if isinstance(made, nx.DiGraph):
        return made
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise InputError(
            f"{path}: expected {function}() to return {_RETURNS}, got {type(made).__name__}"
        )
    module, inputs = made[:2]
    return from_torch(
        module,
        inputs,
        loss=made[2] if len(made) > 2 else None,
        targets=made[3] if len(made) > 3 else (),
        training=args.train,
        optimizer=args.optimizer if args.train else None,
        recompute=args.recompute,
    )


def _call(path: Path, function: str) -> Any:
    """Run a script and call one of its functions; what it raises is said in one sentence."""
    spec = importlib.util.spec_from_file_location(f"_tunerplugin_mine_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"expected a Python file, got {str(path)!r}")
    script = importlib.util.module_from_spec(spec)
    _guarded(path, lambda: spec.loader.exec_module(script) if spec.loader else None)
    build = getattr(script, function, None)
    if not callable(build):
        raise InputError(
            f"{path}: expected a function {function}() that returns {_RETURNS}, got none; "
            f"name it as {path}:FUNCTION"
        )
    return _guarded(path, build)


def _guarded(path: Path, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except TunerError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's own code may raise anything
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise InputError(
            f"{path}: expected a script that runs, got {type(error).__name__} in line {line}: "
            f"{error}"
        ) from error
