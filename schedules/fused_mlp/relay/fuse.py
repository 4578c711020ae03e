"""``FuseMLP``: a Relay pass that turns chains of dense layers into fused kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relay

from ..description import MLP
from ..dispatch import as_target, current_target
from ..graph.report import MINIMUM_LAYERS, ChainReport, Options, Verdict, judge
from ..graph.values import Value
from .rewrite import Fuse, Replacement, dynamic_extents
from .values import FunctionValues, is_ours, regions

#: name of the template whose knobs are a task of AutoTVM (``tuning``)
TUNABLE = "cpu"

log = logging.getLogger(__name__)


@tvm.transform.module_pass(opt_level=0, name="FuseMLP")
class FuseMLP:
    """Replace maximal chains of dense layers by one fused kernel each; then ``relay.build``.

    A chain is a sequence of ``nn.dense`` or ``nn.matmul`` with a two-dimensional weight of static
    widths up to 256, each with an optional bias (``nn.bias_add`` or ``add``), an activation that
    ``description.Activation`` knows (whole, or as torch and ONNX importers decompose it) and
    residual additions between equal widths.  Leading dimensions are flattened; one of them may be
    dynamic.  Only its last value may be needed elsewhere.  Everything else in the module stays as
    it was.  Weights that are literals are packed here; others are packed by operators, which
    ``relay.build`` folds where parameters are bound.

    ``minimum_layers``, ``always``, ``knobs`` and ``report`` are those of the Relax pass,
    ``schedules.FuseMLP``.  Kernels for which no knobs are given are tasks that AutoTVM extracts
    from the transformed module (CPU, static batch).  ``target``: that of ``relay.build``, a
    ``tvm.target.Target`` or what makes one; None takes ``Target.current()`` when the pass runs.
    """

    def __init__(
        self,
        target: Any = None,
        *,
        minimum_layers: int = MINIMUM_LAYERS,
        always: bool = False,
        knobs: Mapping[MLP, Mapping[str, Any]] | None = None,
    ) -> None:
        self.options = Options(minimum_layers, always, dict(knobs or {}), standalone=False)
        self.target = None if target is None else as_target(target)
        self.report: tuple[ChainReport, ...] = ()

    if TYPE_CHECKING:  # what the decorator adds

        def __call__(self, mod: Any) -> Any: ...

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """The module with its chains fused, and types inferred; the same where there are none."""
        target = self.target or current_target()
        typed = relay.transform.InferType()(mod)
        reports: list[ChainReport] = []
        fused: dict[Any, Any] = {}
        for variable, function in _functions(typed):
            found = regions(function)
            chosen: dict[Value, Replacement] = {}
            for verdict in _judge(found, str(variable.name_hint), target, self.options):
                log.info("%s", verdict.report)
                reports.append(verdict.report)
                if verdict.chain is not None and verdict.template is not None:
                    chosen[verdict.chain.output] = self._replacement(verdict, target)
            if chosen:
                fused[variable] = Fuse(chosen).rewritten(function, found)
        self.report = tuple(reports)
        if not fused:
            return mod
        functions = {**dict(typed.functions.items()), **fused}
        changed = tvm.IRModule(functions, typed.type_definitions, typed.attrs)
        return relay.transform.InferType()(changed)

    def _replacement(self, verdict: Verdict, target: Any) -> Replacement:
        chain, template = verdict.chain, verdict.template
        assert chain is not None and template is not None, "only what is to be fused"
        knobs = self.options.knobs.get(chain.mlp)
        kernel = template.build(chain.mlp, verdict.report.batch, target, **(knobs or {}))
        tunable = knobs is None and template.name == TUNABLE
        return Replacement(chain, kernel, template.name, tunable)


def analyse(
    mod: Any, target: Any, *, minimum_layers: int = MINIMUM_LAYERS, always: bool = False
) -> tuple[ChainReport, ...]:
    """What ``FuseMLP`` with these arguments would do with ``mod``, and why; builds nothing."""
    options = Options(minimum_layers, always, standalone=False)
    target = as_target(target)
    return tuple(
        verdict.report
        for variable, function in _functions(relay.transform.InferType()(mod))
        for verdict in _judge(regions(function), str(variable.name_hint), target, options)
    )


def _functions(mod: Any) -> Iterator[tuple[Any, Any]]:
    """The module's Relay functions that no other code generator is to take, by name."""
    for variable, function in mod.functions_items():
        if isinstance(function, relay.Function) and is_ours(function):
            yield variable, function


def _judge(
    found: list[FunctionValues], function: str, target: Any, options: Options
) -> Iterator[Verdict]:
    for region in found:
        for verdict in judge(region, function, target, options):
            yield _possible(verdict)


def _possible(verdict: Verdict) -> Verdict:
    """The verdict, or a refusal of what Relay cannot express: two extents to be inferred."""
    chain = verdict.chain
    if verdict.template is None or chain is None:
        return verdict
    dynamic = max(dynamic_extents(chain.input), dynamic_extents(chain.output))
    if dynamic < 2:
        return verdict
    reason = f"{dynamic} dynamic extents, expected at most 1"
    return Verdict(replace(verdict.report, fused=False, reason=reason))
