"""The fused operator as a task of AutoTVM: the CPU template's knobs as a configuration space.

``autotvm.task.extract_from_program`` finds the task, any tuner tunes it, and ``relay.build`` under
``autotvm.apply_history_best`` takes the best knobs; without a record it takes the template's
defaults.  How weights are packed depends on none of these knobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import autotvm, te

from ..cpu.inference import KNOBS, space
from ..cpu.plan import TILE_ROWS, whole_blocks
from .operator import NAME, Call, lower


@autotvm.register_topi_compute(NAME)  # type: ignore[untyped-decorator]
def _compute(config: Any, call: str, *inputs: Any) -> Any:
    """AutoTVM's template: ``call`` is ``Call.dumps``, ``inputs`` are the operator's arguments."""
    decoded, target = Call.loads(call), tvm.target.Target.current(allow_none=False)
    config.add_flop(decoded.mlp.flops(int(inputs[0].shape[0])))
    knobs = None if config.is_fallback else _knobs(config, decoded, target)
    return lower(decoded, inputs, target, knobs)


def _knobs(config: Any, call: Call, target: Any) -> dict[str, int] | None:
    """Define the knobs of the template's space, and read them; None for what cannot be.

    AutoTVM's knobs are independent of each other, so ``rows`` stands for the nearest multiple of
    ``block_rows``, and combinations that the template's space leaves out are marked as errors.
    """
    choices = space(call.mlp, target)
    prefix: tuple[Any, ...] = ()
    for name in KNOBS:
        knob = choices.knob(prefix)
        assert knob is not None, "one domain for each knob"
        config.define_knob(name, list(TILE_ROWS if name == "rows" else knob.domain))
        prefix += (knob.domain[0],)
    knobs = {name: int(config[name].val) for name in KNOBS}
    knobs["rows"] = whole_blocks(knobs["rows"], knobs["block_rows"])
    if choices.contains(list(knobs.values())):
        return knobs
    config.raise_error(f"expected knobs of the template's space, got {knobs}")
    return None


@autotvm.register_topi_schedule(NAME)  # type: ignore[untyped-decorator]
def _schedule(_config: Any, outputs: Sequence[Any]) -> Any:
    return te.create_schedule([tensor.op for tensor in outputs])


def tuned_compute(attributes: Any, inputs: Sequence[Any], _out_type: Any) -> list[Any]:
    """The operator's compute, for its strategy."""
    return [_compute(str(attributes["call"]), *inputs)]


def tuned_schedule(_attributes: Any, outputs: Sequence[Any], target: Any) -> Any:
    """The operator's schedule, for its strategy."""
    with target:
        return _schedule(outputs)
