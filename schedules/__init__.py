"""Schedule templates for operators that TVM's own rules leave slow; installs as
``tunerplugin.schedules``.

A template hands out a ``tunerplugin.space.Space`` and builds what was chosen from it; it never
imports the predictor.  ``FuseMLP`` is the Relax pass that puts the fused MLP into a model;
``schedules.relay`` has the one for TVMs of the Relay era.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunerplugin.errors import InputError

from . import relay

if TYPE_CHECKING:
    from .fused_mlp.relax import FuseMLP

# Name -> the module that has it; loaded when it is first used, since it takes TVM.
_HOME = {"FuseMLP": ".fused_mlp.relax"}

__all__ = ["FuseMLP", "relay"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tunerplugin.integrations.compat import RELAY, compiler_version

    if RELAY:
        raise InputError(
            f"expected a TVM with Relax, got {compiler_version()}: "
            f"use tunerplugin.schedules.relay.{name}"
        )
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
