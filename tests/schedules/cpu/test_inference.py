"""The compiled CPU kernel against numpy in float64."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tunerplugin.errors import ScheduleError
from tunerplugin.measure import host_target
from tunerplugin.schedules.fused_mlp import MLP, Activation, Residual
from tunerplugin.schedules.fused_mlp.activations import reference
from tunerplugin.schedules.fused_mlp.cpu import TEMPLATE, fused_mlp, space
from tunerplugin.schedules.fused_mlp.cpu.machine import Machine
from tunerplugin.schedules.fused_mlp.cpu.plan import Block, Plan, default_knobs
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS
from tunerplugin.schedules.fused_mlp.packing import numpy_dtype
from tunerplugin.schedules.fused_mlp.template import ENTRY, FusedKernel, knobs_of
from tunerplugin.schedules.fused_mlp.torch_autograd import unfused
from tunerplugin.space import Prefix, Space
from tunerplugin.testing import SpaceConformance

Array = np.ndarray[Any, Any]
#: largest error relative to the largest output, by dtype of input and output
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
MLPS = {
    "square": MLP.uniform(64, 4),
    "odd": MLP.of((33, 50, 51, 7), "leaky_relu"),
    "primes": MLP.of((2, 3, 5, 131, 1), "tanh", "sigmoid"),
    "ones": MLP.of((1, 1, 1, 1), "gelu"),
    "wide": MLP.of((255, 256, 17), "none", bias=False),
    "siren": MLP.of((2, 24, 24, 3), Activation("sine", 5.0)),
    "one layer": MLP.of((20, 12), last="relu"),
    "residuals": MLP.of(
        (9, 32, 32, 32, 9), residuals=(None, Residual(1, True), Residual(1), Residual(0))
    ),
    "float16": MLP.of((40, 24, 19), "silu", dtype="float16"),
    "bfloat16": MLP.of((41, 40, 41), "relu", dtype="bfloat16", residuals=(None, Residual(0))),
    "mixed": MLP(
        (12,) * (len(FUNCTIONS) + 1),
        tuple(Activation(name) for name in FUNCTIONS),
        tuple(layer % 2 == 0 for layer in range(len(FUNCTIONS))),
    ),
}


def target() -> Any:
    return tvm.target.Target(host_target(2))


def parameters(mlp: MLP, rng: np.random.Generator) -> list[tuple[Array, Array | None]]:
    """Weights that keep the size of what goes through them."""
    dtype = numpy_dtype(mlp.dtype)
    return [
        (
            (rng.standard_normal((k, n)) / np.sqrt(k)).astype(dtype),
            rng.standard_normal(n).astype(dtype) if bias else None,
        )
        for (k, n), bias in zip(mlp.shapes, mlp.bias, strict=True)
    ]


def exact(mlp: MLP, layers: list[tuple[Array, Array | None]], x: Array) -> Array:
    """The description's formula, literally, in float64."""
    tensors = [x.astype(np.float64)]
    for layer, (weight, bias) in enumerate(layers):
        h = tensors[-1] @ weight.astype(np.float64)
        h = h if bias is None else h + bias.astype(np.float64)
        residual = mlp.residuals[layer]
        if residual is not None and residual.before_activation:
            h = h + tensors[residual.source]
        h = reference(mlp.activations[layer], h)
        if residual is not None and not residual.before_activation:
            h = h + tensors[residual.source]
        tensors.append(h)
    return tensors[-1]


def in_float32(mlp: MLP, layers: list[tuple[Array, Array | None]], x: Array) -> Array:
    """What torch makes of it in float32."""
    arrays = [a for weight, bias in layers for a in (weight.T, bias) if a is not None]
    tensors = (torch.from_numpy(np.array(a, np.float32)) for a in (x, *arrays))
    result: Array = unfused(mlp, next(tensors), list(tensors)).numpy()
    return result


def run(kernel: FusedKernel, built: Any, batch: int, seed: int) -> None:
    """One call, checked; the row behind the output's end must stay as it was.

    What the network amplifies rounding errors by is taken from torch's in float32: eleven layers
    with an exponential and a sine among them pass the tolerance now and then.
    """
    mlp, rng = kernel.mlp, np.random.default_rng(seed)
    dtype = numpy_dtype(mlp.dtype)
    layers = parameters(mlp, rng)
    x = rng.standard_normal((batch, mlp.widths[0])).astype(dtype)
    room = tvm.runtime.tensor(np.full((batch + 1, mlp.widths[-1]), 7, dtype))
    y = room._create_view((batch, mlp.widths[-1]))
    built[ENTRY](*map(tvm.runtime.tensor, (x, *kernel.pack(layers))), y)
    got, expected = room.numpy().astype(np.float64), exact(mlp, layers, x)
    assert (got[batch] == 7).all()
    scale = max(1, np.abs(expected).max())
    error, rounding = (
        np.abs(result - expected).max() / scale
        for result in (got[:batch], in_float32(mlp, layers, x))
    )
    assert error <= TOLERANCE[mlp.dtype] + 8 * rounding


def compiled(kernel: FusedKernel) -> Any:
    return tvm.compile(tvm.IRModule({ENTRY: kernel.func}), target=target())


@cache
def symbolic(name: str) -> tuple[FusedKernel, Any]:
    kernel = fused_mlp(MLPS[name], None, target())
    return kernel, compiled(kernel)


@pytest.mark.parametrize("name", MLPS)
@settings(max_examples=10, deadline=None)
@given(batch=st.one_of(st.integers(1, 9), st.integers(90, 600)), seed=st.integers(0, 999))
def test_any_batch(name: str, batch: int, seed: int) -> None:
    run(*symbolic(name), batch, seed)


@pytest.mark.parametrize("batch", [1, 96, 131])
def test_static_batch(batch: int) -> None:
    kernel = fused_mlp(MLP.of((24, 24, 10)), batch, target())
    run(kernel, compiled(kernel), batch, 0)


@st.composite
def mlps(draw: st.DrawFn) -> MLP:
    widths = draw(st.lists(st.integers(1, 80), min_size=2, max_size=4))
    layers = len(widths) - 1
    # one exponential of another leaves the range of every type
    names = draw(
        st.lists(st.sampled_from(FUNCTIONS), min_size=layers, max_size=layers).filter(
            lambda names: names.count("exponential") < 2
        )
    )
    bias = draw(st.lists(st.booleans(), min_size=layers, max_size=layers))
    dtype = draw(st.sampled_from(sorted(TOLERANCE)))
    return MLP(tuple(widths), tuple(map(Activation, names)), tuple(bias), dtype)  # type: ignore[arg-type]


@pytest.mark.heavy
@settings(max_examples=12, deadline=None, phases=[Phase.generate], derandomize=True)
@given(mlp=mlps(), data=st.data())
def test_any_candidate_of_any_mlp(mlp: MLP, data: st.DataObject) -> None:
    candidates = space(mlp, target())
    values: tuple[Any, ...] = ()
    while candidates.knob(values) is not None:
        values = (*values, data.draw(st.sampled_from(candidates.legal_values(values))))
    kernel = fused_mlp(mlp, None, target(), **knobs_of(candidates, values))
    run(kernel, compiled(kernel), data.draw(st.integers(1, 300)), 0)


@pytest.mark.parametrize("name", MLPS)
def test_the_default_is_a_candidate(name: str) -> None:
    kernel = fused_mlp(MLPS[name], None, target())
    assert space(MLPS[name], target()).contains(tuple(kernel.knobs.values()))


class TestSpace(SpaceConformance):
    """On AVX2: 16 registers, 8 lanes; tiles of up to 512 rows of 16 floats fit the cache."""

    def make_space(self) -> Space:
        target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"}
        return space(MLP.of((8, 16, 16), dtype="float16"), target)

    def is_legal(self, values: Prefix) -> bool:
        rows, vectors = map(int, values[:2])
        return rows * vectors + vectors + 1 <= 16


def test_tiles_that_do_not_fit_the_cache() -> None:
    # Two tensors of 256 floats are 2 KiB a row: 128 rows fit half of the L2 cache of 512 KiB.
    tiles = space(MLP.uniform(256, 4), target()).legal_values((4, 2, 2))
    assert max(tiles) == 128


def test_the_register_block_follows_the_target() -> None:
    mlp = MLP.uniform(128, 2)
    narrow = space(mlp, {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"})
    wide = space(mlp, {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"})
    # 6 x 16 fills the 16 registers of AVX2 (12 sums, 2 weights, 1 input), 8 x 16 does not fit.
    assert narrow.legal_values((6,)) == (1, 2)
    assert narrow.legal_values((8,)) == (1,)
    assert wide.legal_values((8,)) == (1, 2, 3)


def plan_of(mlp: MLP) -> Plan:
    machine = Machine(lanes=8, registers=16)
    return Plan(mlp, machine, default_knobs(mlp, machine, None))


def test_two_buffers_do_for_a_chain() -> None:
    plan = plan_of(MLP.of((8, 16, 24, 32, 16, 8)))
    assert plan.slots == {1: 0, 2: 1, 3: 0, 4: 1}
    assert plan.slot_vectors == (4, 3)


def test_a_residual_keeps_its_source() -> None:
    residuals = (None, None, Residual(1), None, None)
    plan = plan_of(MLP.of((8, 16, 16, 16, 16, 8), residuals=residuals))
    assert plan.slots == {1: 0, 2: 1, 3: 2, 4: 0}


def test_the_output_is_stored_without_its_padding() -> None:
    # 21 columns are 2 whole vectors and 5 lanes; a hidden layer of 24 stores 3 whole vectors.
    plan = plan_of(MLP.of((8, 24, 21)))
    assert [(s.count, s.block, s.stored, s.lanes_left) for s in plan.strips(1)] == [
        (1, Block(4, 2), 2, 0),
        (1, Block(8, 1), 0, 5),
    ]
    assert [(s.count, s.stored, s.lanes_left) for s in plan.strips(0)] == [(1, 2, 0), (1, 1, 0)]


def test_a_small_batch_is_shared_out() -> None:
    machine = Machine(lanes=8, registers=16, cores=8)
    assert default_knobs(MLP.uniform(64, 4), machine, 256).rows == 32
    assert default_knobs(MLP.uniform(64, 4), machine, 1 << 17).rows == 96


@pytest.mark.parametrize("batch", [None, 1, 7, 64, 100, 150, 1000, 1 << 17])
@pytest.mark.parametrize("mlp", [MLP.uniform(64, 2), MLP.of((3, 17, 1)), MLP.of((1, 1))])
def test_defaults_are_of_the_space(mlp: MLP, batch: int | None) -> None:
    """Tuning begins with them; a batch of 7 rows got a tile of 8, which was no candidate."""
    knobs = fused_mlp(mlp, batch, target()).knobs
    candidates = space(mlp, target())
    assert candidates.contains([knobs[name] for name in candidates.names]), knobs


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"block_rows": 6, "rows": 64}, "multiples of block_rows = 6, got 64"),
        ({"block_rows": 64, "rows": 64}, "register block for"),
        ({"unroll": 0}, "unroll of at least 1, got 0"),
        ({"prefetch": 2}, "prefetch of 0 or 1, got 2"),
    ],
)
def test_impossible_knobs(knobs: dict[str, int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        fused_mlp(MLP.uniform(64, 2), None, target(), **knobs)


def test_what_it_is_not_for() -> None:
    refusal = TEMPLATE.supports(MLP.uniform(64, 2), {"kind": "opencl"})
    assert refusal == "expected a target of kind llvm, got opencl"
    with pytest.raises(ScheduleError, match="expected a target of kind llvm"):
        fused_mlp(MLP.uniform(64, 2), None, {"kind": "opencl"})
    with pytest.raises(ScheduleError, match="batch of at least 1"):
        fused_mlp(MLP.uniform(64, 2), 0, target())
    with pytest.raises(ScheduleError, match="staged=1"):
        fused_mlp(MLPS["float16"], None, target(), staged=0)


def test_parameters_are_checked() -> None:
    kernel = fused_mlp(MLP.of((3, 4), bias=False), None, target())
    with pytest.raises(ScheduleError, match="no bias in layer 0"):
        kernel.pack([(np.zeros((3, 4)), np.zeros(4))])
    with pytest.raises(ScheduleError, match="parameters of 1 layers, got 0"):
        kernel.pack([])
