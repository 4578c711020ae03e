"""Isolated measurement of modules of the Relay era, good and bad candidates alike."""

# mypy: ignore-errors
# TVMScript is not Python to a type checker.

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.script import ir as I
from tvm.script import tir as T

from tunerplugin.errors import MeasureError
from tunerplugin.integrations.compat import tensor
from tunerplugin.measure import Measurer, MeasureTask, Request, host_target, program
from tunerplugin.measure.values import Param
from tunerplugin.outcome import Status

TARGET = json.dumps(host_target(2))


def elementwise(compute: Callable[[Any, Any], Any], dtype: str = "float32", size: int = 16) -> str:
    """The text of a module that computes an element from one of ``a``."""
    a = te.placeholder((size,), dtype, name="a")
    b = te.compute((size - 1,), lambda i: compute(a, i), name="b")
    return text(tvm.IRModule({"main": te.create_prim_func([a, b])}))


def text(mod: tvm.IRModule) -> str:
    return str(tvm.ir.save_json(mod))


DOUBLE = elementwise(lambda a, i: a[i] * 2)


@I.ir_module
class SpoilsInput:
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((15,), "float32")):
        T.func_attr({"tir.noalias": True, "global_symbol": "main"})
        for i in range(15):
            with T.block("b"):
                vi = T.axis.spatial(15, i)
                T.reads(a[vi])
                T.writes(b[vi], a[vi])
                b[vi] = a[vi] * T.float32(2)
                a[vi] = T.float32(0)


@I.ir_module
class InPlace:
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tir.noalias": True, "global_symbol": "main"})
        for i in range(16):
            with T.block("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi], b[vi])
                T.writes(b[vi])
                b[vi] = b[vi] * T.float32(0.5) + a[vi]


@I.ir_module
class Hangs:
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((15,), "float32")):
        T.func_attr({"tir.noalias": True, "global_symbol": "main"})
        for r, i in T.grid(2000000000, 15):
            with T.block("b"):
                vr, vi = T.axis.remap("RS", [r, i])
                T.reads(a[vi])
                T.writes(b[vi])
                with T.init():
                    b[vi] = T.float32(0)
                b[vi] = T.sin(b[vi]) + a[vi]


@I.ir_module
class Aborts:
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((15,), "float32")):
        T.func_attr({"tir.noalias": True, "global_symbol": "main"})
        for i in range(15):
            with T.block("b"):
                vi = T.axis.spatial(15, i)
                T.reads(a[vi])
                T.writes(b[vi])
                T.evaluate(T.call_extern("int32", "abort"))


CANDIDATES = {
    "same": (DOUBLE, Status.OK, ""),
    "other operation": (elementwise(lambda a, i: a[i] + a[i]), Status.OK, ""),
    "wrong": (
        elementwise(lambda a, i: a[i] * 2 + 0.25),
        Status.WRONG_RESULT,
        "seed 0, b: max difference 0.25, limit ",
    ),
    "not a number": (
        elementwise(lambda a, i: te.sqrt(-2.0 - a[i])),
        Status.NON_FINITE,
        "seed 0, b: 15 values are NaN or infinite",
    ),
    "spoils input": (text(SpoilsInput), Status.WRONG_RESULT, "seed 0, a: max difference "),
    "other shape": (elementwise(lambda a, i: a[i], size=8), Status.WRONG_RESULT, "expected param"),
    "no module": ("no module", Status.COMPILE_ERROR, ""),
    "aborts": (text(Aborts), Status.RUN_ERROR, "killed by signal 6 (SIGABRT)"),
    "hangs": (text(Hangs), Status.TIMEOUT, "run took longer than 5 s"),
}


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(jobs=2, build_deadline_s=30, run_deadline_s=5, min_repeat_ms=1) as shared:
        yield shared


def one(measurer: Measurer, task: MeasureTask, module: str) -> tuple[Status, str]:
    ((_, outcome),) = measurer.measure(task, [Request(0, module)])
    return outcome.status, outcome.reason


def test_each_candidate_of_a_hostile_batch_ends_as_expected(measurer: Measurer) -> None:
    requests = [Request(i, c[0]) for i, c in enumerate(CANDIDATES.values())]
    task = MeasureTask("double", DOUBLE, TARGET)
    seen = dict(measurer.measure(task, requests))
    assert len(seen) == len(CANDIDATES)
    for i, (name, (_, status, reason)) in enumerate(CANDIDATES.items()):
        outcome = seen[i]
        assert (outcome.status, outcome.reason[: len(reason)]) == (status, reason), name
        assert len(outcome.samples_s) == (3 if outcome.ok else 0)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "bool"])
def test_dtypes(measurer: Measurer, dtype: str) -> None:
    task = MeasureTask(dtype, elementwise(lambda a, i: a[i], dtype), TARGET)
    assert one(measurer, task, task.module) == (Status.OK, "")
    shifted = elementwise(lambda a, i: a[i + 1], dtype)
    assert one(measurer, task, shifted)[0] is Status.WRONG_RESULT


def test_a_weight_in_another_layout_is_checked_and_timed(measurer: Measurer) -> None:
    """What RewriteLayout makes of a weight whose layout is free."""
    a = te.placeholder((8, 32), "float32", name="a")
    w = te.placeholder((32, 16), "float32", name="w")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="c")
    untuned = tvm.IRModule({"main": te.create_prim_func([a, w, c])})
    schedule = tvm.tir.Schedule(untuned)
    copy = schedule.cache_read("c", 1, "global")
    schedule.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
    schedule.transform_layout("c", ("read", 1), lambda k, j: (j // 4, k, j % 4))

    built = program.build(schedule.mod, program.load_target(TARGET))
    assert built.signature.params[1].shape == (32, 16)
    assert built.timed_params is not None and built.timed_params[1].shape == (4, 32, 4)
    task = MeasureTask("layout", text(untuned), TARGET)
    assert one(measurer, task, text(schedule.mod)) == (Status.OK, "")


def test_the_reference_computes_the_function() -> None:
    reference = program.Reference(DOUBLE, seed=3)
    reference.accept(reference.compute(program.load_target(TARGET)))
    doubled = reference.inputs[0][:15] * np.float32(2)
    assert np.array_equal(reference.expected[1], doubled)
    assert reference.judge([tensor(a) for a in (reference.inputs[0], doubled)]) is None


def test_signatures_tell_outputs_in_place_buffers_and_scalars_apart() -> None:
    a, b = program.signature(program.load_module(DOUBLE)).params
    assert a == Param("a", (16,), "float32", written=False, read=True)
    assert b == Param("b", (15,), "float32", written=True, read=False)
    in_place = program.signature(InPlace).params[1]
    assert (in_place.written, in_place.read) == (True, True)
    n = tvm.tir.Var("n", "int32")
    scalar = tvm.tir.PrimFunc([n], tvm.tir.Evaluate(0))
    with pytest.raises(ValueError, match="expected buffer parameters, got the scalar n"):
        program.signature(tvm.IRModule({"main": scalar}))


def test_a_target_of_another_device_is_refused(measurer: Measurer) -> None:
    task = MeasureTask("gpu", DOUBLE, '{"kind": "opencl"}')
    with pytest.raises(MeasureError, match=r"task gpu.*device cpu.*, got one of kind opencl"):
        one(measurer, task, DOUBLE)
