"""The roofline against the paper's own numbers (arXiv 2403.17607, its roofline section)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import ScheduleError, TargetError
from tunerplugin.schedules.fused_mlp import MLP
from tunerplugin.schedules.fused_mlp.devices import (
    DG2,
    GFX90A,
    GFX942,
    GFX1100,
    GFX1201,
    H100,
    PVC,
    Device,
    cpu_device,
    measure_host,
)
from tunerplugin.schedules.fused_mlp.roofline import decide, estimate
from tunerplugin.schedules.fused_mlp.traffic import Phase, Plan, global_bytes

BATCH = 1 << 17


def sycl(matrices: int, phase: Phase = "inference", width: int = 64) -> Plan:
    """The paper's plan: work-groups of 64 sub-groups with 8 rows each; ``matrices`` is its n,
    which counts activations, so that there are n - 1 layers."""
    mlp = MLP.uniform(width, matrices - 1, dtype="bfloat16")
    return Plan(mlp, BATCH, rows=512, rows_per_sub_group=8, phase=phase)


def cuda(matrices: int, phase: Phase = "inference") -> Plan:
    """tiny-cuda-nn: 128 rows per block of four warps, activations in shared memory."""
    return replace(sycl(matrices, phase), rows=128, rows_per_sub_group=32, activations="shared")


def terms(n: int) -> dict[str, float]:
    """The paper's formulas, in flop per byte of global memory."""
    return {
        "inference SYCL": 512 * (n - 1) / (16 + (n - 1)),
        "inference CUDA": 128 * (n - 1) / (4 + (n - 1)),
        "forward SYCL": 512 * (n - 1) / (9 * n + 7),
        "forward CUDA": 128 * (n - 1) / (3 * n + 1),
    }


@pytest.mark.parametrize("n", [2, 3, 6, 13])
def test_formulas_hold_for_every_depth(n: int) -> None:
    plans = {
        "inference SYCL": sycl(n),
        "inference CUDA": cuda(n),
        "forward SYCL": sycl(n, "forward"),
        "forward CUDA": cuda(n, "forward"),
    }
    for name, intensity in terms(n).items():
        assert estimate(plans[name], PVC).intensity == pytest.approx(intensity), name


# The paper's text gives about 49 flop/B and 98 Tflop/s for the forward pass in training; its own
# formula gives 512 * 5 / 61 = 42.0 and 84, which is what is held here.
@pytest.mark.parametrize(
    ("plan", "device", "intensity", "tflops"),
    [
        (sycl(6), PVC, 121.9, 243.8),
        (cuda(6), H100, 71.1, 142.2),
        (sycl(6, "forward"), PVC, 42.0, 83.9),
        (cuda(6, "forward"), H100, 33.7, 67.4),
    ],
)
def test_four_hidden_layers(plan: Plan, device: Device, intensity: float, tflops: float) -> None:
    roofline = estimate(plan, device)
    assert roofline.intensity == pytest.approx(intensity, abs=0.05)
    assert roofline.bound / 1e12 == pytest.approx(tflops, abs=0.1)
    assert roofline.limit == "global memory"


@pytest.mark.parametrize(("plan", "intensity"), [(sycl(2), 512.0), (cuda(2), 128.0)])
def test_weights_alone_bound_one_layer(plan: Plan, intensity: float) -> None:
    weights = plan.groups * plan.weights * 2  # bytes
    assert plan.mlp.flops(BATCH) / weights == intensity


@pytest.mark.parametrize("n", [2, 6, 13])
def test_unfused_stays_below_32(n: int) -> None:
    intensity = estimate(replace(sycl(n), fused=False), PVC).intensity
    assert intensity <= 32
    assert intensity == pytest.approx(32, rel=1e-3)


def test_shared_memory() -> None:
    assert estimate(sycl(6), PVC).shared_intensity == pytest.approx(7.877, abs=5e-4)
    assert estimate(cuda(6), H100).shared_intensity == pytest.approx(25.6)
    # 16-bit weights: 1 write per work-group and 64 reads, 5 layers of 64 x 64.
    assert estimate(sycl(6), PVC).shared_accesses == 5 * 64 * 64 * 65 * (BATCH // 512)


def test_shared_memory_caps_deep_networks_at_393_tflops() -> None:
    assert estimate(sycl(6), PVC).limit == "global memory"
    assert estimate(sycl(10), PVC).limit == "global memory"
    deep = estimate(sycl(12), PVC)
    assert deep.limit == "shared memory"
    assert deep.bound / 1e12 == pytest.approx(393, abs=0.1)


@pytest.mark.parametrize(
    ("width", "needed", "fits_small"),
    [(64, 3584, True), (96, 5120, True), (128, 6656, False)],
)
def test_registers(width: int, needed: int, fits_small: bool) -> None:
    small, large = PVC.register_modes
    assert (small.bytes_per_sub_group, large.bytes_per_sub_group) == (8192, 16384)
    assert estimate(sycl(6, width=width), PVC, small).registers == needed
    assert estimate(sycl(6, width=width), PVC, small).fits == fits_small
    assert estimate(sycl(6, width=width), PVC, large).fits


def test_occupancy_falls_below_2_to_the_16_rows() -> None:
    full = estimate(replace(sycl(6), batch=1 << 16), PVC)
    half = estimate(replace(sycl(6), batch=1 << 15), PVC)
    assert (full.occupancy, half.occupancy) == (1.0, 0.5)
    assert half.seconds == pytest.approx(full.seconds)  # half the rows, half the device


def test_training_bytes_by_hand() -> None:
    """Widths 8 -> 16 -> 4, 32 rows in two groups of 16, float16; see the formulas' docstrings."""
    mlp = MLP.of((8, 16, 4), dtype="float16")
    plan = Plan(mlp, 32, rows=16, rows_per_sub_group=16)
    weights = 8 * 16 + 16 * 4  # 192
    forward = 2 * 32 * (8 + 4 + 8 + 16) + 2 * 2 * weights
    backward = 2 * 32 * (4 + 2 * (16 + 4) + 8) + 2 * 2 * weights
    gradients = 2 * 32 * (8 + 16 + 16 + 4) + 2 * weights
    for phase, expected in [
        ("forward", forward),
        ("backward_data", backward),
        ("weight_gradients", gradients),
        ("training", forward + backward + gradients),
    ]:
        assert global_bytes(replace(plan, phase=phase)) == expected, phase
    partial_sums = weights * (2 * 4 * 2 + 2)
    assert (
        global_bytes(replace(plan, phase="weight_gradients", fused_gradients=True)) == partial_sums
    )
    # No layer's gradient is stored (16 + 4), the input is read again (8).
    fused = replace(plan, phase="training", fused_gradients=True)
    assert global_bytes(fused) == forward + backward + partial_sums - 2 * 32 * (16 + 4 - 8)
    assert estimate(fused, PVC).flops == 3 * mlp.flops(32)
    unfused = replace(plan, fused=False)
    assert global_bytes(unfused) == 2 * 32 * (8 + 2 * 16 + 4) + 2 * weights
    assert global_bytes(replace(unfused, phase="backward_data")) == (
        2 * 32 * (3 * 4 + (16 + 4) + 2 * 16 + 8) + 2 * weights
    )


def test_fused_weight_gradients_halve_the_traffic_at_the_papers_shape() -> None:
    """The paper expects up to 2x of them, with few, long-lived work-groups."""
    plan = replace(sycl(6, "training"), batch=1 << 20, rows=8192)
    separate = global_bytes(plan)
    fused = global_bytes(replace(plan, fused_gradients=True))
    assert 1.5 < separate / fused < 2.0


def test_padding_costs_time_and_is_no_useful_work() -> None:
    odd = estimate(replace(sycl(2), mlp=MLP.of((64, 1), dtype="bfloat16")), PVC)
    even = estimate(replace(sycl(2), mlp=MLP.of((64, 16), dtype="bfloat16")), PVC)
    assert odd.flops * 16 == even.flops
    assert odd.registers == even.registers


def test_decisions_of_the_paper() -> None:
    decision = decide(MLP.uniform(64, 5, dtype="bfloat16"), BATCH, PVC)
    assert decision.fused and decision.staged
    assert decision.rows_per_group == 512
    assert decision.rows_per_sub_group == 8
    assert decision.register_mode == "128 GRF"
    assert decision.reason.startswith("fused: 121.9 flop/B against 32.0 unfused")
    assert "\n" not in decision.reason
    wide = decide(MLP.uniform(128, 5, dtype="bfloat16"), BATCH, PVC)
    assert wide.register_mode == "256 GRF"


def test_small_batches_take_fewer_rows_to_fill_the_device() -> None:
    decision = decide(MLP.uniform(64, 5, dtype="bfloat16"), 1 << 14, PVC)
    assert decision.rows_per_sub_group < 8


def test_one_wide_layer_is_better_left_alone() -> None:
    """Nothing is saved between layers, and 256 KiB of float32 weights do not fit shared memory."""
    decision = decide(MLP.uniform(256, 1), BATCH, PVC)
    assert not decision.fused
    assert decision.reason.startswith("unfused: ")
    assert decision.rejected is not None and decision.rejected.elapsed > decision.chosen.elapsed


def test_what_fits_nowhere_says_so() -> None:
    tiny = replace(PVC, register_modes=(replace(PVC.register_modes[0], bytes_per_sub_group=512),))
    decision = decide(MLP.uniform(64, 3, dtype="float16"), BATCH, tiny)
    assert not decision.fused and decision.rejected is None
    assert "more than 75% of 512" in decision.reason


DEVICES: list[Device] = [PVC, DG2, H100, GFX90A, GFX942, GFX1100, GFX1201, cpu_device(2)]


@settings(deadline=None, max_examples=50)
@given(
    widths=st.lists(st.integers(1, 256), min_size=2, max_size=6),
    batch=st.integers(1, 1 << 20),
    device=st.sampled_from(DEVICES),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_decisions_fit_and_are_the_faster(
    widths: list[int], batch: int, device: Device, dtype: str
) -> None:
    decision = decide(MLP.of(widths, dtype=dtype), batch, device)  # type: ignore[arg-type]
    chosen, rejected = decision.chosen, decision.rejected
    assert not decision.fused or chosen.fits
    assert rejected is None or chosen.elapsed <= rejected.elapsed * (1 + 1e-6)
    assert chosen.bound <= device.peak(dtype) * (1 + 1e-9)
    assert chosen.occupancy <= 1


def test_unstaged_weights_come_through_the_cache() -> None:
    plan = replace(sycl(6), staged=False)
    roofline = estimate(plan, PVC)
    assert roofline.limit == "cache"
    # Every sub-group of 8 rows reads all weights: 2 * 8 / 2 flop per byte.
    assert roofline.bound == pytest.approx(8 * PVC.l2_bandwidth)
    assert roofline.global_bytes == BATCH * 2 * 128 + 2 * plan.weights
    assert roofline.shared_bytes == roofline.shared_capacity == 0
    assert estimate(plan, replace(PVC, l2_bytes=1024)).limit == "global memory"


def test_launches_decide_for_small_batches() -> None:
    decision = decide(MLP.uniform(64, 5, dtype="float16"), 4096, DG2)
    assert decision.fused and decision.rejected is not None
    assert decision.rejected.seconds < decision.chosen.seconds
    assert decision.chosen.elapsed == decision.chosen.seconds + DG2.launch_seconds
    assert decision.rejected.elapsed == decision.rejected.seconds + 5 * DG2.launch_seconds
    assert decision.reason.endswith("kernels to start: 1 against 5")


def test_launches_of_training() -> None:
    plan = sycl(6, "training")
    assert estimate(plan, PVC).launches == 2 + 5
    assert estimate(replace(plan, fused_gradients=True), PVC).launches == 2
    assert estimate(replace(plan, fused=False), PVC).launches == 15


def test_caches_keep_small_tensors() -> None:
    plan = Plan(MLP.uniform(64, 4), 256, fused=False)
    tensor, weights = 256 * 64 * 4, 4 * 64 * 64 * 4  # bytes
    assert global_bytes(plan) == 8 * tensor + weights
    assert global_bytes(plan, cache_bytes=1 << 20) == 2 * tensor + weights


def test_measured_host_is_plausible() -> None:
    host = measure_host(cores=2, repeats=1)
    assert 1e8 < host.peak("float32") < 1e15
    assert 1e7 < host.bandwidth < 1e14


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch of at least 1"),
        ({"rows": 100, "rows_per_sub_group": 8}, "a multiple of rows_per_sub_group"),
        ({"phase": "sideways"}, "a phase of inference, forward"),
    ],
)
def test_plans_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        replace(sycl(6), **change)


def test_unknown_dtype() -> None:
    with pytest.raises(TargetError, match="a dtype of float16, bfloat16, float32 on Intel Arc"):
        DG2.peak("int8")
