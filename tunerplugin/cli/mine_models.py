"""What ``tunerplugin mine`` takes as MODEL: a built-in workload, or a file of the user's."""

from __future__ import annotations

import argparse
import importlib.util
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, TunerError

if TYPE_CHECKING:
    import networkx as nx

#: what a script's function may return besides a graph
_RETURNS = "a graph, (module, inputs), (module, inputs, loss) or (module, inputs, loss, targets)"
_IMAGES, _TOKENS = "built-in models of images", "built-in models of sequences"
#: option -> the kinds of MODEL that it acts on
_TAKEN_BY = {
    "sequence": {_TOKENS},
    "dtype": {_IMAGES, _TOKENS},
    "recompute": {_IMAGES, _TOKENS, ".py"},
    "loss": {".onnx", ".json"},
}
_OF_TRAINING = ("optimizer", "recompute", "loss")


def kinds() -> str:
    """For help texts and errors."""
    from tunerplugin.hw.graph import WORKLOADS

    return f"model.py:FUNCTION, model.onnx, relax.json or one of {', '.join(WORKLOADS)}"


def check_options(models: Iterable[str], args: argparse.Namespace) -> None:
    """Raise ``InputError`` for an option that acts on none of the models."""
    for option in () if args.train else _OF_TRAINING:
        if getattr(args, option) is not None:
            raise InputError(f"--{option}: expected --train beside it, got inference")
    kinds_there = {_kind(model) for model in models}
    for option, takers in _TAKEN_BY.items():
        if getattr(args, option) is not None and not kinds_there & takers:
            raise InputError(
                f"--{option}: expected a model that it acts on ({', '.join(sorted(takers))}), "
                f"got {', '.join(models)}"
            )


def _kind(text: str) -> str:
    from tunerplugin.hw.graph import WORKLOADS

    if text in WORKLOADS:
        return _IMAGES if WORKLOADS[text].sequence is None else _TOKENS
    return Path(text.partition(":")[0]).suffix


def read(text: str, args: argparse.Namespace) -> nx.DiGraph:
    """The operator graph of MODEL.  Raises ``InputError`` or ``GraphError`` with what to do."""
    from tunerplugin.hw.graph import from_onnx, from_relax, read_relax, workload

    optimizer = (args.optimizer or "adam") if args.train else None
    path, _, function = text.partition(":")
    kind = _kind(text)
    if kind in (_IMAGES, _TOKENS):
        return workload(
            text,
            args.batch,
            args.sequence if kind == _TOKENS else None,
            training=args.train,
            optimizer=optimizer,
            recompute=args.recompute or "none",
            dtype=args.dtype or "bfloat16",
        )
    if kind not in (".py", ".onnx", ".json"):
        raise InputError(f"expected {kinds()}, got {text!r}")
    _check_file(path)
    if kind == ".py":
        graph = _from_script(Path(path), function or "build", args)
    else:
        how = {"training": args.train, "loss": args.loss, "optimizer": optimizer}
        how |= {"batch": args.batch}
        onnx = kind == ".onnx"
        graph = from_onnx(path, **how) if onnx else from_relax(read_relax(path), **how)
    graph.graph["name"] = Path(path).stem + (f":{function}" if function else "")
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
    return _guarded(
        path,
        lambda: from_torch(
            module,
            inputs,
            loss=made[2] if len(made) > 2 else None,
            targets=made[3] if len(made) > 3 else (),
            training=args.train,
            optimizer=(args.optimizer or "adam") if args.train else None,
            recompute=args.recompute or "none",
        ),
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
        frames = traceback.extract_tb(error.__traceback__)
        script = path.resolve()
        own = [frame.lineno for frame in frames if Path(frame.filename).resolve() == script]
        where = f" in line {own[-1]}" if own else ""
        raise InputError(
            f"{path}: expected a script that runs, got {type(error).__name__}{where}: {error}"
        ) from error
