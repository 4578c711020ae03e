"""The operator graph of a torch module: inference, or a whole training step.

Everything runs on fake tensors (shapes without data), so weights are neither needed nor read, and
a model of 175 billion parameters takes as little memory as a small one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import networkx as nx
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...errors import GraphError
from .checks import check
from .layers import Recompute, track
from .operator import Phase
from .optimizers import Optimizer, Update, run_optimizer
from .phases import split_backward
from .recorder import Recorder

Loss = Callable[..., torch.Tensor]


def from_torch(
    module: nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    loss: Loss | None = None,
    targets: Sequence[torch.Tensor] = (),
    training: bool = True,
    optimizer: str | None = None,
    recompute: Recompute | str | bool = False,
    name: str | None = None,
) -> nx.DiGraph:
    """Trace ``module(*inputs)`` (``**inputs`` for a mapping) to an operator graph.

    The module and the inputs may be real, on the ``meta`` device or fake: only shapes and types
    are used.  With ``training`` the graph is forward, ``loss(output, *targets)``, the gradients
    of all parameters that require one, and the update by ``optimizer`` ("sgd", "momentum",
    "adam" or none).  ``loss`` may be omitted when the module returns its loss (a scalar, or
    ``.loss``).  ``recompute`` (``True``: "block") is what activation checkpointing drops.

    Operators are in execution order.  ``graph.graph`` holds "name", "training", "optimizer",
    "recompute", "parameters" (count), "parameter_bytes", "state_bytes" and "batch", the samples
    of one step: the first dimension of the first input that is a tensor.

    Raises ``GraphError`` when the module is none, cannot run on shapes alone, has no loss, or has
    no parameters to train.
    """
    if not isinstance(module, nn.Module):
        raise GraphError(f"expected a torch.nn.Module, got {type(module).__name__}")
    chosen = Optimizer.of(optimizer if training else None)
    again = _recompute(recompute) if training else Recompute.NONE
    trace = _Trace(module, training)
    modes = [(child, child.training) for child in module.modules()]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _plain_operators():
            with torch.set_grad_enabled(training), track(module, trace.recorder.stack, again):
                module.train(training)
                trace.run(inputs, loss, targets)
        trace.update(chosen)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"{type(module).__name__} does not run on tensors without data ({reason}); give "
            "inputs that fit it, and a model whose shapes do not depend on data"
        ) from error
    finally:
        for child, was_training in modes:
            child.training = was_training
    graph = trace.recorder.builder.graph
    graph.graph |= {"name": name or type(module).__name__, "training": training}
    graph.graph["batch"] = _batch(inputs)
    graph.graph |= {"optimizer": chosen.value, "recompute": again.value} | trace.facts
    check(graph)
    return graph


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Have torch run layers as matrix products and vector operators, not as kernels of its own.

    oneDNN's LSTM, the fast path of the transformer encoder and fused attention would be one opaque
    operator each.  What torch logs of a shape that does not fit is in the error that follows.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    logs = log.disabled
    # torch.backends.mkldnn.flags() would set the precision of other devices too, and warn of it
    onednn, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    try:
        log.disabled = True
        torch._C._set_mkldnn_enabled(False)
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        log.disabled = logs
        torch._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(fast)


def _batch(inputs: Sequence[Any] | Mapping[str, Any]) -> int:
    values = inputs.values() if isinstance(inputs, Mapping) else inputs
    shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
    return max(1, shapes[0][0]) if shapes and shapes[0] else 1


class _Trace:
    """The parts of a step, run one after the other under one recorder."""

    def __init__(self, module: nn.Module, training: bool) -> None:
        self.module, self.training, self.recorder = module, training, Recorder()
        self.gradients: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        sizes = [(p.numel(), p.element_size()) for p in module.parameters()]
        self.facts: dict[str, object] = {
            "parameters": sum(count for count, _ in sizes),
            "parameter_bytes": sum(count * size for count, size in sizes),
            "state_bytes": 0,
        }

    def run(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        loss: Loss | None,
        targets: Sequence[torch.Tensor],
    ) -> None:
        """Run the step up to the gradients on fake parameters; must run under a fake mode."""
        tensors = _fake_state(self.module, self.training)
        self.parameters = {key: tensors[key] for key, _ in self.module.named_parameters()}
        self.recorder.mark_weights(self.parameters.values())
        step = _Step(self, _fake(inputs), loss, _fake(targets))
        renamed = {f"module.{key}": tensor for key, tensor in tensors.items()}
        with self.recorder:
            torch.func.functional_call(step, renamed, ())

    def backward(self, value: torch.Tensor) -> None:
        """Run the gradients of every parameter that requires one."""
        trained = {key: p for key, p in self.parameters.items() if p.requires_grad}
        if not trained:
            raise GraphError("expected parameters to train, got a module without any")
        recorder, leaves = self.recorder, list(trained.values())
        recorder.phase = Phase.BACKWARD_DATA
        gradients = torch.autograd.grad(value, leaves, allow_unused=True)
        rows = zip(trained, leaves, gradients, strict=True)
        self.gradients = [(key, p, g) for key, p, g in rows if g is not None]
        writers: dict[str, tuple[int, int]] = {}
        for index, (_, parameter, gradient) in enumerate(self.gradients):
            writer = recorder.writer(gradient)
            if writer is not None:
                writers[writer] = (index, parameter.numel())
        split_backward(recorder.builder.graph, writers)

    def update(self, optimizer: Optimizer) -> None:
        """Run the optimiser on every gradient."""
        tensor = self.recorder.tensor
        rows = [
            Update(key.rpartition(".")[0], p.shape, p.dtype, tensor(p).buffer, tensor(g).buffer)
            for key, p, g in self.gradients
        ]
        self.facts["state_bytes"] = run_optimizer(self.recorder, optimizer, rows)


class _Step(nn.Module):
    """Forward, loss and backward as one module: recomputation runs in the backward pass, and has
    to meet the same fake parameters there."""

    def __init__(
        self, trace: _Trace, inputs: Any, loss: Loss | None, targets: Sequence[torch.Tensor]
    ) -> None:
        super().__init__()
        self.module, self.trace = trace.module, trace
        self.inputs, self.loss, self.targets = inputs, loss, targets

    def forward(self) -> None:
        keywords = isinstance(self.inputs, dict)
        output = self.module(**self.inputs) if keywords else self.module(*self.inputs)
        if self.trace.training:
            self.trace.recorder.phase = Phase.LOSS
            self.trace.backward(_scalar(output, self.loss, self.targets))


def _scalar(output: Any, loss: Loss | None, targets: Sequence[torch.Tensor]) -> torch.Tensor:
    value = getattr(output, "loss", output) if loss is None else loss(output, *targets)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        tensor = isinstance(value, torch.Tensor)
        got = f"a tensor of shape {tuple(value.shape)}" if tensor else type(value).__name__
        raise GraphError(
            f"expected a scalar loss to train, got {got}; "
            "give loss(output, *targets), or ask for inference"
        )
    return value


def _recompute(value: Recompute | str | bool) -> Recompute:
    if isinstance(value, bool):
        return Recompute.BLOCK if value else Recompute.NONE
    try:
        return Recompute(value)
    except ValueError:
        known = ", ".join(Recompute)
        raise GraphError(f"expected recompute to be one of {known}, got {value!r}") from None


def _fake_state(module: nn.Module, training: bool) -> dict[str, torch.Tensor]:
    """Parameters and buffers of the module as fake tensors; must run under a fake mode."""
    found: dict[str, torch.Tensor] = {}
    for key, parameter in module.named_parameters():
        fresh = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype)
        found[key] = fresh.requires_grad_(training and parameter.requires_grad)
    for key, buffer in module.named_buffers():
        found[key] = torch.empty_strided(buffer.shape, buffer.stride(), dtype=buffer.dtype)
    return found


def _fake(value: Any) -> Any:
    """A nested argument list with fresh fake tensors for its tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    if isinstance(value, Mapping):
        return {key: _fake(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_fake(item) for item in value]
    return value
