"""``tunerplugin.fused_mlp``: an operator of Relay that is one fused kernel.

Registered from Python alone: its strategy has Relay's build lower the kernel of a template within
a TE extern operator, next to everything else in the model, so that graph executor, VM, exported
libraries and TVM's thread pool work as for any operator.  Its arguments are those of the kernel
(``FusedKernel``) but the output; its attributes say which MLP it is, in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
from tvm import relay, te
from tvm.relay.op import op as registry

from tunerplugin.errors import ScheduleError
from tunerplugin.integrations.compat import tirx

from ..description import MLP, Activation, Residual
from ..dispatch import templates_for
from ..graph.values import Value
from ..template import FusedKernel

NAME = "tunerplugin.fused_mlp"


@dataclass(frozen=True)
class Call:
    """What the attributes of a call say: the MLP, its template, and knobs.

    ``tunable``: AutoTVM chooses other knobs where it has a record; else these are used.
    """

    mlp: MLP
    template: str
    knobs: tuple[tuple[str, Any], ...]
    tunable: bool

    def dumps(self) -> str:
        """As JSON; equal calls give equal text."""
        mlp = self.mlp
        fields = {
            "widths": mlp.widths,
            "activations": [(item.function, item.parameter) for item in mlp.activations],
            "bias": mlp.bias,
            "dtype": mlp.dtype,
            "residuals": [r and (r.source, r.before_activation) for r in mlp.residuals],
        }
        return json.dumps(
            {"mlp": fields, "template": self.template, "knobs": self.knobs, "tunable": self.tunable}
        )

    @classmethod
    def loads(cls, text: str) -> Call:
        """The inverse of ``dumps``."""
        loaded = json.loads(text)
        fields = loaded["mlp"]
        mlp = MLP(
            tuple(fields["widths"]),
            tuple(Activation(*item) for item in fields["activations"]),
            tuple(fields["bias"]),
            fields["dtype"],
            tuple(r and Residual(*r) for r in fields["residuals"]),
        )
        knobs = tuple((name, value) for name, value in loaded["knobs"])
        return cls(mlp, loaded["template"], knobs, loaded["tunable"])


def fused_call(
    kernel: FusedKernel, template: str, arguments: Sequence[Value], *, tunable: bool
) -> Value:
    """A call of the operator: ``arguments`` are the kernel's, without the output."""
    call = Call(kernel.mlp, template, tuple(sorted(kernel.knobs.items())), tunable)
    attributes = tvm.ir.make_node("DictAttrs", call=call.dumps())
    return relay.Call(registry.get(NAME), list(arguments), attributes)


def lower(
    call: Call, inputs: Sequence[Any], target: Any, knobs: Mapping[str, Any] | None = None
) -> Any:
    """The result of a call as a TE tensor; its operator holds the kernel.

    ``inputs``: the arguments, TE tensors.  ``knobs``: instead of the call's.  Raises
    ``ScheduleError`` where ``target`` needs other packed weights than the pass's target did.
    """
    rows = inputs[0].shape[0]
    batch = int(rows) if isinstance(rows, tirx.IntImm) else None
    kernel = _kernel(call, batch, str(target), tuple((knobs or dict(call.knobs)).items()))
    own = [kernel.func.buffer_map[parameter] for parameter in kernel.func.params]
    for tensor, buffer in zip(inputs[1:], own[1:-1], strict=True):
        if [int(n) for n in tensor.shape] != [int(n) for n in buffer.shape]:
            raise ScheduleError(
                f"expected weights packed as {list(buffer.shape)}, got {list(tensor.shape)}: "
                f"build for the target that FuseMLP was given, not for {target}"
            )
    result = (rows, call.mlp.widths[-1])
    # TE takes buffers of its tensors' very own extents.
    shapes = [*(tensor.shape for tensor in inputs), result]
    buffers = [
        tirx.decl_buffer(shape, buffer.dtype, buffer.name)
        for shape, buffer in zip(shapes, own, strict=True)
    ]
    body = _with_buffers(kernel.func.body, dict(zip(own, buffers, strict=True)))
    # Other views of a buffer share its data.
    variables = {old.data: new.data for old, new in zip(own, buffers, strict=True)}
    if batch is None:
        symbol = own[0].shape[0]
        variables[symbol] = tirx.Cast(symbol.dtype, rows)
    body = tirx.stmt_functor.substitute(body, variables)
    return te.extern(
        [result],
        list(inputs),
        lambda _inputs, _outputs: body,
        in_buffers=buffers[:-1],
        out_buffers=buffers[-1:],
        dtype=call.mlp.dtype,
        name="fused_mlp",
    )


def _with_buffers(body: Any, replacements: Mapping[Any, Any]) -> Any:
    def replaced(access: Any) -> Any:
        buffer = replacements.get(access.buffer)
        if buffer is None:
            return None
        if isinstance(access, tirx.BufferLoad):
            return tirx.BufferLoad(buffer, access.indices)
        return tirx.BufferStore(buffer, access.value, access.indices)

    accesses = ["tir.BufferLoad", "tir.BufferStore"]
    return tirx.stmt_functor.ir_transform(body, None, replaced, accesses)


@lru_cache(maxsize=64)
def _kernel(
    call: Call, batch: int | None, target: str, knobs: tuple[tuple[str, Any], ...]
) -> FusedKernel:
    """Relay asks for the same operator more than once in a build."""
    made = tvm.target.Target(target)
    for template in templates_for(made):
        if template.name == call.template:
            return template.build(call.mlp, batch, made, **dict(knobs))
    raise ScheduleError(
        f"expected a target with template {call.template}, got {target}: build for the target "
        "that FuseMLP was given"
    )


def _result_type(arguments: Sequence[Any], attributes: Any) -> Any:
    mlp = Call.loads(str(attributes["call"])).mlp
    return relay.TensorType([arguments[0].shape[0], mlp.widths[-1]], mlp.dtype)


def _shape_function(attributes: Any, inputs: Sequence[Any], _out_ndims: Any) -> list[Any]:
    columns = tirx.const(Call.loads(str(attributes["call"])).mlp.widths[-1], "int64")
    return [te.compute((2,), lambda i: tirx.if_then_else(i == 0, inputs[0][0], columns))]


def _compute(attributes: Any, inputs: Sequence[Any], _out_type: Any) -> list[Any]:
    call = Call.loads(str(attributes["call"]))
    return [lower(call, inputs, tvm.target.Target.current(allow_none=False))]


def _schedule(_attributes: Any, outputs: Sequence[Any], _target: Any) -> Any:
    return te.create_schedule([tensor.op for tensor in outputs])


@tvm.target.override_native_generic_func(  # type: ignore[untyped-decorator]
    "tunerplugin_fused_mlp_strategy"
)
def _strategy(attributes: Any, inputs: Sequence[Any], _out_type: Any, target: Any) -> Any:
    from .tuning import tuned_compute, tuned_schedule

    strategy = registry.OpStrategy()
    static = all(isinstance(n, tirx.IntImm) for n in inputs[0].shape)
    if static and Call.loads(str(attributes["call"])).tunable:
        strategy.add_implementation(tuned_compute, tuned_schedule, name=NAME)
    else:
        strategy.add_implementation(_compute, _schedule, name=NAME)
    return strategy


def _register() -> None:
    registry.register(NAME, "All layers of a multi-layer perceptron as one kernel.")
    operator = registry.get(NAME)
    operator.set_num_inputs(-1)
    operator.set_support_level(10)
    operator.set_attrs_type_key("DictAttrs")
    operator.add_type_rel("TunerpluginFusedMLP", _result_type)
    registry.register_pattern(NAME, registry.OpPattern.OPAQUE)
    registry.register_strategy(NAME, _strategy)
    registry.register_shape_func(NAME, False, _shape_function)


_register()
