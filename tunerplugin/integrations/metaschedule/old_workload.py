"""Workloads as an older TVM saved them, rebuilt as today's TVM writes them.

Up to 0.20 or so, TVM saved an IRModule as a flat list of nodes that name each other by index, with
attributes as strings.  Today's TVM reads another format and has other classes (a ``tir.Block`` is
an ``s_tir.SBlock``, a buffer is a variable), so the graph is walked and every node is made anew
through today's constructors.  What has no counterpart here is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm

from ...errors import RecordError
from ..compat import NOALIAS, SBlock, SBlockRealize, normalize_mod, tirx

#: bytes before the JSON text: its length, as dmlc streams write a string
_LENGTH_BYTES = 8
#: deeper nesting is no function that a compiler made
_MAX_DEPTH = 150
_NULL = "0"
_Expr: type = tvm.ir.Expr
_NO_GRAPH = "its workload is damaged: no JSON graph of TVM objects"

_BINARY = (
    *("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max"),
    *("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or"),
)
#: intrinsics that became node types of their own
_OPERATORS = {
    "tir.bitwise_and": "BitwiseAnd",
    "tir.bitwise_or": "BitwiseOr",
    "tir.bitwise_xor": "BitwiseXor",
    "tir.bitwise_not": "BitwiseNot",
    "tir.shift_left": "LShift",
    "tir.shift_right": "RShift",
}
#: attributes of a function that today's TVM gives its tasks too, by their old names
_KEPT = {"tir.noalias": NOALIAS, "op_pattern": "op_pattern", "layout_free_buffers": ""}


def rebuild_workload(encoded: str) -> Any:
    """The IRModule with one function ``main`` that a line of ``database_workload.json`` holds.

    ``encoded`` is the base64 text after the hash.  Raises ``RecordError``: the text is damaged, or
    uses something that today's TVM has no counterpart of (its message names it).
    """
    nodes, root = _read_graph(encoded)
    try:
        return _Graph(nodes).module(root)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        # whatever a constructor of TVM says about a graph that makes no sense
        raise RecordError("its workload is damaged: the nodes do not fit together") from error


def written_by(encoded: str) -> str:
    """The version of the TVM that saved a workload, ``unknown`` where it does not say."""
    attributes = _parse(encoded).get("attrs")
    version = attributes.get("tvm_version") if isinstance(attributes, dict) else None
    return version if isinstance(version, str) else "unknown"


def _parse(encoded: str) -> Mapping[str, Any]:
    try:
        graph = json.loads(base64.b64decode(encoded, validate=True)[_LENGTH_BYTES:])
    except (binascii.Error, ValueError, RecursionError) as error:
        raise RecordError(_NO_GRAPH) from error
    if not isinstance(graph, dict):
        raise RecordError(_NO_GRAPH)
    return graph


def _read_graph(encoded: str) -> tuple[Sequence[Mapping[str, Any]], int]:
    graph = _parse(encoded)
    nodes, root = graph.get("nodes"), graph.get("root")
    damaged = RecordError(_NO_GRAPH)
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise damaged
    if not isinstance(root, int) or not 0 < root < len(nodes):
        raise damaged
    return nodes, root


class _Graph:
    """The nodes, each made once, when it is first needed."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._depth = 0
        self._makers: dict[str, Callable[[Mapping[str, str]], Any]] = {
            "IntImm": lambda a: tirx.IntImm(a["dtype"], int(a["value"])),
            "FloatImm": lambda a: tirx.FloatImm(a["dtype"], float(a["value"])),
            "Range": lambda a: tvm.ir.Range.from_min_extent(
                self.one(a["min"], _Expr), self.one(a["extent"], _Expr)
            ),
            "tir.Var": self._variable,
            "tir.SizeVar": self._variable,
            "tir.Cast": lambda a: tirx.Cast(a["dtype"], self.one(a["value"], _Expr)),
            "tir.Not": lambda a: tirx.Not(self.one(a["a"], _Expr)),
            "tir.Select": lambda a: tirx.Select(
                *(self.one(a[name], _Expr) for name in ("condition", "true_value", "false_value"))
            ),
            "tir.Call": self._call,
            "tir.Buffer": self._buffer,
            "tir.BufferRegion": lambda a: tirx.BufferRegion(
                self.buffer(a["buffer"]), self.many(a["region"], tvm.ir.Range)
            ),
            "tir.BufferLoad": lambda a: tirx.BufferLoad(
                self.buffer(a["buffer"]), self.many(a["indices"], _Expr)
            ),
            "tir.BufferStore": lambda a: tirx.BufferStore(
                self.buffer(a["buffer"]),
                self.one(a["value"], _Expr),
                self.many(a["indices"], _Expr),
            ),
            "tir.SeqStmt": lambda a: tirx.SeqStmt(_flat(self.many(a["seq"], tirx.Stmt))),
            "tir.LetStmt": self._let,
            "tir.IterVar": lambda a: tirx.IterVar(
                self.one(a["dom"], tvm.ir.Range), self.one(a["var"], tirx.Var), int(a["iter_type"])
            ),
            "tir.For": self._loop,
            "tir.Block": self._block,
            "tir.BlockRealize": lambda a: SBlockRealize(
                self.many(a["iter_values"], _Expr),
                self.one(a["predicate"], _Expr),
                self.one(a["block"], SBlock),
            ),
        }
        for name in _BINARY:
            self._makers[f"tir.{name}"] = _binary(self, getattr(tirx, name))

    def module(self, root: int) -> Any:
        """The module whose node is ``root``."""
        functions = self._attributes(root, "IRModule")["functions"]
        pairs = self._map(functions)
        if len(pairs) != 1:
            raise RecordError(f"its workload has {len(pairs)} functions where tuning needs one")
        return normalize_mod(self._function(self._attributes(pairs[0][1], "tir.PrimFunc")))

    def __getitem__(self, reference: str | int) -> Any:
        """The object that an index stands for; ``None`` for the null node, lists for arrays."""
        index = int(reference)
        if index in self._made:
            return self._made[index]
        if self._depth >= _MAX_DEPTH:
            raise RecordError("its workload is damaged: the nodes do not fit together")
        self._depth += 1
        made = self._make(self._node(index))
        self._depth -= 1
        self._made[index] = made
        return made

    def one(self, reference: str | int, kind: type) -> Any:
        """The object that an index stands for, of a kind: TVM's constructors trust their caller.

        Raises ``TypeError`` when it is another.
        """
        value = self[reference]
        if not isinstance(value, kind) or _is_buffer(value):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    def buffer(self, reference: str | int) -> Any:
        """The buffer that an index stands for."""
        value = self[reference]
        if not _is_buffer(value):
            raise TypeError(f"expected a buffer, got {type(value).__name__}")
        return value

    def many(self, reference: str, kind: type) -> list[Any]:
        """The objects of an array, each of a kind."""
        node = self._node(int(reference))
        if node["type_key"] != "Array":
            raise TypeError(f"expected an array, got {node['type_key']}")
        return [self.one(index, kind) for index in node.get("data", ())]

    def text(self, reference: str) -> str:
        """The string that an index stands for."""
        return str(self._node(int(reference)).get("repr_str", ""))

    def _node(self, index: int) -> Mapping[str, Any]:
        if index < 0:
            raise IndexError(index)
        return self._nodes[index]

    def _make(self, node: Mapping[str, Any]) -> Any:
        kind = str(node["type_key"])
        if kind == "":
            return None
        if kind == "Array":
            return [self[i] for i in node.get("data", ())]
        if kind == "runtime.String":
            return str(node.get("repr_str", ""))
        maker = self._makers.get(kind)
        if maker is None:
            raise RecordError(f"its workload uses {kind}, which has no counterpart in today's TVM")
        return maker(node["attrs"])

    def _attributes(self, reference: str | int, kind: str) -> Mapping[str, str]:
        node = self._node(int(reference))
        if node["type_key"] != kind:
            raise RecordError(f"its workload has a {node['type_key']} where a {kind} is needed")
        attributes: Mapping[str, str] = node["attrs"]
        return attributes

    def _map(self, reference: str | int) -> list[tuple[str | int, int]]:
        """(key, index of the value) of a map: a key is a text, or the index of an object."""
        node = self._node(int(reference))
        data = node.get("data", [])
        if "keys" in node:
            return list(zip(node["keys"], data, strict=True))
        return list(zip(data[::2], data[1::2], strict=True))

    def _function(self, attributes: Mapping[str, str]) -> Any:
        buffers = {int(key): self.buffer(v) for key, v in self._map(attributes["buffer_map"])}
        parameters = self._node(int(attributes["params"])).get("data", [])
        made = [buffers[i] if i in buffers else self.one(i, tirx.Var) for i in parameters]
        body = self.one(attributes["body"], tirx.Stmt)
        function = tirx.PrimFunc(made, body).with_attr("s_tir", True)
        for name, value in self._function_attributes(attributes["attrs"]):
            function = function.with_attr(name, value)
        return function

    def _function_attributes(self, reference: str) -> list[tuple[str, Any]]:
        if reference == _NULL:
            return []
        pairs = self._map(self._attributes(reference, "DictAttrs")["__dict__"])
        kept = [(str(key), value) for key, value in pairs if key in _KEPT]
        return [(_KEPT[key] or key, _plain(self[value])) for key, value in kept]

    def _annotations(self, reference: str) -> dict[str, Any]:
        return {str(key): _plain(self[value]) for key, value in self._map(reference)}

    def _buffer(self, attributes: Mapping[str, str]) -> Any:
        if self[attributes["strides"]] or self[attributes.get("axis_separators", _NULL)]:
            raise RecordError(
                "its workload has a strided buffer, which today's schedules do not take"
            )
        pointer = self._attributes(attributes["data"], "tir.Var")["type_annotation"]
        scope = self.text(self._attributes(pointer, "PointerType")["storage_scope"])
        return tirx.decl_buffer(
            self.many(attributes["shape"], _Expr),
            attributes["dtype"],
            self.text(attributes["name"]),
            scope=scope,
            data_alignment=int(attributes["data_alignment"]),
            layout=None,
        )

    def _variable(self, attributes: Mapping[str, str]) -> Any:
        return tirx.Var(self.text(attributes["name"]), attributes["dtype"])

    def _let(self, attributes: Mapping[str, str]) -> Any:
        """A value bound for what follows: today a statement among others, without a body."""
        bound = tirx.Bind(
            self.one(attributes["var"], tirx.Var), self.one(attributes["value"], _Expr)
        )
        return tirx.SeqStmt(_flat([bound, self.one(attributes["body"], tirx.Stmt)]))

    def _loop(self, attributes: Mapping[str, str]) -> Any:
        if attributes["thread_binding"] != _NULL:
            raise RecordError("its workload is scheduled already: a loop is bound to threads")
        return tirx.For(
            self.one(attributes["loop_var"], tirx.Var),
            self.one(attributes["min"], _Expr),
            self.one(attributes["extent"], _Expr),
            int(attributes["kind"]),
            self.one(attributes["body"], tirx.Stmt),
            annotations=self._annotations(attributes["annotations"]),
        )

    def _block(self, attributes: Mapping[str, str]) -> Any:
        if self[attributes["match_buffers"]]:
            raise RecordError(
                "its workload uses tir.MatchBufferRegion, which has no counterpart in today's TVM"
            )
        init, allocated = attributes["init"], self._node(int(attributes["alloc_buffers"]))
        return SBlock(
            self.many(attributes["iter_vars"], tirx.IterVar),
            self.many(attributes["reads"], tvm.ir.TensorRegion),
            self.many(attributes["writes"], tvm.ir.TensorRegion),
            self.text(attributes["name_hint"]),
            self.one(attributes["body"], tirx.Stmt),
            None if init == _NULL else self.one(init, tirx.Stmt),
            [self.buffer(index) for index in allocated.get("data", ())],
            annotations=self._annotations(attributes["annotations"]),
        )

    def _call(self, attributes: Mapping[str, str]) -> Any:
        node = self._node(int(attributes["op"]))
        name = str(node.get("repr_str", "")) if node["type_key"] == "Op" else ""
        arguments = self.many(attributes["args"], _Expr)
        if name in _OPERATORS:
            return getattr(tirx, _OPERATORS[name])(*arguments)
        for today in (name.replace("tir.", "tirx.", 1), name.replace("tir.", "prim.", 1)):
            if name and today in tvm.ir.Op.list_op_names():
                operator = tvm.ir.Op.get(today)
                return tvm.ir.Call(operator, arguments, ret_ty=attributes["dtype"])
        raise RecordError(
            f"its workload calls {name or 'a function'}, which has no counterpart in today's TVM"
        )


def _binary(graph: _Graph, make: Callable[[Any, Any], Any]) -> Callable[[Mapping[str, str]], Any]:
    return lambda a: make(graph.one(a["a"], _Expr), graph.one(a["b"], _Expr))


def _is_buffer(value: Any) -> bool:
    return isinstance(value, tirx.Var) and hasattr(value.ty, "shape")


def _flat(statements: Sequence[Any]) -> list[Any]:
    """A sequence without sequences in it."""
    flat: list[Any] = []
    for statement in statements:
        flat += list(statement.seq) if isinstance(statement, tirx.SeqStmt) else [statement]
    return flat


def _plain(value: Any) -> Any:
    """An attribute as Python has it, which is how today's TVM keeps it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tirx.IntImm):
        return bool(value.value) if value.ty == tvm.ir.PrimType("bool") else int(value.value)
    return value
