"""The operator graph of a Relax module: inference, or a training step by Relax's own gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from ...errors import GraphError
from .builder import Tensor
from .checks import check
from .operator import Phase
from .phases import split_backward
from .relax_module import bind_batch, unwrap_result
from .relax_reader import Module, RelaxReader, bindings, shape_of

# TVM's own errors derive from RuntimeError.
_TVM_ERRORS = (RuntimeError, ValueError, TypeError)


def read_relax(path: str | Path) -> Module:
    """The module in a file that ``tvm.ir.save_json`` wrote.  Raises ``GraphError``."""
    import tvm

    try:
        module = tvm.ir.load_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, *_TVM_ERRORS) as error:
        raise GraphError(f"expected a Relax module as JSON in {path}: {error}") from error
    if not isinstance(module, tvm.IRModule):
        raise GraphError(f"expected a Relax module in {path}, got {type(module).__name__}")
    return module


def from_relax(
    module: Module,
    function: str = "main",
    *,
    parameters: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    batch: int | None = None,
    training: bool = False,
    loss: str | None = None,
    optimizer: str | None = None,
    name: str | None = None,
) -> nx.DiGraph:
    """Read ``function`` of a Relax module into an operator graph; see ``from_torch``.

    ``parameters`` names the arguments that are weights (default: every floating-point argument
    behind the attribute ``num_input``'s, or behind the first); constants are weights that are not
    trained.  ``sizes`` gives values to symbolic dimensions, ``batch`` to the first dimension of the
    first argument where it is one.  With ``training``, ``loss`` ("cross_entropy", or none when the
    function returns a scalar loss) is appended, ``relax.transform.Gradient`` derives the backward
    pass, and ``optimizer`` updates the parameters.  What the module itself recomputes
    (``relax.grad.start_checkpoint``) is in the backward phase.

    Raises ``GraphError`` when the function is missing, has unknown shapes, or TVM cannot derive
    its gradient.
    """
    from tvm import relax

    if sizes:
        module = relax.transform.BindSymbolicVars(dict(sizes), function)(module)
    _function(module, function)
    if batch is not None:
        module = bind_batch(module, function, batch)
    if training:
        module = unwrap_result(module, function)
    main = _function(module, function)
    weights = _weights(main, parameters)
    ends = {Phase.FORWARD: len(bindings(main))}
    if training:
        _check_trainable(main, weights, function)
        if loss is not None:
            module, function = _append_loss(module, function, loss)
            main = _function(module, function)
        _check_scalar(main.ret_ty)
        ends[Phase.LOSS] = len(bindings(main))
        main = _differentiate(module, function, weights)
    reader = RelaxReader(main, weights)
    reader.read(main, ends)
    graph = reader.builder.graph
    graph.graph |= {"name": name or function, "training": training, "recompute": "none"}
    graph.graph |= reader.facts() | {"optimizer": optimizer or "none", "state_bytes": 0}
    graph.graph["batch"] = _batch(reader, weights)
    if training:
        graph.graph["state_bytes"] = _train(reader, main, weights, optimizer)
    check(graph)
    return graph


def _function(module: Module, name: str) -> Any:
    from tvm import relax

    known = {var.name_hint: function for var, function in module.functions.items()}
    if not isinstance(known.get(name), relax.Function):
        raise GraphError(f"expected a Relax function of {sorted(known)}, got {name!r}")
    return known[name]


def _weights(main: Any, parameters: Sequence[str] | None) -> list[str]:
    names = [parameter.name for parameter in main.params]
    if parameters is None:
        inputs = int((main.attrs or {}).get("num_input", 1))
        dtypes = [str(getattr(parameter.ty, "dtype", "")) for parameter in main.params]
        rows = zip(names[inputs:], dtypes[inputs:], strict=True)
        return [name for name, dtype in rows if "float" in dtype]
    missing = sorted(set(parameters) - set(names))
    if missing:
        raise GraphError(f"expected parameters of {names}, got {missing}")
    return list(parameters)


def _batch(reader: RelaxReader, weights: Sequence[str]) -> int:
    """The first dimension of the first input."""
    inputs = [t for name, t in reader.parameters.items() if name not in set(weights)]
    shape = inputs[0].shape if inputs and isinstance(inputs[0], Tensor) else ()
    return max(1, shape[0]) if shape else 1


def _check_scalar(result: Any) -> None:
    from tvm import relax

    # of a tuple, Relax differentiates the first
    first = result.fields[0] if isinstance(result, relax.TupleType) and result.fields else result
    if isinstance(first, relax.TensorType) and shape_of(first, "the result") == ():
        return
    raise GraphError(
        f"expected a scalar loss to train, got {first}; ask for the loss 'cross_entropy' on "
        "scores, or for inference"
    )


def _check_trainable(main: Any, weights: Sequence[str], function: str) -> None:
    if not {parameter.name for parameter in main.params} & set(weights):
        raise GraphError(
            f"expected parameters to train, {function!r} has none; weights have to be arguments, "
            "not constants (keep_params_as_input=True of TVM's importers)"
        )


def _append_loss(module: Module, function: str, loss: str) -> tuple[Module, str]:
    from tvm import relax

    if loss != "cross_entropy":
        raise GraphError(f"expected the loss 'cross_entropy' or none, got {loss!r}")
    output = _function(module, function).ret_ty
    if not isinstance(output, relax.TensorType):
        raise GraphError(f"expected {function!r} to return one tensor of scores, got {output}")
    shape = shape_of(output, function)
    target = relax.TensorType(shape[:1] + shape[2:], "int64")
    made = relax.training.loss.CrossEntropyLoss()(output, target)
    try:
        return relax.training.AppendLoss(function, made)(module), f"{function}_loss"
    except _TVM_ERRORS as error:
        raise GraphError(_reason("append a loss to", function, error)) from error


def _differentiate(module: Module, function: str, weights: Sequence[str]) -> Any:
    from tvm import relax

    wanted = [p for p in _function(module, function).params if p.name in set(weights)]
    try:
        module = relax.transform.Gradient(function, require_grads=wanted)(module)
    except _TVM_ERRORS as error:
        raise GraphError(_reason("derive the gradient of", function, error)) from error
    return _function(module, f"{function}_adjoint")


def _reason(what: str, function: str, error: BaseException) -> str:
    last = str(error).strip().splitlines()[-1].strip()
    return (
        f"TVM cannot {what} {function!r} ({last}); give a function of one dataflow block that "
        "returns a scalar loss, or scores with loss='cross_entropy'"
    )


def _train(reader: RelaxReader, main: Any, weights: Sequence[str], optimizer: str | None) -> int:
    """Sort the backward operators by phase and add the optimiser; bytes of its state."""
    import torch

    from .optimizers import Optimizer, Update, run_optimizer
    from .recorder import Recorder

    _, gradients = reader.result(main)
    writers: dict[str, tuple[int, int]] = {}
    updates: list[Update] = []
    chosen = [reader.parameters[p.name] for p in main.params if p.name in set(weights)]
    for index, (parameter, gradient) in enumerate(zip(chosen, gradients, strict=True)):
        writer = reader.builder.writer.get(gradient.buffer)
        if writer is not None:
            writers[writer] = (index, parameter.elements)
        dtype = getattr(torch, parameter.dtype)
        row = Update("", parameter.shape, dtype, parameter.buffer, gradient.buffer)
        updates.append(row)
    split_backward(reader.builder.graph, writers)
    return run_optimizer(Recorder(reader.builder), Optimizer.of(optimizer), updates)
