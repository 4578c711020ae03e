"""Tasks of AutoTVM for tests: real templates, and one with every kind of knob."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import autotvm, relay, te  # noqa: F401  (relay: loads TVM's own templates)

LLVM = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3 -num-cores 2"
CUDA = "cuda -arch=sm_80 -max_threads_per_block=1024 -max_shared_memory_per_block=49152"


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    """A float32 tensor in a task's arguments."""
    return ("TENSOR", shape, "float32")


def dense(m: int = 16, n: int = 24, k: int = 12, kind: str = "nopack", target: str = LLVM) -> Any:
    """A task of ``dense_nopack.x86`` or ``dense_pack.x86``."""
    arguments = (tensor(m, k), tensor(n, k), None, "float32")
    return autotvm.task.create(f"dense_{kind}.x86", arguments, tvm.target.Target(target))


def convolution(template: str, channels: int = 8, size: int = 6, target: str = LLVM) -> Any:
    """A 3 x 3 convolution in NCHW; a depthwise template gets one filter per channel."""
    depthwise = "depthwise" in template
    data = tensor(1, channels, size, size)
    weight = tensor(channels, 1 if depthwise else channels, 3, 3)
    shape: tuple[Any, ...] = (data, weight, (1, 1), (1, 1, 1, 1), (1, 1))
    layouts = ("NCHW", "NCHW") if "NCHWc" in template else ()
    arguments = (*shape, *layouts, "float32")
    return autotvm.task.create(template, arguments, tvm.target.Target(target))


@autotvm.template("tunerplugin_tests.every_knob")
def every_knob(n: int, m: int, dtype: str) -> Any:
    """A matrix sum with a split, an order, annotations and options; a filter over two of them."""
    a, b = te.placeholder((n, m), dtype, "a"), te.placeholder((n, m), dtype, "b")
    total = te.compute((n, m), lambda i, j: a[i, j] + b[i, j], name="total")
    schedule = te.create_schedule(total.op)
    config = autotvm.get_config()
    y, x = schedule[total].op.axis
    config.define_split("tile_y", y, num_outputs=3)
    config.define_split("tile_x", x, num_outputs=2, policy="verbose")
    axes = [config.axis(length) for length in (n, m)]
    config.define_reorder("order", axes, policy="all")
    config.define_annotate("inner", axes[:1], policy="try_unroll_vec")
    config.define_knob("pragma", [0, 16])
    config.define_knob("exact", [True, False])
    config.multi_filter(lambda entity: entity["tile_y"].size[-1] <= entity["tile_x"].size[-1])
    y0, y1, y2 = config["tile_y"].apply(schedule, total, y)
    x0, x1 = config["tile_x"].apply(schedule, total, x)
    outer = [y0, x0] if list(config["order"].perm) == [0, 1] else [x0, y0]
    schedule[total].reorder(*outer, y1, y2, x1)
    config["inner"].apply(schedule, total, [x1], axis_lens=[config["tile_x"].size[-1]])
    schedule[total].pragma(y0, "auto_unroll_max_step", config["pragma"].val)
    return schedule, [a, b, total]


@autotvm.template("tunerplugin_tests.badly_behaved")
def badly_behaved(n: int) -> Any:
    """Doubles a vector; some configurations raise, register an error, crash or never end."""
    config = autotvm.get_config()
    config.define_knob("way", ["plain", "raises", "refuses", "crashes", "hangs"])
    way = config["way"].val
    a = te.placeholder((n,), "float32", "a")
    if way == "raises":
        raise ValueError("this way lies nothing")
    if way == "refuses":
        config.raise_error("not this way")
    calls = {"crashes": ("abort", ()), "hangs": ("sleep", (1000,))}
    if way in calls:
        name, arguments = calls[way]

        def call(inputs: Any, outputs: Any) -> Any:
            return tvm.tir.call_extern("int32", name, *arguments)

        twice = te.extern((n,), [a], call, name="twice", dtype="float32")
    else:
        twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    return te.create_schedule(twice.op), [a, twice]


@autotvm.template("tunerplugin_tests.picky")
def picky(n: int, chosen: int) -> Any:
    """Doubles a vector; of 400 configurations it takes one."""
    config = autotvm.get_config()
    config.define_knob("number", list(range(400)))
    if config["number"].val != chosen:
        config.raise_error("another number, please")
    a = te.placeholder((n,), "float32", "a")
    twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    return te.create_schedule(twice.op), [a, twice]


def picky_task(chosen: int) -> Any:
    """A task of 400 configurations of which the template takes one."""
    return autotvm.task.create("tunerplugin_tests.picky", (8, chosen), tvm.target.Target(LLVM))


@autotvm.template("tunerplugin_tests.lazy")
def lazy(n: int) -> Any:
    """Doubles a vector, or claims to: an intrinsic that does nothing is fast."""
    config = autotvm.get_config()
    config.define_knob("intrinsic", [True, False])
    a = te.placeholder((n,), "float32", "a")
    twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    schedule = te.create_schedule(twice.op)
    if config["intrinsic"].val:
        _, inner = schedule[twice].split(twice.op.axis[0], 8)
        schedule[twice].tensorize(inner, _do_nothing(8))
    return schedule, [a, twice]


def _do_nothing(n: int) -> Any:
    a = te.placeholder((n,), "float32", "a")
    twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    buffers = {
        t: tvm.tir.decl_buffer((n,), "float32", t.op.name, offset_factor=1, strides=[1])
        for t in (a, twice)
    }
    nothing = tvm.tir.Evaluate(tvm.tir.const(0))
    return te.decl_tensor_intrin(twice.op, lambda inputs, outputs: nothing, binds=buffers)


def lazy_task(n: int = 1024) -> Any:
    """A task of two configurations: the first is wrong."""
    return autotvm.task.create("tunerplugin_tests.lazy", (n,), tvm.target.Target(LLVM))


def badly_behaved_task(n: int = 1024) -> Any:
    """A task of five configurations, of which one works."""
    return autotvm.task.create("tunerplugin_tests.badly_behaved", (n,), tvm.target.Target(LLVM))


def every_knob_task(n: int = 8, m: int = 6) -> Any:
    """A task with splits, an order, annotations and options."""
    return autotvm.task.create(
        "tunerplugin_tests.every_knob", (n, m, "float32"), tvm.target.Target(LLVM)
    )
