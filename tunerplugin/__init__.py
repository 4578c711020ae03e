"""A compiler-plugin style autotuner for Apache TVM.

``import tunerplugin`` loads neither torch nor tvm: the names below are looked up when they are
first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .integrations.metaschedule import (
        BeamSearch,
        Seq2SeqModel,
        local_builder,
        predict,
        register,
        tune,
    )
    from .models import load_model

try:
    __version__ = version("tunerplugin")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+checkout"

# A checkout that is used as it lies has schedules/ and hw/ beside the package, not in it.
_PARENT = Path(__file__).resolve().parents[1]
if (_PARENT / "setup.cfg").is_file() and (_PARENT / "schedules").is_dir():
    __path__.append(str(_PARENT))

_HOME = {
    "BeamSearch": ".integrations.metaschedule",
    "Seq2SeqModel": ".integrations.metaschedule",
    "load_model": ".models",
    "local_builder": ".integrations.metaschedule",
    "predict": ".integrations.metaschedule",
    "register": ".integrations.metaschedule",
    "tune": ".integrations.metaschedule",
}

_SUBPACKAGES = frozenset(
    (
        "autotvm",
        "hw",
        "integrations",
        "measure",
        "predictor",
        "records",
        "schedules",
        "search",
        "sources",
        "space",
    )
)

__all__ = [
    "BeamSearch",
    "Seq2SeqModel",
    "__version__",
    "load_model",
    "local_builder",
    "predict",
    "register",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Load the public name ``name`` from its module, or the subpackage of that name."""
    if name in _SUBPACKAGES:
        return import_module(f".{name}", __name__)
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
