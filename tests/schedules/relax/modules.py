"""Small Relax modules, by hand and from torch and ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tunerplugin.integrations.compat import tirx
from tunerplugin.schedules.fused_mlp.relax.values import BlockValues

Array = npt.NDArray[Any]


def variable(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    """A parameter of a Relax function."""
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def symbol(name: str = "n") -> Any:
    """A symbolic extent."""
    return tirx.Var(name, "int64")


def random(*shape: int, seed: int = 0) -> Array:
    """Weights whose products stay near one."""
    scale = shape[0] ** -0.5
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def constant(*shape: int, seed: int = 0) -> Any:
    """A literal tensor."""
    return relax.const(random(*shape, seed=seed))


def module(body: Callable[..., Any], *parameters: Any, outputs: int = 1, name: str = "main") -> Any:
    """A module of one function: ``body(emit, *parameters)`` returns its results."""
    builder = relax.BlockBuilder()
    with builder.function(name, list(parameters), attrs={"num_input": 1}):
        with builder.dataflow():
            results = body(builder.emit, *parameters)
            if outputs == 1:
                results = (results,)
            returned = [builder.emit_output(result) for result in results]
        builder.emit_func_output(returned[0] if outputs == 1 else relax.Tuple(returned))
    return builder.get()


def values(mod: Any) -> BlockValues:
    """The only dataflow block of a module of one function."""
    (function,) = (f for _, f in mod.functions_items() if isinstance(f, relax.Function))
    (block,) = function.body.blocks
    return BlockValues(block)


def calls(function: Any) -> list[str]:
    """What a function calls, in order: operators, and ``call_tir name`` for kernels."""
    names = []
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if hasattr(call, "op"):
                name = str(getattr(call.op, "name", "")).removeprefix("relax.")
                kernel = call.args[0].name_hint if name == "call_tir" else ""
                names.append(f"{name} {kernel}".strip())
    return names
