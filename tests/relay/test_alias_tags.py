"""Programs that Relay-era TVM compiles wrong by itself, and right beside the plugin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tir, topi

from tunerplugin.integrations import compat
from tunerplugin.integrations.alias_tags import mistagged_buffers, repair, repaired

TARGET = tvm.target.Target({"kind": "llvm", "mtriple": compat.host_triple()})
ROWS, COLUMNS, DEPTH = 8, 32, 64
#: tile factors of rows and columns (four each) and depth (two), and the loop that relu joins: found
#: among random candidates, each with the steps up to which loops are unrolled
FOUND = {
    "relu beside the outer tiles": ((1, 2, 1, 4), (4, 1, 2, 4), (2, 32), 1, 64),
    "relu beside one tile": ((1, 8, 1, 1), (2, 2, 2, 4), (4, 16), 1, 512),
    "rows unrolled": ((1, 1, 4, 2), (4, 2, 1, 4), (8, 8), 1, 64),
    "relu inside the tiles": ((1, 2, 4, 1), (1, 2, 8, 2), (16, 4), 3, 16),
}


def scheduled(rows: Any, columns: Any, depth: Any, joins: int, unroll: int) -> Any:
    """relu(dense) as MetaSchedule's multi-level tiling schedules it."""
    a = te.placeholder((ROWS, DEPTH), "float32", "a")
    b = te.placeholder((COLUMNS, DEPTH), "float32", "b")
    function = te.create_prim_func([a, b, topi.nn.relu(topi.nn.dense(a, b))])
    schedule = tir.Schedule(tvm.IRModule({"main": function}))
    product = schedule.get_block("T_matmul_NT")
    i, j, k = schedule.get_loops(product)
    i0, i1, i2, i3 = schedule.split(i, rows)
    j0, j1, j2, j3 = schedule.split(j, columns)
    k0, k1 = schedule.split(k, depth)
    schedule.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    (relu,) = schedule.get_consumers(product)
    schedule.reverse_compute_at(relu, (i0, j0, i1, j1)[joins], preserve_unit_loops=True)
    schedule.vectorize(j3)
    schedule.vectorize(schedule.get_loops(relu)[-1])
    schedule.annotate(i0, "pragma_auto_unroll_max_step", unroll)
    schedule.annotate(i0, "pragma_unroll_explicit", 1)
    schedule.decompose_reduction(product, k0)
    return schedule.mod


def error(built: Any) -> float:
    generator = np.random.default_rng(0)
    a = generator.uniform(-1, 1, (ROWS, DEPTH)).astype("float32")
    b = generator.uniform(-1, 1, (COLUMNS, DEPTH)).astype("float32")
    c = tvm.nd.array(np.full((ROWS, COLUMNS), np.nan, "float32"))
    built["main"](tvm.nd.array(a), tvm.nd.array(b), c)
    return float(np.abs(c.numpy() - np.maximum(a @ b.T, 0)).max())


@pytest.mark.parametrize("name", FOUND)
def test_what_was_wrong_is_right(name: str) -> None:
    mod = scheduled(*FOUND[name])
    assert mistagged_buffers(tvm.lower(mod)["main"].body)
    assert error(tvm.build(mod, target=TARGET)) < 1e-5


def accesses(*pairs: tuple[Any, int], scalar: Any = None) -> Any:
    """A loop over ``i`` that writes ``lanes`` zeros from each place on, and reads a scalar."""
    buffer = tir.decl_buffer((256,), "float32", "b")
    zero = tir.const(0, "float32")
    body = [
        tir.BufferStore(buffer, tir.Broadcast(zero, lanes), [tir.Ramp(place, 1, lanes)])
        for place, lanes in pairs
    ]
    if scalar is not None:
        body.append(tir.Evaluate(tir.BufferLoad(buffer, [scalar])))
    parameter = tir.Var("b", "handle")
    loop = tir.For(I, 0, 4, tir.ForKind.SERIAL, tir.SeqStmt(body) if len(body) > 1 else body[0])
    return tir.PrimFunc([parameter], loop, buffer_map={parameter: buffer})


I = tir.Var("i", "int32")  # noqa: E741  the loop variable
FIVE = tir.const(5, "int32")


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (accesses((I * 16, 4)), False),
        (accesses((I * 16, 4), (I * 32, 4)), False),  # the same tag
        (accesses((I * 16, 4), (I * 16, 16)), False),  # one within the other
        (accesses((tir.const(0, "int32"), 4), (tir.const(4, "int32"), 4)), False),  # truly apart
        (accesses((I * 16, 4), (I * 16 + 4, 4)), True),
        (accesses((I * 16 + 2, 2), (tir.const(16, "int32"), 16)), True),
        (accesses((I * 4, 4), scalar=FIVE), True),
        (accesses((I * 4, 4), scalar=I + 5), False),  # the whole buffer
        (accesses((I + 128, 128), (tir.const(0, "int32"), 4)), True),
        (accesses((I, 512), (tir.const(128, "int32"), 4)), False),  # wider than any tag
    ],
)
def test_which_tags_contradict(function: Any, wrong: bool) -> None:
    assert bool(mistagged_buffers(function.body)) == wrong
    changed = repaired(function)
    assert changed.same_as(function) != wrong
    assert not mistagged_buffers(changed.body)


def test_the_build_needs_it_once() -> None:
    """It is in force since ``compat`` was imported, and again it finds nothing to repair."""
    assert not repair(TARGET)
