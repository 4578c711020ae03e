"""A torch module whose forward and backward are fused kernels, on CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tunerplugin.errors import InputError

from .cpu.training_plan import Plan, Streams, TrainingKnobs
from .description import MLP, Activation
from .graph.activations import SOFTPLUS_THRESHOLD
from .torch_autograd import Forward, Taylor, unfused
from .torch_kernels import make_plan, run_forward

#: torch says so from 2.7 on
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


class Sine(nn.Module):
    """sin(omega x), for ``FusedMLP.from_sequential`` (Sitzmann et al., NeurIPS 2020)."""

    def __init__(self, omega: float = 1.0) -> None:
        super().__init__()
        self.omega = omega

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return torch.sin(self.omega * x)


class Exponential(nn.Module):
    """exp(x), for ``FusedMLP.from_sequential``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return torch.exp(x)


class Derivatives(NamedTuple):
    """A network's values (batch, out) and their derivatives along each direction, of that shape.

    ``second`` holds None for a direction of order 1.
    """

    value: Tensor
    first: tuple[Tensor, ...]
    second: tuple[Tensor | None, ...]


class FusedMLP(nn.Module):
    """An MLP as one fused kernel forward and one backward, float32 on CPU.

    The parameters are those of ``layers``, ordinary ``nn.Linear`` modules, initialised as torch
    does it; they are passed to the kernels as they are, without copies.  ``knobs`` lay out the
    kernels (default: chosen for the machine).  A kernel is compiled at its first use, once per
    process, and serves any batch.

    Gradients are deterministic for given knobs.  Derivatives of input gradients (a loss on dy/dx)
    are fused too; beyond that see ``torch_autograd``, and ``derivatives`` for PINNs.
    ``torch.export`` and ``torch.jit.trace`` see torch's own operations, for ``FuseMLP`` and others.

    >>> net = FusedMLP(MLP.of((2, 64, 64, 1), "tanh"))
    >>> net(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """

    def __init__(self, mlp: MLP, knobs: TrainingKnobs | None = None) -> None:
        super().__init__()
        self.mlp = mlp
        self.knobs = knobs
        self._plan = make_plan(mlp, knobs)
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs, bias)
            for (inputs, outputs), bias in zip(mlp.shapes, mlp.bias, strict=True)
        )

    @classmethod
    def from_sequential(
        cls, sequential: nn.Sequential, knobs: TrainingKnobs | None = None
    ) -> FusedMLP:
        """A fused module that shares the ``Linear`` layers of ``sequential``, nested ones too.

        Activations: ReLU, LeakyReLU, SiLU, GELU, Tanh, Sigmoid, Softplus, Identity, and ``Sine``
        and ``Exponential`` of this file.  Raises ``InputError`` for anything else, subclasses with
        a forward of their own and modules with hooks among it.
        """
        if not isinstance(sequential, nn.Sequential):
            raise InputError(f"expected a Sequential, got {type(sequential).__name__}")
        linears: list[nn.Linear] = []
        activations: list[Activation] = []
        for module in _flat(sequential):
            if isinstance(module, nn.Linear):
                linears.append(module)
                activations.append(Activation())
                continue
            activation = _activation_of(module)
            if activation.function == "none":
                continue
            if not linears or activations[-1].function != "none":
                raise InputError(
                    f"expected a Linear layer before each activation, got {module} without one"
                )
            activations[-1] = activation
        if not linears:
            raise InputError("expected at least one Linear layer, got none")
        for before, after in pairwise(linears):
            if before.out_features != after.in_features:
                raise InputError(f"expected layers that fit each other, got {before} and {after}")
        widths = (linears[0].in_features, *(linear.out_features for linear in linears))
        bias = tuple(linear.bias is not None for linear in linears)
        with torch.device("meta"):  # no numbers drawn for layers that are replaced
            made = cls(MLP(widths, tuple(activations), bias), knobs)
        made.layers = nn.ModuleList(linears)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """y (..., out) of x (..., in).  Raises ``InputError`` for other than float32 on CPU."""
        rows = self._rows(x)
        parameters = self._parameters_in_order()
        if _is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return unfused(self.mlp, x, parameters)
        y: Tensor = _fused(self._plan, rows, parameters)
        return y.reshape(*x.shape[:-1], self.mlp.widths[-1])

    def derivatives(
        self, x: Tensor, orders: Sequence[int], directions: Tensor | None = None
    ) -> Derivatives:
        """Values and input derivatives of x (batch, in), in one fused pass (Taylor mode).

        ``orders[i]``, 1 or 2, is the highest derivative along ``directions[i]``, a row of a
        (directions, in) tensor of constants; without it direction i is input column i, and an order
        of 0 leaves a column out.  So ``derivatives(xt, (2, 1))`` gives u, u_x, u_xx and u_t.
        Their gradient with respect to the parameters and x is one fused pass as well; with
        ``create_graph=True`` it runs as torch operations, which can be differentiated again.
        """
        rows = self._rows(x)
        if x.dim() != 2:
            raise InputError(f"expected x of shape (batch, in), got {tuple(x.shape)}")
        directions = self._directions(orders, directions)
        streams = Streams(tuple(order for order in orders if order))
        plan = make_plan(self.mlp, self.knobs, streams)
        found: Tensor = Taylor.apply(  # type: ignore[no-untyped-call]
            plan, directions, rows, *self._parameters_in_order()
        )
        pairs = plan.streams.directions
        return Derivatives(
            found[0],
            tuple(found[first] for first, _ in pairs),
            tuple(None if second is None else found[second] for _, second in pairs),
        )

    def extra_repr(self) -> str:
        """Widths and activations."""
        names = ", ".join(activation.function for activation in self.mlp.activations)
        return f"{'-'.join(map(str, self.mlp.widths))}, {names}"

    def _directions(self, orders: Sequence[int], directions: Tensor | None) -> Tensor:
        width = self.mlp.widths[0]
        if directions is None:
            columns = [column for column, order in enumerate(orders) if order]
            if not columns or len(orders) > width:
                raise InputError(
                    f"expected an order for each of at most {width} columns, at least one of them "
                    f"1 or 2, got {tuple(orders)}"
                )
            return torch.eye(width)[columns].contiguous()
        if tuple(directions.shape) != (len(orders), width) or 0 in orders:
            raise InputError(
                f"expected directions of shape ({len(orders)}, {width}), an order of 1 or 2 for "
                f"each, got {tuple(directions.shape)} and {tuple(orders)}"
            )
        if directions.requires_grad:
            raise InputError(
                "expected directions that are constants, got some that need a gradient"
            )
        return directions.to(torch.float32).contiguous()

    def _rows(self, x: Tensor) -> Tensor:
        if x.dim() == 0 or x.shape[-1] != self.mlp.widths[0]:
            raise InputError(
                f"expected {self.mlp.widths[0]} columns, got a tensor of shape {tuple(x.shape)}"
            )
        for tensor in (x, *self.parameters()):
            if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
                raise InputError(
                    "expected float32 tensors on CPU (for others use the torch modules), "
                    f"got {tensor.dtype} on {tensor.device}"
                )
        return x.reshape(-1, x.shape[-1]).contiguous()

    def _parameters_in_order(self) -> list[Tensor]:
        found: list[Tensor] = []
        for layer in self.layers:
            found.append(layer.weight)  # type: ignore[arg-type]
            if layer.bias is not None:
                found.append(layer.bias)  # type: ignore[arg-type]
        return [parameter.contiguous() for parameter in found]


# it would trace the compilation of the kernel, only to give up
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _fused(plan: Plan, rows: Tensor, parameters: list[Tensor]) -> Tensor:
    """y (batch, out), tracked if anything is."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *parameters)):
        tracked: Tensor = Forward.apply(plan, rows, *parameters)  # type: ignore[no-untyped-call]
        return tracked
    return run_forward(plan.recomputing, rows, parameters)[0][0]


def _flat(sequential: nn.Sequential) -> Iterator[nn.Module]:
    for module in sequential:
        _check_hooks(module)
        if isinstance(module, nn.Sequential):
            yield from _flat(module)
        else:
            _check_forward(module)
            yield module


def _check_hooks(module: nn.Module) -> None:
    """A hook may change what goes in or comes out, and no kernel calls it."""
    if module._forward_pre_hooks or module._forward_hooks:
        raise InputError(
            f"expected modules without forward hooks, got one on {module}; remove it "
            "(weight_norm and spectral_norm: use those of torch.nn.utils.parametrizations)"
        )


def _check_forward(module: nn.Module) -> None:
    """A subclass of one of torch's modules that computes something else is none of them."""
    torchs = (base for base in type(module).__mro__ if base.__module__.startswith("torch.nn."))
    base: Any = next(torchs, nn.Module)
    if base is not nn.Module and type(module).forward is not base.forward:
        raise InputError(
            f"expected torch's own {base.__name__}, got {type(module).__name__} with a forward "
            "of its own; split the network there"
        )


def _activation_of(module: nn.Module) -> Activation:
    match module:
        case nn.Identity():
            return Activation()
        case nn.ReLU():
            return Activation("relu")
        case nn.LeakyReLU():
            return Activation("leaky_relu", module.negative_slope)
        case nn.SiLU():
            return Activation("silu")
        case nn.GELU():
            return Activation("gelu_tanh" if module.approximate == "tanh" else "gelu")
        case nn.Tanh():
            return Activation("tanh")
        case nn.Sigmoid():
            return Activation("sigmoid")
        case nn.Softplus() if module.beta == 1 and module.threshold >= SOFTPLUS_THRESHOLD:
            return Activation("softplus")
        case Sine():
            return Activation("sine", module.omega)
        case Exponential():
            return Activation("exponential")
    raise InputError(
        f"expected Linear layers and activations that can be fused, got {module}; "
        "split the network there"
    )
