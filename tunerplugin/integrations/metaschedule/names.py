"""Names for TVM's ``strategy=`` and ``cost_model=`` arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...measure import preload_tensor_intrinsics
from ..compat import RELAY, ms
from .cost_model import Seq2SeqModel
from .strategy import BeamSearch

STRATEGY = "constrained-beam"
COST_MODEL = "seq2seq"
_MARK = "_tunerplugin_name"


def register() -> None:
    """Make ``strategy="constrained-beam"`` and ``cost_model="seq2seq"`` work wherever TVM takes
    names.  TVM's factories know fixed names only, so they are wrapped; a second call does nothing.

    The Relax pipeline ``"tunerplugin-fused-mlp"`` is registered too, unless TVM has Relay.  Also
    loads TVM's tensor intrinsics in seconds, which ``TuneContext`` would take a minute for.
    """
    preload_tensor_intrinsics()
    if not RELAY:
        from ...schedules.fused_mlp.relax.pipeline import register_pipeline

        register_pipeline()
    _extend(ms.search_strategy.SearchStrategy, STRATEGY, BeamSearch)
    _extend(ms.cost_model.CostModel, COST_MODEL, Seq2SeqModel)


def _extend(factory: Any, name: str, make: Callable[..., Any]) -> None:
    original = factory.create
    if getattr(original, _MARK, None) == name:
        return

    @functools.wraps(original)
    def create(kind: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kind == name:
            # TVM passes these to every cost model for the sake of XGBoost's
            options = {
                k: v for k, v in kwargs.items() if k not in {"num_tuning_cores", "tree_method"}
            }
            return make(*args, **options)
        return original(*args, **kwargs) if kind is None else original(kind, *args, **kwargs)

    setattr(create, _MARK, name)
    factory.create = staticmethod(create)
