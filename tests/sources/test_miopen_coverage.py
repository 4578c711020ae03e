"""Recorded tuples lie in the spaces."""

from __future__ import annotations

import lzma
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tunerplugin.sources.miopen import (
    SOLVERS,
    PerfRecord,
    coverage,
    parse_key,
    read_records,
    training_steps,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "miopen"
KEY = "256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"


def test_coverage_counts() -> None:
    problem = parse_key(KEY)
    records = [
        PerfRecord("gfx906_60", problem, "ConvAsm1x1U", values, "a")
        for values in ((1, 32, 2, 64, 1, 1, 1, 2), (1, 4, 2, 64, 1, 1, 1, 2), (5,) * 8)
    ]
    records.append(PerfRecord("gfx906_60", problem, "ConvAsm3x3U", (0, 1, 1), "a"))
    full, searched = coverage(records), coverage(records, full=False)
    assert full["ConvAsm1x1U", "a"].total == 3
    assert full["ConvAsm1x1U", "a"].held == 2
    assert searched["ConvAsm1x1U", "a"].held == 1
    assert searched["ConvAsm1x1U", "a"].share == pytest.approx(1 / 3)
    assert full["ConvAsm3x3U", "a"].unsuitable == 1
    assert full["ConvAsm3x3U", "a"].share == 0


@pytest.mark.skipif(not DATA.is_dir(), reason="the measurements of ../shared/data are not here")
def test_what_was_recorded_is_legal(tmp_path: Path) -> None:
    """On a sample.

    Outside lie tuples tuned under older rules (on gfx803 mostly), and a few of searches that failed
    and of tiles that MIOpen corrects, under the OpenCL solvers.  A few problems MIOpen has
    refused since (tensors of 2 GiB, a stride of four).
    """
    path = tmp_path / "sample.tsv"
    with lzma.open(DATA / "perf.tsv.xz", "rt") as file:
        header = file.readline()
        path.write_text(header + "".join(islice(file, 0, None, 149)))
    held: Counter[str] = Counter()
    total: Counter[str] = Counter()
    unsuitable = 0
    for (solver, source), count in coverage(read_records(path)).items():
        age = "gfx803" if source.startswith("gfx803") else "later"
        held[age] += count.held
        total[age] += count.total
        unsuitable += count.unsuitable
        if age == "later" and not solver.startswith("ConvOcl"):
            assert count.held == count.total - count.unsuitable, (solver, source)
    assert unsuitable <= 0.001 * total.total()
    assert total["later"] > 2000
    assert held["later"] >= 0.998 * total["later"]
    assert held["gfx803"] >= 0.97 * total["gfx803"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the measurements of ../shared/data are not here")
def test_recorded_tuples_can_be_told_as_steps() -> None:
    """Every tuple of a real database, for every solver in it."""
    solvers = set()
    for r in read_records(DATA / "gfx90a68.db.xz"):
        steps = training_steps(r.problem, r.solver, r.values, full=True, device=r.device)
        assert tuple(step.value for step in steps) == r.values
        solvers.add(r.solver)
    assert solvers == set(SOLVERS)
