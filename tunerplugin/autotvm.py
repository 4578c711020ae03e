"""AutoTVM with our search, for a TVM of the Relay era.

    from tunerplugin import autotvm as ours
    tuner = ours.Seq2SeqTuner(task)
    tuner.tune(64, ours.measure_option(), callbacks=[autotvm.callback.log_to_file("tuning.log")])

A TVM without AutoTVM can import this module; using a name of it raises ``InputError``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from .integrations.autotvm.measure import measure_option
    from .integrations.autotvm.tuner import Seq2SeqTuner

__all__ = ["Seq2SeqTuner", "measure_option"]

_HOME = {
    "Seq2SeqTuner": ".integrations.autotvm.tuner",
    "measure_option": ".integrations.autotvm.measure",
}


def __getattr__(name: str) -> Any:
    """Load a public name.  Raises ``InputError`` under a TVM without AutoTVM."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("tvm.autotvm") is None:
        import tvm

        raise InputError(
            f"expected a TVM with AutoTVM for {name}, got TVM {tvm.__version__}, which has none: "
            "use tunerplugin.tune, or a TVM of the Relay era"
        )
    value = getattr(import_module(_HOME[name], __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
