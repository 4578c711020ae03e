"""What a worker knows about a task: its signature, its inputs, its verdicts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.measure import kernels
from tunerplugin.measure import program
from tunerplugin.measure.values import Array, Param
from tunerplugin.outcome import Status


@pytest.fixture
def reference() -> program.Reference:
    target = program.load_target('{"kind": "llvm"}')
    made = program.Reference(kernels.text(kernels.Double), seed=3)
    made.accept(made.compute(target))
    return made


def _result(reference: program.Reference, output: Array) -> list[object]:
    return [tvm.runtime.tensor(a) for a in (reference.inputs[0], output)]


def test_the_reference_computes_the_function(reference: program.Reference) -> None:
    doubled = reference.inputs[0] * np.float32(2)
    assert np.array_equal(reference.expected[1], doubled)
    assert reference.judge(_result(reference, doubled)) is None
    fault = reference.judge(_result(reference, doubled + np.float32(1)))
    assert fault is not None and fault[0] is Status.WRONG_RESULT


def test_overwritten_inputs_are_not_blamed_on_the_candidate(reference: program.Reference) -> None:
    good = reference.inputs[0] * np.float32(2)
    arguments = _result(reference, good)
    reference.inputs[0][5] = 1e6
    with pytest.raises(program.CorruptedError):
        reference.judge(arguments)


def test_signature_tells_outputs_in_place_buffers_and_reductions_apart() -> None:
    untuned, _ = kernels.matmul_with_moved_weight()
    matmul = program.signature(program.load_module(untuned))
    a, w, c = matmul.params
    assert c == Param("c", (8, 16), "float32", written=True, read=False)
    assert (a.written, a.read, w.written, w.read) == (False, True, False, True)
    in_place = program.signature(kernels.InPlace)
    assert (in_place.params[1].written, in_place.params[1].read) == (True, True)
    assert matmul.relative > in_place.relative > 0


def test_a_weight_that_moved_is_timed_in_its_new_shape() -> None:
    _, tuned = kernels.matmul_with_moved_weight()
    built = program.build(program.load_module(tuned), program.load_target('{"kind": "llvm"}'))
    assert built.signature.params[1].shape == (32, 16)
    assert built.timed_params is not None and built.timed_params[1].shape == (4, 32, 4)


def test_a_module_of_two_functions_and_a_symbolic_shape_are_refused() -> None:
    f, g = (program.load_module(kernels.text(m))["main"] for m in (kernels.Double, kernels.Wrong))
    two = tvm.IRModule({"f": f, "g": g})
    with pytest.raises(ValueError, match="expected one PrimFunc in the module, got 2"):
        program.signature(two)
    n = tvm.te.var("n")
    a = tvm.te.placeholder((n,), "float32", name="a")
    b = tvm.te.compute((n,), lambda i: a[i], name="b")
    with pytest.raises(ValueError, match="expected static shapes, got a of shape"):
        program.signature(tvm.IRModule({"main": tvm.te.create_prim_func([a, b])}))
