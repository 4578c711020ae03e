"""The GPU space benchmark: its sampler, its judge's memory count, and its rows."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import gpu_spaces
import pytest
from gpu_memory import verified_shared_bytes
from gpu_spaces import Tally, factorizations
from tvm.s_tir.meta_schedule.testing import te_workload

from tunerplugin.integrations.compat import normalize_mod
from tunerplugin.integrations.metaschedule.limits import complete_target
from tunerplugin.integrations.metaschedule.task import TuningTask
from tunerplugin.measure import preload_tensor_intrinsics


@pytest.fixture(scope="module")
def task() -> TuningTask:
    preload_tensor_intrinsics()
    mod = normalize_mod(te_workload.create_te_workload("GMM", 0))
    return TuningTask("GMM", mod, complete_target(gpu_spaces.TARGETS["opencl"]))


@pytest.mark.parametrize("extent", [1, 7, 12, 36])
@pytest.mark.parametrize("ways", [1, 2, 3])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_factorizations_are_all_there_are(extent: int, ways: int, bound: int) -> None:
    expected = {
        factors
        for factors in product(range(1, extent + 1), repeat=ways)
        if prod(factors) == extent and (bound == 0 or factors[-1] <= bound)
    }
    found = factorizations(extent, ways, bound)
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_uniform_draws_factorizations_evenly(task: TuningTask) -> None:
    sketch = task.sketches[0]
    tile = min(sketch.facts.tiles, key=lambda tile: tile.ways)
    positions = [sketch.positions[tile.instruction, level] for level in range(tile.ways)]
    rng = random.Random(0)
    draws = 8000
    counts: Counter[tuple[Any, ...]] = Counter()
    for _ in range(draws):
        index, *values = gpu_spaces.uniform_candidate(task, rng)
        if index == 0:
            counts[tuple(values[p] for p in positions)] += 1
    kinds = factorizations(tile.extent, tile.ways, tile.max_innermost)
    assert set(counts) == set(kinds)
    expected = counts.total() / len(kinds)
    chi_square = sum((counts[kind] - expected) ** 2 / expected for kind in kinds)
    # mean and deviation of chi-square are its degrees of freedom and the root of twice that
    freedom = len(kinds) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_decoding_obeys_what_uniform_breaks(task: TuningTask) -> None:
    ours, uniform = gpu_spaces.run_ours(task, 16, 0), gpu_spaces.run_uniform(task, 40, 0)
    assert (ours.emitted, ours.passed) == (16, 16)
    assert 0 < uniform.passed < uniform.emitted == 40
    assert set(uniform.reasons) == {"refused by VerifyGPUCode"}
    assert uniform.reasons.total() == uniform.emitted - uniform.passed
    assert ours.shared_equal == 16


def test_verified_shared_bytes_of_a_known_tiling(task: TuningTask) -> None:
    """Two 32 x 8 tiles of float32 in shared memory."""
    sketch = task.sketches[0]
    batch, rows, columns, depth = sketch.facts.tiles
    assert batch.extent == 1
    factors = {
        rows.instruction: [rows.extent // 32, 1, 8, 1, 4],
        columns.instruction: [columns.extent // 32, 1, 8, 1, 4],
        depth.instruction: [depth.extent // 8, 1, 8],
    }
    values = task.values_of(sketch.with_factors(factors))
    assert values is not None
    counted = verified_shared_bytes(task.schedule(values).schedule.mod, task.target)
    assert counted == (32 * 8 + 8 * 32) * 4
    assert gpu_spaces.predicted_shared_bytes(task, values) == counted


def test_tally_sums_up() -> None:
    total = Tally()
    total.add(Tally(emitted=4, passed=3, emit_s=1.0, judge_s=2.0, shared_equal=3))
    total.add(Tally(emitted=6, passed=6, emit_s=1.0, judge_s=1.0, setup_s=5.0, shared_equal=3))
    rows = {row.metric: row for row in total.rows("cuda/all", "ours")}
    assert rows["pass_share"].value == 0.9
    assert rows["candidates_per_second"].value == 5.0
    assert rows["legal_per_second"].value == 9 / 5
    assert rows["shared_memory_equal"].value == pytest.approx(6 / 9)
    assert rows["setup_s"].value == 5.0


def test_smallest_run_prints_rows(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, gpu_spaces.__file__, "--quick", "--samples", "4"]
    command += ["--targets", "vulkan", "--operators", "SFM", "--format", "json", "--out", str(out)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    head, *rows = json.loads(out.read_text(encoding="utf-8"))
    assert "gpu_spaces.py" in head["command"]
    assert {row["case"] for row in rows} == {"vulkan/SFM", "vulkan/all"}
    assert {row["method"] for row in rows} == {"ours", "uniform"}
    for row in rows:
        assert set(row) == {"case", "method", "metric", "value", "unit", "low", "high"}
        assert row["low"] <= row["value"] <= row["high"]
    shares = [r["value"] for r in rows if r["metric"] == "pass_share" and r["method"] == "ours"]
    assert shares == [1.0, 1.0]
