"""Load a user's model from a file into a TVM module and its parameters.

Opening a model is trusting it.  A ``.py`` script is run.  ``torch.export.load`` unpickles, so here
its pickles are held to tensors (``TORCH_FORCE_WEIGHTS_ONLY_LOAD``) and archives with pickled Python
objects are refused; the expressions of dynamic shapes are still evaluated by sympy, so a ``.pt2``
from a stranger stays a risk.  ONNX and JSON files are data only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from . import environment
from .errors import InputError

# Names under which torch keeps objects that only pickle can bring back (torch 2.4 to 2.13).
PICKLED_OBJECT_PREFIXES = ("custom_obj_", "opaque_obj_")


class Model(NamedTuple):
    """A module to compile and the tensors of its trained parameters by variable name.

    ``mod`` is a ``tvm.IRModule``; ``params`` maps names of ``mod["main"]``'s trailing parameters to
    ``tvm.runtime.Tensor`` and is empty where the weights are constants or there are none.
    """

    mod: Any
    params: dict[str, Any]


def check_model_path(path: str | os.PathLike[str]) -> Path:
    """The path of a model file, without opening it.

    Raises ``InputError`` when there is no such file, or its suffix names no format that we read.
    """
    file = Path(path)
    if file.suffix not in LOADERS:
        known = ", ".join(LOADERS)
        raise InputError(
            f"expected a model file ending in one of {known}, got {str(path)!r}; "
            "export the model to one of these"
        )
    if file.is_dir():
        raise InputError(f"expected a model file, got the directory {str(path)!r}; name the file")
    if not file.is_file():
        raise InputError(
            f"expected a model file, got {str(path)!r}, which does not exist; check the path"
        )
    return file


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read ``.onnx``, torch-exported ``.pt2``, a Relax script ``.py`` or TVM's ``.json``.

    Raises ``InputError`` when the file is missing, damaged, of another kind, or holds an operator
    that TVM cannot import; with a TVM that has Relay, for all but ``.json``.
    """
    file = check_model_path(path)
    if file.suffix != ".json":
        require_relax(f"to load {str(path)!r}")
    loader, kind = LOADERS[file.suffix]
    try:
        return loader(file)
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(
            f"expected {kind}, got {str(path)!r}, which cannot be used "
            f"({_first_line(error)}); export it again, or run with --debug for the whole error"
        ) from error


def require_relax(purpose: str) -> None:
    """Raise ``InputError`` where the TVM is of the Relay era, whose Relax imports no models."""
    from .integrations.compat import RELAY, compiler_version

    if RELAY:
        raise InputError(
            f"expected a TVM without Relay {purpose}, got {compiler_version()} with Relay; import "
            "the model with tvm.relay.frontend and give the module to tunerplugin.tune, or to the "
            "command line as the .json of tvm.ir.save_json"
        )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _load_onnx(file: Path) -> Model:
    try:
        import onnx
    except ImportError as error:
        raise InputError(
            f"expected the onnx package to read {str(file)!r}, got none; "
            "run: pip install 'tunerplugin[onnx]'"
        ) from error
    from tvm.relax.frontend.onnx import from_onnx

    graph = onnx.load(str(file))
    if not graph.graph.node:
        raise ValueError("the graph has no operator")
    return _detach(from_onnx(graph, keep_params_in_input=True))


def _load_torch(file: Path) -> Model:
    import torch

    if not zipfile.is_zipfile(file):
        raise ValueError("not a torch.export.save archive")
    with zipfile.ZipFile(file) as archive:
        names = [PurePosixPath(name).name for name in archive.namelist()]
    pickled = [name for name in names if name.startswith(PICKLED_OBJECT_PREFIXES)]
    if pickled:
        raise InputError(
            f"expected an archive of tensors only, got {str(file)!r} with the pickled object "
            f"{pickled[0]!r}, which could run code; export the model without custom objects"
        )
    # holds every torch.load to tensors, also those that ask for more
    with environment.variable("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1"):
        exported = torch.export.load(str(file))
    return from_torch(exported)


def from_torch(exported: Any) -> Model:
    """Import a ``torch.export.ExportedProgram``; its parameters stay apart from the module."""
    from tvm.relax.frontend.torch import from_exported_program

    with warnings.catch_warnings():
        # torch warns about its own copying of a module's signature.
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        mod = from_exported_program(
            exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
        )
    return _detach(mod)


def _detach(mod: Any) -> Model:
    """Split a frontend's module into the module and its parameters by name."""
    from tvm.relax.frontend import detach_params

    mod, by_function = detach_params(mod)
    tensors = by_function.get("main", [])
    if not tensors:
        return Model(mod, {})
    variables = list(mod["main"].params)[-len(tensors) :]
    return Model(mod, {v.name: t for v, t in zip(variables, tensors, strict=True)})


def _load_script(file: Path) -> Model:
    """Run the script and take its one module (or its one function).

    TVMScript reads its own source, so the file is imported as a module under a name of its own.
    """
    import tvm

    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"_tunerplugin_model_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError("not a Python file")
    script = importlib.util.module_from_spec(spec)
    sys.modules[name] = script
    try:
        spec.loader.exec_module(script)
    finally:
        del sys.modules[name]
    for kinds in ((tvm.IRModule,), _function_kinds()):
        found = {id(v): (k, v) for k, v in vars(script).items() if isinstance(v, kinds)}
        if len(found) > 1:
            names = ", ".join(sorted(k for k, _ in found.values()))
            raise InputError(
                f"expected one IRModule in {str(file)!r}, got {len(found)} ({names}); "
                "keep one in the file, or put all functions into one module"
            )
        for _, value in found.values():
            return Model(_as_module(value), {})
    raise InputError(
        f"expected one IRModule in {str(file)!r}, got none; "
        "define one with @tvm.script.ir.ir_module at the top of the file"
    )


def _load_json(file: Path) -> Model:
    import tvm

    return Model(_as_module(tvm.ir.load_json(file.read_text(encoding="utf-8"))), {})


def _function_kinds() -> tuple[Any, ...]:
    from .integrations.compat import graph_function, tirx

    return tirx.PrimFunc, graph_function()


def _as_module(value: Any) -> Any:
    import tvm

    if isinstance(value, tvm.IRModule):
        return value
    if isinstance(value, _function_kinds()):
        return tvm.IRModule({"main": value})
    raise ValueError(f"holds a {type(value).__name__}, not a module")


LOADERS: dict[str, tuple[Callable[[Path], Model], str]] = {
    ".onnx": (_load_onnx, "an ONNX model"),
    ".pt2": (_load_torch, "a model saved by torch.export.save"),
    ".py": (_load_script, "a TVMScript file"),
    ".json": (_load_json, "a module saved by tvm.ir.save_json"),
}
