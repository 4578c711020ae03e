"""The fused MLP for TVMs of the Relay era.

    fused = tunerplugin.schedules.relay.FuseMLP(target)(mod)
    lib = relay.build(fused, target, params=params)

Under a TVM without Relay, whatever is taken from here raises ``InputError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunerplugin.errors import InputError

if TYPE_CHECKING:
    from .fused_mlp.relay import ChainReport, FuseMLP, analyse

__all__ = ["ChainReport", "FuseMLP", "analyse"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tunerplugin.integrations.compat import RELAY, compiler_version

    if not RELAY:
        raise InputError(
            f"expected a TVM with Relay, got {compiler_version()}: "
            "use tunerplugin.schedules.FuseMLP, the pass for Relax"
        )
    value = getattr(import_module(".fused_mlp.relay", __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
