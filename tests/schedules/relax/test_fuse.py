"""What the pass changes, what it leaves alone, and what it says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax

import tunerplugin.schedules
from tests.schedules.gpu.test_amd_assembly import PROCESSORS
from tests.schedules.relax.modules import calls, constant, module, symbol, variable
from tunerplugin.errors import ScheduleError
from tunerplugin.schedules import FuseMLP
from tunerplugin.schedules.fused_mlp.devices import DG2, PVC
from tunerplugin.schedules.fused_mlp.dispatch import device_for, select, templates_for
from tunerplugin.schedules.fused_mlp.relax import analyse
from tunerplugin.schedules.fused_mlp.relax.pipeline import FusedMLPPipeline
from tunerplugin.schedules.fused_mlp.relax.sources import kernel_name

op = relax.op
CPU = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


def mlp(emit: Any, x: Any, *parameters: Any) -> Any:
    """16 -> 16 -> 4 with ReLU; parameters (w, b, v, c) or literals."""
    w, b, v, c = parameters or (constant(16, 16), constant(16), constant(4, 16), constant(4))
    h = emit(op.nn.relu(emit(op.add(emit(op.matmul(x, w)), b))))
    return emit(op.add(c, emit(op.matmul(h, emit(op.permute_dims(v))))))


def around(emit: Any, x: Any) -> Any:
    """A convolution before and a softmax behind."""
    image = emit(op.nn.conv2d(x, constant(1, 1, 3, 3), padding=(1, 1)))
    return emit(op.nn.softmax(mlp(emit, emit(op.reshape(image, (8, 16))))))


IMAGE = (8, 1, 4, 4)


def kernels(mod: Any) -> list[str]:
    return sorted(gv.name_hint for gv, f in mod.functions_items() if not hasattr(f, "is_pure"))


def test_literals_are_packed_by_the_pass() -> None:
    mod = FuseMLP(CPU)(module(mlp, variable("x", (8, 16))))
    (kernel,) = kernels(mod)
    assert kernel.startswith("fused_mlp_")
    assert calls(mod["main"]) == [f"call_tir {kernel}"]


def test_parameters_are_packed_by_calls_that_can_be_lifted() -> None:
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("w", (16, 16)),
        ("b", (16,)),
        ("v", (4, 16)),
        ("c", (4,)),
    ]
    mod = FuseMLP(CPU)(module(mlp, variable("x", (8, 16)), *(variable(*s) for s in shapes)))
    names = calls(mod["main"])
    assert names[-1].startswith("call_tir fused_mlp_")
    assert sorted(name.rstrip("1") for name in names[:-1]) == [
        *["call_tir pack_bias"] * 2,
        *["call_tir pack_weight"] * 2,
    ]
    lifted = relax.transform.LiftTransformParams()(mod)
    assert calls(lifted["main"]) == names[-1:]


def test_the_rest_of_the_model_is_untouched() -> None:
    other = module(lambda emit, x: emit(op.exp(x)), variable("x", (3,)), name="other")["other"]
    mod = module(around, variable("x", IMAGE))
    mod["other"] = other
    fused = FuseMLP(CPU)(mod)
    assert tvm_ffi.structural_equal(fused["other"], other)
    before, after = calls(mod["main"]), calls(fused["main"])
    assert before[:2] == after[:2] == ["nn.conv2d", "reshape"]
    assert after[2].startswith("call_tir fused_mlp_")
    assert before[-1:] == after[3:] == ["nn.softmax"]
    assert tvm_ffi.structural_equal(fused["main"].ret_ty, mod["main"].ret_ty)
    relax.analysis.well_formed(fused)  # raises if not


def test_modules_without_chains_come_back_as_they_are() -> None:
    mod = module(lambda emit, x: emit(op.exp(x)), variable("x", (3,)))
    fuse = FuseMLP(CPU)
    assert fuse(mod).same_as(mod)
    assert fuse.report == ()


def test_equal_chains_share_a_kernel_and_shared_weights_are_packed_once() -> None:
    w = variable("w", (16, 16))

    def body(emit: Any, x: Any, w: Any) -> Any:
        for _ in range(2):
            for _ in range(3):
                x = emit(op.tanh(emit(op.matmul(x, emit(op.permute_dims(w))))))
            x = emit(op.nn.softmax(x))
        return x

    mod = FuseMLP(CPU)(module(body, variable("x", (8, 16)), w))
    names = calls(mod["main"])
    (kernel,) = (name for name in kernels(mod) if name.startswith("fused_mlp"))
    fused = f"call_tir {kernel}"
    assert names == ["call_tir pack_weight", fused, "nn.softmax", fused, "nn.softmax"]


def test_leading_dimensions_are_flattened_and_restored() -> None:
    n = symbol()
    mod = module(mlp, variable("x", (n, 3, 16)))
    fused = FuseMLP(CPU)(mod)
    names = calls(fused["main"])
    assert [names[0], names[2]] == ["reshape", "reshape"]
    assert tvm_ffi.structural_equal(fused["main"].ret_ty, mod["main"].ret_ty, map_free_vars=True)


def test_report() -> None:
    def body(emit: Any, x: Any) -> Any:
        h = emit(op.nn.softmax(mlp(emit, x)))
        wide = emit(op.matmul(emit(op.matmul(h, constant(4, 8))), constant(8, 300)))
        return wide

    mod = module(body, variable("x", (64, 16)))
    fuse = FuseMLP(CPU)
    fuse(mod)
    first, second, third = fuse.report
    assert first.fused and first.widths == (16, 16, 4) and first.batch == 64
    assert str(first).startswith("main: lv..lv5 (16-16-4) fused: template cpu; fused: ")
    assert str(first).endswith("; nn.softmax (lv6) is no part of a layer")
    assert not second.fused
    assert second.reason == ("1 layer, fewer than 2; lv8 has width 300, expected at most 256")
    assert (third.fused, third.widths, third.reason) == (
        False,
        (),
        "width 300, expected at most 256",
    )
    assert str(third) == "main: lv8..lv8 (no layer) not fused: width 300, expected at most 256"
    assert analyse(mod, CPU) == fuse.report
    assert all("\n" not in str(line) for line in fuse.report)


def test_minimum_layers() -> None:
    mod = module(lambda emit, x: emit(op.matmul(x, constant(16, 4))), variable("x", (8, 16)))
    assert FuseMLP(CPU)(mod).same_as(mod)
    assert calls(FuseMLP(CPU, minimum_layers=1)(mod)["main"])[0].startswith("call_tir fused_mlp")
    assert [line.fused for line in analyse(mod, CPU, minimum_layers=1)] == [True]
    with pytest.raises(ScheduleError, match="minimum_layers of at least 1, got 0"):
        FuseMLP(CPU, minimum_layers=0)


def test_a_target_without_template() -> None:
    mod = module(mlp, variable("x", (8, 16)))
    fuse = FuseMLP({"kind": "c"})
    assert fuse(mod).same_as(mod)
    (line,) = fuse.report
    assert line.reason == "no template for target kind c, expected one of llvm, opencl, rocm"


OPENCL = {
    "kind": "opencl",
    "model": "pvc",
    "max_num_threads": 1024,
    "max_shared_memory_per_block": 131072,
    "host": "llvm",
}


def test_the_roofline_may_refuse_and_be_overruled() -> None:
    """Six square layers of 256 in float32: registers for few rows only, weights that no longer fit
    shared memory, and enough rows that starting kernels costs nothing."""

    def body(emit: Any, x: Any) -> Any:
        for _ in range(6):
            x = emit(op.tanh(emit(op.matmul(x, constant(256, 256)))))
        return x

    mod = module(body, variable("x", (1 << 20, 256)))
    (refused,) = analyse(mod, OPENCL)
    assert not refused.fused
    assert refused.reason.startswith("unfused: ")
    (overruled,) = analyse(mod, OPENCL, always=True)
    assert overruled.fused


def test_the_current_target_is_taken() -> None:
    mod = module(mlp, variable("x", (8, 16)))
    with tvm.target.Target(CPU):
        assert calls(FuseMLP()(mod)["main"])[0].startswith("call_tir fused_mlp_")
    for run in (FuseMLP(), FusedMLPPipeline()):
        with pytest.raises(Exception, match="expected a target, FuseMLP.target. or `with target:`"):
            run(mod)


def test_templates_and_devices_of_targets() -> None:
    chosen, reason = select(_half_mlp(), OPENCL)
    assert chosen is not None and chosen.name == "opencl-xmx-pvc", reason
    assert [template.name for template in templates_for(CPU)] == ["cpu"]
    assert device_for(OPENCL) is PVC
    assert device_for(OPENCL | {"model": "dg2"}) is DG2
    assert device_for(OPENCL | {"model": "something"}) is None
    named = {name: device_for({"kind": "rocm", "mcpu": name}) for name in PROCESSORS}
    assert {name for name, device in named.items() if device is None} == set()
    cpu = device_for(CPU)
    assert cpu is not None and cpu.register_modes[0].sub_groups == 2


def _half_mlp() -> Any:
    from tunerplugin.schedules.fused_mlp import MLP

    return MLP.uniform(64, 3, dtype="float16")


def test_kernel_names_tell_kernels_apart() -> None:
    template, _ = select(_half_mlp(), OPENCL)
    assert template is not None
    target = tvm.target.Target(OPENCL)
    first = template.build(_half_mlp(), 256, target)
    names = {
        kernel_name(first, target),
        kernel_name(template.build(_half_mlp(), 256, target), target),
        kernel_name(template.build(_half_mlp(), None, target), target),
        kernel_name(first, tvm.target.Target(OPENCL | {"max_num_threads": 512})),
    }
    assert len(names) == 3


def test_the_package_loads_tvm_only_when_asked() -> None:
    code = (
        "import sys, tunerplugin.schedules as s; assert 'tvm' not in sys.modules; "
        "assert 'FuseMLP' in dir(s); s.FuseMLP; assert 'tvm' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'Fuse'"):
        tunerplugin.schedules.Fuse  # noqa: B018
