"""Which chains a pass fuses, with which template, and why it leaves the others alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunerplugin.errors import ScheduleError

from ..description import MLP
from ..dispatch import device_for, select
from ..roofline import decide
from ..template import Template
from .chains import Chain, find_chains
from .values import Values

MINIMUM_LAYERS = 2
# For the roofline where the batch is symbolic: enough rows to fill any device known here.
ASSUMED_BATCH = 1 << 17


@dataclass(frozen=True)
class ChainReport:
    """What became of one chain of dense layers, or of one product that is no layer.

    ``first`` and ``last`` are the names of the product that starts it and of its result in
    ``function``; ``widths`` is empty for a product that is no layer; ``batch`` is None where it is
    symbolic.  ``reason`` is one line.
    """

    function: str
    first: str
    last: str
    widths: tuple[int, ...]
    batch: int | None
    fused: bool
    reason: str

    def __str__(self) -> str:
        widths = "-".join(map(str, self.widths)) or "no layer"
        verdict = "fused" if self.fused else "not fused"
        return f"{self.function}: {self.first}..{self.last} ({widths}) {verdict}: {self.reason}"


@dataclass(frozen=True)
class Options:
    """How a pass chooses chains.

    ``minimum_layers``: shorter chains are left alone.  ``always``: fuse what can be fused, without
    asking the roofline whether it pays.  ``knobs``: for an MLP, the knobs of its template.
    ``standalone``: whether the kernels become functions of their own.  Raises ``ScheduleError``
    for a minimum below 1.
    """

    minimum_layers: int = MINIMUM_LAYERS
    always: bool = False
    knobs: Mapping[MLP, Mapping[str, Any]] = field(default_factory=dict)
    standalone: bool = True

    def __post_init__(self) -> None:
        if self.minimum_layers < 1:
            raise ScheduleError(f"expected minimum_layers of at least 1, got {self.minimum_layers}")


@dataclass(frozen=True)
class Verdict:
    """A report and, where the chain is to be fused, the chain and the template."""

    report: ChainReport
    chain: Chain | None = None
    template: Template | None = None


def judge(values: Values, function: str, target: Any, options: Options) -> Iterator[Verdict]:
    """A verdict on every chain and on every product of a region of ``function``."""
    chains, refusals = find_chains(values)
    for chain in chains:
        batch = chain.rows if isinstance(chain.rows, int) else None
        template, reason = _choose(chain, batch, target, options)
        report = ChainReport(
            function=function,
            first=values.name(chain.layers[0].dense.product),
            last=values.name(chain.output),
            widths=chain.mlp.widths,
            batch=batch,
            fused=template is not None,
            reason=reason,
        )
        yield Verdict(report, chain, template)
    for refusal in refusals:
        product = values.name(refusal.product)
        yield Verdict(ChainReport(function, product, product, (), None, False, refusal.reason))


def _choose(
    chain: Chain, batch: int | None, target: Any, options: Options
) -> tuple[Template | None, str]:
    """The template to fuse a chain with, or None; and why, in one line."""
    mlp = chain.mlp
    if mlp.layers < options.minimum_layers:
        layers = "1 layer" if mlp.layers == 1 else f"{mlp.layers} layers"
        return None, f"{layers}, fewer than {options.minimum_layers}; {chain.stop}"
    if batch == 0:
        return None, "an empty batch"
    template, reason = select(mlp, target, standalone=options.standalone)
    if template is None or options.always:
        return template, f"{reason}; {chain.stop}" if template else reason
    device = device_for(target)
    if device is None:
        return template, f"{reason}; nothing is known of the device; {chain.stop}"
    decision = decide(mlp, batch or ASSUMED_BATCH, device)
    text = f"{reason}; {decision.reason} on {device.name}; {chain.stop}"
    return (template, text) if decision.fused else (None, decision.reason)
