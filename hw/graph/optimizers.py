"""Optimiser updates written out in tensor operations, so that they can be traced.

Mixed precision follows Micikevicius et al. 2018 (arXiv 1710.03740): parameters of 16 bits have a
float32 master copy, the state is float32, and the update ends with a cast.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from ...errors import GraphError
from .operator import Phase
from .recorder import Recorder


class Optimizer(StrEnum):
    """The optimisers that can be traced."""

    NONE = "none"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @classmethod
    def of(cls, name: str | None) -> Optimizer:
        """The optimiser of that name (``None``: none).  Raises ``GraphError``."""
        try:
            return cls(name or "none")
        except ValueError:
            known = ", ".join(cls)
            raise GraphError(f"expected an optimizer of {known}, got {name!r}") from None

    @property
    def state_tensors(self) -> int:
        """Tensors of state beside each parameter."""
        return {Optimizer.MOMENTUM: 1, Optimizer.ADAM: 2}.get(self, 0)


# Constants do not change the graph.
_RATE, _MOMENTUM, _BETA1, _BETA2, _EPSILON = 1e-3, 0.9, 0.9, 0.999, 1e-8

_State = list[torch.Tensor]
_Update = Callable[[torch.Tensor, torch.Tensor, _State], _State]


def _sgd(parameter: torch.Tensor, gradient: torch.Tensor, state: _State) -> _State:
    return [parameter.add(gradient, alpha=-_RATE)]


def _momentum(parameter: torch.Tensor, gradient: torch.Tensor, state: _State) -> _State:
    (velocity,) = state
    velocity = velocity.mul(_MOMENTUM).add(gradient)
    return [parameter.add(velocity, alpha=-_RATE), velocity]


def _adam(parameter: torch.Tensor, gradient: torch.Tensor, state: _State) -> _State:
    first, second = state
    first = first.mul(_BETA1).add(gradient, alpha=1 - _BETA1)
    second = second.mul(_BETA2).addcmul(gradient, gradient, value=1 - _BETA2)
    # The bias corrections are one scalar each per step: they fold into rate and epsilon.
    return [parameter.addcdiv(first, second.sqrt().add(_EPSILON), value=-_RATE), first, second]


_UPDATES: dict[Optimizer, _Update] = {
    Optimizer.SGD: _sgd,
    Optimizer.MOMENTUM: _momentum,
    Optimizer.ADAM: _adam,
}


@dataclass(frozen=True)
class Update:
    """One parameter to update: its module's path, shape and dtype, and the buffers of itself and
    of its gradient (in the parameter's dtype)."""

    layer: str
    shape: Sequence[int]
    dtype: torch.dtype
    parameter: Hashable
    gradient: Hashable


def run_optimizer(recorder: Recorder, optimizer: Optimizer, updates: Sequence[Update]) -> int:
    """Record one step of ``optimizer`` on all parameters; the bytes of its state.

    It runs on meta tensors, which are faster than fake ones and enough here.
    """
    if optimizer == Optimizer.NONE:
        return 0
    recorder.phase = Phase.OPTIMIZER
    state_bytes = 0
    for row in updates:
        parameter = recorder.stand_in(row.shape, row.dtype, row.parameter)
        gradient = recorder.stand_in(row.shape, row.dtype, row.gradient)
        state = _make_state(optimizer, parameter)
        recorder.mark_weights(state)
        state_bytes += sum(tensor.numel() * tensor.element_size() for tensor in state)
        recorder.stack.append(row.layer)
        with torch.no_grad(), recorder:
            recorder.keep(_update(optimizer, parameter, gradient, state))
        recorder.stack.pop()
    return state_bytes


def _make_state(optimizer: Optimizer, parameter: torch.Tensor) -> list[torch.Tensor]:
    """State tensors in float32 or wider, the master copy first where there is one."""
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    count = int(dtype != parameter.dtype) + optimizer.state_tensors
    return [torch.empty_like(parameter, dtype=dtype) for _ in range(count)]


def _update(
    optimizer: Optimizer, parameter: torch.Tensor, gradient: torch.Tensor, state: _State
) -> _State:
    """The new parameter and what else must be stored."""
    apply = _UPDATES[optimizer]
    if len(state) == optimizer.state_tensors:
        return apply(parameter, gradient, state)
    master, *rest = state
    new = apply(master, gradient.to(master.dtype), rest)
    return [new[0].to(parameter.dtype), *new]
