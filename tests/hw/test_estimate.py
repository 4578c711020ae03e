"""The estimator: memory traffic, vector lanes, splits, energy, and the laws they obey."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hw.test_accelerator import TINY
from tunerplugin.errors import InputError
from tunerplugin.hw.estimate.cost import LIMITS
from tunerplugin.hw.estimate.estimator import Estimator
from tunerplugin.hw.estimate.split import Split, parts, splits
from tunerplugin.hw.estimate.systolic import gemm_cycles
from tunerplugin.hw.estimate.technology import technology
from tunerplugin.hw.estimate.traffic import gemm_traffic
from tunerplugin.hw.estimate.vector import CYCLES, cycles_per_element
from tunerplugin.hw.graph.functions import FUNCTIONS, Primitive
from tunerplugin.hw.graph.operator import Gemm, Kind, Operator, Phase
from tunerplugin.hw.target import chip

#: 2 x 2 arrays; memory and buffer fast enough to stay out of the way
CHIP = replace(
    TINY,
    tensor_cores=4,
    tensor_rows=2,
    tensor_columns=2,
    vector_cores=2,
    vector_lanes=4,
    memory_bytes_s=1e15,
    on_chip_bytes_s=1e15,
)


def product(
    m: int, n: int, k: int, batch: int = 1, dtype: str = "bfloat16", **more: Any
) -> Operator:
    element = 4 if dtype == "float32" else 2
    stated = {
        "read_bytes": batch * m * k * element,
        "weight_bytes": batch * k * n * element,
        "written_bytes": batch * m * n * element,
    }
    return Operator(
        name="product",
        kind=more.pop("kind", Kind.GEMM),
        phase=Phase.FORWARD,
        dtype=dtype,
        inputs=((m, k), (k, n)),
        outputs=((m, n),),
        gemm=Gemm(batch, m, n, k),
        **stated | more,
    )


def elementwise(function: str, elements: int, kind: Kind = Kind.ELEMENTWISE) -> Operator:
    return Operator(
        name=function,
        kind=kind,
        phase=Phase.FORWARD,
        dtype="bfloat16",
        inputs=((elements,),),
        outputs=((elements,),),
        elements=elements,
        function=function,
        read_bytes=2 * elements,
        written_bytes=2 * elements,
    )


def test_a_product_by_hand() -> None:
    cost = Estimator(CHIP).cost(product(2, 2, 2))
    assert (cost.cycles, cost.tensor_cycles, cost.limited_by) == (6, 6, "tensor")
    assert cost.seconds == 6 / 1e9
    assert cost.bytes == 3 * 8
    assert cost.split == Split()


def test_memory_bounds_a_product() -> None:
    slow = replace(CHIP, memory_bytes_s=1e9)  # one byte per cycle
    cost = Estimator(slow).cost(product(2, 2, 2))
    assert (cost.cycles, cost.memory_cycles, cost.limited_by) == (24, 24, "memory")


def test_the_buffer_bounds_a_product() -> None:
    slow = replace(CHIP, on_chip_bytes_s=4e9)  # one byte per cycle and core
    cost = Estimator(slow).cost(product(2, 2, 2))
    assert (cost.on_chip_cycles, cost.limited_by) == (24, "on_chip")


def test_a_core_has_its_share_of_the_buffer_bandwidth() -> None:
    slow = replace(CHIP, on_chip_bytes_s=4e9)
    one, four = (Estimator(slow).cost(product(2, 2, 2, batch=4), cores) for cores in (1, 4))
    assert four.on_chip_cycles == 24 and one.on_chip_cycles == 4 * 24


def test_vector_operators_by_hand() -> None:
    estimator = Estimator(CHIP)
    assert estimator.cost(elementwise("alu", 9)).cycles == 3  # 4 lanes
    assert estimator.cost(elementwise("alu", 9), cores=2).cycles == 2
    assert estimator.cost(elementwise("alu", 9), cores=64).cycles == 2  # the chip has two
    # maximum, subtraction, sum 3; exponential 1; division 10
    assert estimator.cost(elementwise("softmax", 4)).cycles == 14
    slow = Estimator(replace(CHIP, memory_bytes_s=1e9))
    assert slow.cost(elementwise("alu", 9)).limited_by == "memory"
    assert slow.cost(elementwise("alu", 9)).cycles == 36


def test_special_functions_have_whams_cycles() -> None:
    assert (cycles_per_element("divide"), cycles_per_element("tanh")) == (10, 27)
    assert cycles_per_element("sigmoid") == 12  # addition, exponential, division
    assert set(CYCLES) == set(Primitive)
    assert all(cycles_per_element(function) > 0 for function in FUNCTIONS)


def test_moving_only_takes_memory_time() -> None:
    copy = replace(elementwise("move", 100), kind=Kind.COPY, function="", elements=0)
    cost = Estimator(replace(CHIP, memory_bytes_s=1e9)).cost(copy)
    assert (cost.cycles, cost.vector_cycles, cost.tensor_cycles) == (400, 0, 0)
    assert cost.limited_by == "memory"


def test_a_fused_group_takes_the_longer_of_its_cores() -> None:
    estimator = Estimator(CHIP)
    relu, tanh = elementwise("alu", 4), elementwise("tanh", 4)
    assert estimator.cost(product(2, 2, 2, fused=(relu,))).cycles == 6
    cost = estimator.cost(product(2, 2, 2, fused=(relu, tanh)))
    assert (cost.tensor_cycles, cost.vector_cycles, cost.cycles) == (6, 28, 28)
    assert cost.limited_by == "vector"


def test_wider_operands_take_more_passes() -> None:
    estimator = Estimator(CHIP)
    narrow, wide = (estimator.cost(product(8, 8, 8, dtype=d)) for d in ("bfloat16", "float32"))
    assert wide.tensor_cycles == 2 * narrow.tensor_cycles
    assert wide.bytes == 2 * narrow.bytes


@pytest.mark.parametrize("mode", ["serial", "drain-once", "pipelined"])
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_one_core_takes_the_cycles_of_the_array(mode: str, dataflow: str) -> None:
    design = replace(CHIP, dataflow=dataflow)
    expected = gemm_cycles(13, 7, 9, rows=2, columns=2, dataflow=dataflow, mode=mode, batch=3)
    assert Estimator(design, mode=mode).cost(product(13, 7, 9, batch=3)).cycles == int(expected)


def test_the_best_split_is_found() -> None:
    estimator = Estimator(CHIP)
    assert estimator.cost(product(2, 2, 64, batch=4), 4).split == Split(batch=4)
    assert estimator.cost(product(2, 64, 2), 4).split == Split(n=4)
    # every way by brute force, with the largest part's cycles from the array model
    operator = product(37, 10, 4, batch=3)
    best = min(
        int(gemm_cycles(-(-37 // m), -(-10 // n), 4, rows=2, columns=2, batch=-(-3 // b)))
        for b in range(1, 5)
        for m in range(1, 5)
        for n in range(1, 5)
        if b * m * n <= 4
    )
    assert estimator.cost(operator, 4).cycles == best


def test_ways_to_split() -> None:
    assert parts(20) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    every = {(b, m, n) for b in range(1, 9) for m in range(1, 9) for n in range(1, 9)}
    assert {tuple(way) for way in splits(8).tolist()} == {w for w in every if np.prod(w) <= 8}
    assert np.all(np.diff(splits(100).prod(axis=1)) >= 0)


def test_traffic_by_hand() -> None:
    # 4 x 4 x 4 of 2-byte words: 32 bytes each
    def moved(buffer: int) -> float:
        return float(gemm_traffic(4, 4, 1, 32, 32, 32, buffer))

    assert moved(1 << 20) == 96  # everything once
    assert moved(64) == 96  # half of it holds an operand whole
    assert moved(32) == 32 * 2 + 32 + 32  # two panels of one operand, the other read twice
    # half of it holds no panel (8 bytes), but one accumulator
    assert moved(8) == 32 * 4 + 32 * 4 + 32
    # 64 x 64 x 4096: half of 128 KiB holds all 16 KiB of accumulators
    long = 64 * 4096 * 2
    assert float(gemm_traffic(64, 64, 1, long, long, 8192, 1 << 17)) == 2 * long + 8192
    # a quarter of them at a time: two columns and two rows of tiles
    assert float(gemm_traffic(64, 64, 1, long, long, 8192, 1 << 13)) == 4 * long + 8192


def test_convolutions_count_their_true_input() -> None:
    # 3 x 3 on 8 x 8 x 4 channels: the im2col matrix is 9 times the input
    conv = product(64, 8, 36, kind=Kind.CONV, read_bytes=8 * 8 * 4 * 2)
    cost = Estimator(CHIP).cost(conv)
    assert cost.bytes == 512 + 36 * 8 * 2 + 64 * 8 * 2
    assert cost.bytes == conv.total_bytes


def test_energy_by_hand() -> None:
    tech = replace(
        technology("7nm-macro"),
        mac_pj=1.0,
        vector_op_pj=100.0,
        sram_pj_per_byte=0.0,
        memory_pj_per_byte=1e4,
    )
    cost = Estimator(CHIP, tech).cost(product(2, 2, 2, fused=(elementwise("divide", 4),)))
    assert cost.energy_j == pytest.approx((8 * 1 + 4 * 10 * 100 + 24 * 1e4) * 1e-12)
    buffered = Estimator(CHIP, replace(tech, sram_pj_per_byte=1.0)).cost(product(2, 2, 2))
    # 24 bytes enter or leave the buffer on the side of the memory and again on that of the core
    assert buffered.energy_j == pytest.approx((8 + 24e4 + 48) * 1e-12)


def test_equal_operators_are_costed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = Estimator(CHIP)
    evaluated: list[int] = []
    evaluate = estimator._evaluate
    monkeypatch.setattr(
        estimator, "_evaluate", lambda ops, c: evaluated.append(len(ops)) or evaluate(ops, c)
    )
    layers = [replace(product(3, 3, 3), name=str(i), layer=f"layer.{i}") for i in range(12)]
    first = estimator.cost(layers[0])
    assert all(estimator.cost(layer) is first for layer in layers)
    costs = estimator.costs([*layers, product(5, 5, 5)], (1, 2))
    assert evaluated == [1, 2]
    assert len(costs) == 13 and costs.at(11, 0) == first


def test_many_at_once_are_each_alone() -> None:
    operators = [
        product(37, 10, 4, batch=3),
        elementwise("gelu", 1000),
        product(64, 64, 64, fused=(elementwise("alu", 4096),)),
        replace(elementwise("move", 10), kind=Kind.EMBEDDING),
        product(1, 500, 20, dtype="float32"),
    ]
    counts = (1, 2, 3, 4, 9)
    costs = Estimator(chip("tpu-v2"), "7nm-cache").costs(operators, counts)
    alone = Estimator(chip("tpu-v2"), "7nm-cache")
    for row, (operator, found) in enumerate(zip(operators, costs, strict=True)):
        for column, count in enumerate(counts):
            assert found[column] == alone.cost(operator, count)
            assert costs.seconds[row, column] == found[column].seconds
            assert LIMITS[costs.limited_by[row, column]] == found[column].limited_by
    assert len(alone.costs([], (1,))) == 0


def test_bad_requests_are_named() -> None:
    with pytest.raises(InputError, match="expected core counts of at least 1, got"):
        Estimator(CHIP).cost(product(2, 2, 2), 0)
    with pytest.raises(InputError, match="expected core counts of at least 1, got"):
        Estimator(CHIP).costs([product(2, 2, 2)], ())
    with pytest.raises(InputError, match="expected a mode of"):
        Estimator(CHIP, mode="fast")
    with pytest.raises(
        InputError, match="technology of 7nm-cache, 7nm-macro, wham-45nm, got '3nm'"
    ):
        Estimator(CHIP, "3nm")


def test_a_chip_reaches_its_peak_on_a_large_product() -> None:
    for name in ("tpu-v2", "a100", "h100", "mi300x", "gaudi2"):
        design = chip(name)
        operator = product(4096, 4096, 4096)
        seconds = Estimator(design).cost(operator, design.tensor_cores).seconds
        assert 0.9 < operator.flops / seconds / design.peak_flops <= 1


size = st.integers(1, 600)
products = st.builds(product, m=size, n=size, k=size, batch=st.integers(1, 12))
kib = st.integers(1, 1 << 14)


@settings(deadline=None, max_examples=60)
@given(operator=products, mode=st.sampled_from(["serial", "pipelined"]), bandwidth=st.floats(9, 13))
def test_more_cores_are_never_slower(operator: Operator, mode: str, bandwidth: float) -> None:
    design = replace(TINY, tensor_cores=24, on_chip_bytes_s=10**bandwidth)
    counts = tuple(range(1, 25))
    cycles = Estimator(design, mode=mode).costs([operator], counts).cycles[0]
    assert np.all(np.diff(cycles) <= 0)


@settings(deadline=None)
@given(operator=products, smaller=kib, larger=kib)
def test_a_larger_buffer_moves_no_more_bytes(operator: Operator, smaller: int, larger: int) -> None:
    smaller, larger = sorted((smaller, larger))
    few, many = (
        Estimator(replace(TINY, shared_buffer_bytes=kib * 64)).cost(operator).bytes
        for kib in (smaller, larger)
    )
    assert many <= few
    assert many >= operator.total_bytes
    huge = Estimator(replace(TINY, shared_buffer_bytes=1 << 33)).cost(operator)
    assert huge.bytes == operator.total_bytes


@settings(deadline=None, max_examples=40)
@given(operator=products, lanes=st.integers(1, 64), cores=st.integers(1, 8))
def test_time_is_the_longest_part(operator: Operator, lanes: int, cores: int) -> None:
    fused = replace(operator, fused=(elementwise("gelu", operator.outputs[0][0] * 7),))
    cost = Estimator(replace(TINY, vector_lanes=lanes, tensor_cores=8)).cost(fused, cores)
    longest = max(cost.tensor_cycles, cost.on_chip_cycles, cost.vector_cycles, cost.memory_cycles)
    assert cost.cycles == longest == getattr(cost, f"{cost.limited_by}_cycles")
    assert cost.split.cores <= cores
