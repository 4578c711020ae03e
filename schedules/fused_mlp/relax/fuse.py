"""``FuseMLP``: a Relax pass that turns chains of dense layers into fused kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from ..description import MLP
from ..dispatch import as_target, current_target
from ..graph.chains import Chain
from ..graph.report import MINIMUM_LAYERS, ChainReport, Options, judge
from ..graph.values import Value
from ..template import FusedKernel
from .rewrite import Fuse
from .values import BlockValues

log = logging.getLogger(__name__)

_Chosen = dict[Value, tuple[Chain, FusedKernel]]


@tvm.transform.module_pass(opt_level=0, name="FuseMLP")
class FuseMLP:
    """Replace maximal chains of dense layers by one fused kernel each.

    A chain is a sequence of ``matmul`` with a two-dimensional weight of static widths up to 256,
    each with an optional bias, an activation that ``description.Activation`` knows (whole, or as
    torch and ONNX importers decompose it) and residual additions between equal widths.  Leading
    dimensions are flattened; the batch may be symbolic.  Only its last value may be needed
    elsewhere.  Everything else in the module stays as it was.

    ``minimum_layers``: shorter chains are left alone.  ``always``: fuse what can be fused, without
    asking the roofline whether it pays.  ``knobs``: for an MLP, the knobs of its template (as
    ``tunerplugin.integrations.fused_mlp`` finds them) instead of the defaults.  ``target``: a
    ``tvm.target.Target`` or what makes one; None takes ``Target.current()`` when the pass runs.
    ``report`` holds a line on every chain of the module that was transformed last.
    """

    def __init__(
        self,
        target: Any = None,
        *,
        minimum_layers: int = MINIMUM_LAYERS,
        always: bool = False,
        knobs: Mapping[MLP, Mapping[str, Any]] | None = None,
    ) -> None:
        self.options = Options(minimum_layers, always, dict(knobs or {}))
        self.target = None if target is None else as_target(target)
        self.report: tuple[ChainReport, ...] = ()

    if TYPE_CHECKING:  # what the decorator adds

        def __call__(self, mod: Any) -> Any: ...

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """The module with its chains fused; the same module where there are none."""
        target = self.target or current_target()
        kernels: dict[tuple[MLP, int | None], FusedKernel] = {}
        reports: list[ChainReport] = []
        changed = mod
        for variable, function in _functions(mod):
            chosen: _Chosen = {}
            name = str(variable.name_hint)
            for verdict in (
                verdict
                for block in _blocks(function)
                for verdict in judge(BlockValues(block), name, target, self.options)
            ):
                if verdict.chain is not None and verdict.template is not None:
                    key = verdict.chain.mlp, verdict.report.batch
                    if key not in kernels:
                        knobs = self.options.knobs.get(verdict.chain.mlp, {})
                        kernels[key] = verdict.template.build(*key, target, **knobs)
                    chosen[verdict.chain.output] = verdict.chain, kernels[key]
                log.info("%s", verdict.report)
                reports.append(verdict.report)
            if chosen:
                mutator = Fuse(changed, target, chosen)
                mutator.builder_.update_func(variable, mutator.visit_expr(function))
                changed = mutator.builder_.get()
        self.report = tuple(reports)
        return changed


def analyse(
    mod: Any, target: Any, *, minimum_layers: int = MINIMUM_LAYERS, always: bool = False
) -> tuple[ChainReport, ...]:
    """What ``FuseMLP`` with these arguments would do with ``mod``, and why; builds nothing."""
    options, target = Options(minimum_layers, always), as_target(target)
    return tuple(
        verdict.report
        for variable, function in _functions(mod)
        for block in _blocks(function)
        for verdict in judge(BlockValues(block), str(variable.name_hint), target, options)
    )


def _functions(mod: Any) -> Iterator[tuple[Any, Any]]:
    """The module's Relax functions that are not yet handed to a code generator, by name."""
    items = [(gv, f) for gv, f in mod.functions_items() if isinstance(f, relax.Function)]
    for variable, function in sorted(items, key=lambda item: str(item[0].name_hint)):
        attributes = function.attrs or {}
        if "Primitive" not in attributes and "Codegen" not in attributes:
            yield variable, function


def _blocks(function: Any) -> Iterator[Any]:
    for block in function.body.blocks if isinstance(function.body, relax.SeqExpr) else ():
        if isinstance(block, relax.DataflowBlock):
            yield block
