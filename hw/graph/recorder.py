"""Records every aten operator that runs under it as a node of an operator graph.

A ``TorchDispatchMode`` sits where ``make_fx`` does, below autograd, and meets the same operators.
Recording here and not through ``make_fx`` keeps what an fx graph loses: which module an operator
comes from (through autograd's sequence numbers also in the backward pass), and whether it runs
forward, again, or backward.  It is also several times faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import GraphError
from . import matrix
from .aten import CONSTANTS, OVERWRITES, PRODUCTS, RULES, SHAPE_OF_SECOND, UNKNOWN, Count, Rule
from .builder import Builder, Tensor, Work
from .operator import Gemm, Kind, Phase, Shape

_Operands = tuple[list[torch.Tensor], list[torch.Tensor]]


class Recorder(TorchDispatchMode):
    """Dispatch mode whose ``builder`` holds the graph of what ran under it.

    ``phase`` is set by whoever drives the step.  ``stack`` holds the paths of the modules that
    are running; see ``layers.track``.
    """

    def __init__(self, builder: Builder | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.builder = builder or Builder()
        self.phase = Phase.FORWARD
        self.stack: list[str] = []
        self._layer_of: dict[int, str] = {}  # autograd sequence number -> module path
        self._stands_for: dict[int, Hashable] = {}
        self._alive: dict[int, Any] = {}  # storages: an address must not be used again
        self._unknown: set[str] = set()

    def tensor(self, value: torch.Tensor) -> Tensor:
        """``value`` as the builder sees it; broadcast axes (stride 0) hold one element."""
        storage = value.untyped_storage()
        address = storage._cdata
        self._alive[address] = storage
        key = self._stands_for.get(address, address)
        shape = tuple(value.shape)
        steps = zip(shape, value.stride(), strict=True)
        distinct = prod(size for size, step in steps if step != 0 or size == 0)
        size_bytes = min(distinct * value.element_size(), storage.nbytes())
        return Tensor(key, shape, dtype_name(value.dtype), size_bytes, value.storage_offset())

    def mark_weights(self, tensors: Iterable[torch.Tensor]) -> None:
        """Parameters or optimiser state: what is read of them counts as weight bytes."""
        self.builder.weights.update(self.tensor(tensor).buffer for tensor in tensors)

    def stand_in(self, shape: Sequence[int], dtype: torch.dtype, buffer: Hashable) -> torch.Tensor:
        """A tensor on the meta device that the graph takes for ``buffer``."""
        other = torch.empty(tuple(shape), dtype=dtype, device="meta")
        self._stands_for[other.untyped_storage()._cdata] = buffer
        self._alive[other.untyped_storage()._cdata] = other.untyped_storage()
        return other

    def writer(self, value: torch.Tensor) -> str | None:
        """The operator that wrote ``value`` last; ``None`` for an input."""
        return self.builder.writer.get(self.tensor(value).buffer)

    def keep(self, tensors: Iterable[torch.Tensor]) -> None:
        """Results of the step: they reach memory even if an operator of the graph reads them."""
        for tensor in tensors:
            writer = self.writer(tensor)
            if writer is not None:
                self.builder.graph.nodes[writer]["kept"] = True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.namespace != "prim":
            self._record(func, args, kwargs, result)
        return result

    def _record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        layer = self._layer()
        name = func._opname.rstrip("_")
        name = func._opname if name not in RULES and func._opname in RULES else name
        if name in CONSTANTS:
            return
        inputs = _tensors((args, kwargs))
        old = {tensor.untyped_storage()._cdata for tensor in inputs}
        fresh = [t for t in _tensors(result) if t.untyped_storage()._cdata not in old]
        outputs = fresh + _changed(func, args, kwargs)
        if not outputs:
            return  # a view
        if name in SHAPE_OF_SECOND:
            del inputs[1]
        operands = (inputs, outputs)
        phase = self._phase()
        if name == "convolution_backward":
            self._split_convolution(args, result, phase, layer)
            return
        if name in PRODUCTS:
            kind = Kind.CONV if name == "convolution" else Kind.GEMM
            work = Work(kind, gemm=_product(name, args, operands))
            self._add(name, work, phase, operands, layer)
            return
        self._add_vector(name, func, (args, kwargs), operands, phase, layer)

    def _add_vector(
        self,
        name: str,
        func: Any,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        operands: _Operands,
        phase: Phase,
        layer: str,
    ) -> None:
        inputs, outputs = operands
        rule = RULES.get(name)
        if rule is None:
            rule = UNKNOWN
            self._warn_unknown(str(func))
        kind, function = rule.kind, _refine(name, rule.function, call, operands)
        if name == "_to_copy" and inputs and inputs[0].dtype == outputs[0].dtype:
            kind = Kind.COPY
        if phase == Phase.OPTIMIZER and kind not in {Kind.COPY, Kind.EMBEDDING}:
            kind = Kind.OPTIMIZER
        if kind == Kind.LOSS and phase == Phase.FORWARD:
            phase = Phase.LOSS
        work = Work(kind, function, _elements(rule, call[0], operands))
        overwrite = outputs[0] if name in OVERWRITES and inputs and _same(inputs, outputs) else None
        self._add(name, work, phase, operands, layer, rule.gathers, overwrite)

    def _add(
        self,
        name: str,
        work: Work,
        phase: Phase,
        operands: _Operands,
        layer: str,
        gathers: bool = False,
        overwrite: torch.Tensor | None = None,
    ) -> None:
        reads = [self.tensor(t) for t in operands[0] if t is not overwrite]
        writes = [self.tensor(t) for t in operands[1]]
        after = [] if overwrite is None else [self.tensor(overwrite).buffer]
        limit: dict[Hashable, int] = {}
        if gathers and reads:
            rows = max(prod(t.shape) for t in operands[1]) * operands[0][0].element_size()
            indices = max((prod(t.shape) for t in operands[0][1:]), default=0)
            limit[reads[0].buffer] = max(rows, indices * operands[0][0].element_size())
        self.builder.add(name, work, phase, reads, writes, layer=layer, after=after, limit=limit)

    def _split_convolution(
        self, args: tuple[Any, ...], result: Any, phase: Phase, layer: str
    ) -> None:
        """One operator for each gradient that the output mask asks for."""
        gradient, data, weight = args[:3]
        transposed, groups = args[7], args[9]
        shapes = (tuple(data.shape), tuple(weight.shape), tuple(gradient.shape))
        for value, other, size in (
            (result[0], weight, matrix.data_gradient),
            (result[1], data, matrix.weight_gradient),
        ):
            if value is not None:
                title = "conv_" + size.__name__
                work = Work(Kind.CONV, gemm=size(*shapes, groups, transposed))
                self._add(title, work, phase, ([gradient, other], [value]), layer)
        if result[2] is not None:
            work = Work(Kind.REDUCTION, "batch_sum", gradient.numel())
            self._add("conv_bias_gradient", work, phase, ([gradient], [result[2]]), layer)

    def _phase(self) -> Phase:
        # In the backward pass a module runs only to recompute its activations.
        if self.phase == Phase.BACKWARD_DATA and self.stack:
            return Phase.RECOMPUTE
        return self.phase

    def _layer(self) -> str:
        node = torch._C._current_autograd_node()
        if self.stack or node is None:
            layer = self.stack[-1] if self.stack else ""
            # Autograd made this operator's node just before it came here.
            self._layer_of.setdefault(torch.autograd._get_sequence_nr() - 1, layer)  # type: ignore[attr-defined]
            return layer
        return self._layer_of.get(node._sequence_nr(), "")

    def _warn_unknown(self, name: str) -> None:
        if name not in self._unknown:
            self._unknown.add(name)
            warnings.warn(
                f"operator {name} is not known; it counts as elementwise over its output",
                stacklevel=2,
            )


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` -> "bfloat16"; the 8-bit float formats are one."""
    name = str(dtype).removeprefix("torch.")
    return "float8" if name.startswith("float8") else name


def _tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested argument list, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]


def _changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The arguments that an in-place or ``out`` form writes."""
    if not func._schema.is_mutable:
        return []
    found: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found


def _same(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> bool:
    return any(tensor is outputs[0] for tensor in inputs)


def _product(name: str, args: tuple[Any, ...], operands: _Operands) -> Gemm:
    shapes: list[Shape] = [tuple(tensor.shape) for tensor in operands[0]]
    if name == "convolution":
        if len(shapes[0]) < 3:
            raise GraphError(f"expected a batched input of a convolution, got {shapes[0]}")
        return matrix.convolution(
            shapes[0], shapes[1], tuple(operands[1][0].shape), args[8], args[6]
        )
    return matrix.product(name, shapes)


def _refine(
    name: str,
    function: str,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    operands: _Operands,
) -> str:
    """The function where it depends on an argument, not on the operator's name alone."""
    args, kwargs = call
    if name in {"gelu", "gelu_backward"} and kwargs.get("approximate") == "tanh":
        return function.replace("gelu", "gelu_tanh")
    if name == "pow" and len(args) > 1 and isinstance(args[1], (int, float)):
        roots = {0.5: "sqrt", -0.5: "rsqrt", -1: "divide", 2: "alu", 3: "fma2"}
        return roots.get(args[1], function)
    if name == "native_batch_norm" and len(args) > 5 and args[5] is False:
        return "norm_inference"
    if name == "_to_copy" and operands[0] and operands[0][0].dtype == operands[1][0].dtype:
        return "move"
    return function


def _elements(rule: Rule, args: tuple[Any, ...], operands: _Operands) -> int:
    inputs, outputs = operands
    first = outputs[0].numel()
    if rule.count == Count.INPUT:
        return max((tensor.numel() for tensor in inputs), default=first)
    if rule.count == Count.WINDOW:
        # The window is the first list of integers: kernel_size comes before stride and padding.
        windows = (value for value in args if isinstance(value, (list, tuple)) and value)
        window = cast("Sequence[int]", next(windows, [1]))
        return min(first, inputs[0].numel()) * prod(window)  # backwards the input is the smaller
    return first
