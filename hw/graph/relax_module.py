"""Relax modules made ready to be read: open batches, and results in a tuple of one."""

from __future__ import annotations

from typing import Any

from .relax_reader import Module


def bind_batch(module: Module, function: str, batch: int) -> Module:
    """The module with ``batch`` as the first dimension of the function's first argument.

    Only where that dimension is symbolic; all other dimensions of the same symbol follow.
    """
    from tvm import relax

    first = module[function].params[:1]
    shape: Any = getattr(first[0].ty, "shape", None) if first else None
    if not isinstance(shape, relax.ShapeExpr) or not shape.values:
        return module
    extent = shape.values[0]
    if hasattr(extent, "value") or not hasattr(extent, "name"):
        return module
    return relax.transform.BindSymbolicVars({str(extent.name): batch}, function)(module)


def unwrap_result(module: Module, function: str) -> Module:
    """The module with the tensor itself where a function returns a tuple of one, as
    ``torch.export`` leaves it: neither losses nor gradients take a tuple."""
    import tvm
    from tvm import relax

    main = module[function]
    result, body = main.ret_ty, main.body
    alone = isinstance(result, relax.TupleType) and len(result.fields) == 1
    if not alone or not isinstance(body, relax.SeqExpr) or not body.blocks:
        return module
    *blocks, last = body.blocks
    *before, end = last.bindings
    if not end.var.same_as(body.body) or not isinstance(end.value, relax.Tuple):
        return module
    (tensor,), type_ = end.value.fields, result.fields[0]
    out = relax.Var(end.var.name, type_)
    block = type(last)([*before, relax.VarBinding(out, tensor)])
    body = relax.SeqExpr([*blocks, block], out)
    functions = dict(module.functions.items())
    functions[module.get_global_var(function)] = relax.Function(
        main.params, body, type_, main.is_pure, main.attrs
    )
    made = tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    return relax.transform.Normalize()(made)
