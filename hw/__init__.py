"""Accelerators as data, and what a workload costs on them; installs as ``tunerplugin.hw``.

``chip("tpu-v2")`` is an ``Accelerator``, and so is a TOML file that ``load`` reads; ``register``
makes one a TVM target and ``Estimator`` costs operators on it.  ``hw.graph`` makes operator graphs
and ``hw.mine`` searches for the best design of one.  Importing this package loads neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accelerator import Accelerator
    from .datasheet import load, save
    from .estimate.estimator import Estimator
    from .target import chip, from_target, known, register

_HOME = {
    "Accelerator": ".accelerator",
    "Estimator": ".estimate.estimator",
    "chip": ".target",
    "from_target": ".target",
    "known": ".target",
    "load": ".datasheet",
    "register": ".target",
    "save": ".datasheet",
}

__all__ = ["Accelerator", "Estimator", "chip", "from_target", "known", "load", "register", "save"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
