"""Candidates, good and bad, for one small task (TVMScript needs a real file).

The task: ``b[i] = 2 * a[i]``, 16 values.
"""

# mypy: ignore-errors
# TVMScript is not Python to a type checker.

from __future__ import annotations

import tvm
from tvm import s_tir, te
from tvm.script import ir as I
from tvm.script import tirx as T


@I.ir_module
class Double:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class Vectorized:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in T.vectorized(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] + a[vi]


@I.ir_module
class Wrong:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] * T.float32(2) + T.float32(0.25)


@I.ir_module
class SpoilsInput:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi], a[vi])
                b[vi] = a[vi] * T.float32(2)
                a[vi] = T.float32(0)


@I.ir_module
class NotANumber:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = T.sqrt(T.float32(-2) - a[vi])


@I.ir_module
class Aborts:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                T.evaluate(T.call_extern("int32", "abort"))


@I.ir_module
class WildWrite:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi + T.int64(1099511627776)] = a[vi]


@I.ir_module
class Hangs:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for r, i in T.grid(2000000000, 16):
            with T.sblock("b"):
                vr, vi = T.axis.remap("RS", [r, i])
                T.reads(a[vi])
                T.writes(b[vi])
                with T.init():
                    b[vi] = T.float32(0)
                b[vi] = T.sin(b[vi]) + a[vi]


@I.ir_module
class TakesOverASecond:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                T.evaluate(T.call_extern("int32", "usleep", 70000))
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class WrongForSomeSeeds:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = T.if_then_else(a[0] > T.float32(0.5), a[vi], a[vi] * T.float32(2))


@I.ir_module
class OtherShape:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((8,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(8):
            with T.sblock("b"):
                vi = T.axis.spatial(8, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class BuildsForever:
    """Unrolls into far more straight-line code than LLVM can compile in a few seconds."""

    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for r in T.unroll(30000):
            for i in range(16):
                with T.sblock("b"):
                    vr, vi = T.axis.remap("RS", [r, i])
                    T.reads(a[vi])
                    T.writes(b[vi])
                    with T.init():
                        b[vi] = T.float32(0)
                    b[vi] = T.sin(b[vi]) + a[(vi + vr) % 16]


@I.ir_module
class Prints:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                T.evaluate(T.call_extern("int32", "puts", "not a frame"))
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class NeedsGpu:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in T.thread_binding(16, thread="threadIdx.x"):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class CrashesLlvm:
    """Asks for an instruction that the target lacks: LLVM aborts in instruction selection."""

    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi] + T.Cast(
                    "float32", T.call_llvm_intrin("int32", "llvm.aarch64.crc32w", 5, vi)
                )


@I.ir_module
class InPlace:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi], b[vi])
                T.writes(b[vi])
                b[vi] = b[vi] * T.float32(0.5) + a[vi]


@I.ir_module
class InPlaceIgnoresOld:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                T.reads(a[vi])
                T.writes(b[vi])
                b[vi] = a[vi]


def select(dtype: str, later: bool) -> str:
    """``c[i] = a[i]``, or of the next element when ``later``: a copy that no rounding excuses."""
    a = te.placeholder((64,), dtype, name="a")
    shift = 1 if later else 0
    c = te.compute((63,), lambda i: a[i + shift], name="c")
    return text(tvm.IRModule({"main": te.create_prim_func([a, c])}))


def matmul_with_moved_weight() -> tuple[str, str]:
    """A matmul, and its schedule that wants the weight in tiles of 4 columns.

    This is what MetaSchedule's RewriteLayout postproc makes of a weight whose layout is free.
    """
    a = te.placeholder((8, 32), "float32", name="a")
    w = te.placeholder((32, 16), "float32", name="w")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="c")
    untuned = tvm.IRModule({"main": te.create_prim_func([a, w, c])})
    schedule = s_tir.Schedule(untuned)
    copy = schedule.cache_read("c", 1, "global")
    schedule.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
    tiles = lambda k, j: (j // 4, k, j % 4)  # noqa: E731  transform_layout reads its source name
    schedule.transform_layout("c", ("read", 1), tiles)
    return text(untuned), text(schedule.mod)


def matmul_with_vectors() -> tuple[str, str]:
    """A matmul, and its schedule with vectors as long as a cache line."""
    a = te.placeholder((64, 64), "float32", name="a")
    b = te.placeholder((64, 64), "float32", name="b")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    untuned = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    schedule = s_tir.Schedule(untuned)
    block = schedule.get_sblock("c")
    i, j, r = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 16])
    schedule.reorder(i, outer, r, inner)
    schedule.vectorize(inner)
    schedule.parallel(i)
    schedule.decompose_reduction(block, r)
    return text(untuned), text(schedule.mod)


def text(mod: tvm.IRModule) -> str:
    """The module as the measurer takes it."""
    return str(tvm.ir.save_json(mod))
