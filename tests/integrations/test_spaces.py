"""Design spaces of TVM as spaces of ours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tunerplugin.integrations.compat import new_schedule, structural_hash
from tunerplugin.integrations.metaschedule.task import IllegalCandidate, TuningTask
from tunerplugin.search import BeamSearch, Explored, UniformScorer
from tunerplugin.space import Prefix

Tasks = Callable[[str, str], TuningTask]


def sample(task: TuningTask, n: int, seed: int = 0) -> list[Prefix]:
    beam = BeamSearch(task.problem, task.space, UniformScorer(), Explored(task.space))
    return [c.values for c in beam.search(n, np.random.default_rng(seed))]


@pytest.mark.parametrize("operator", ["dense", "softmax", "conv2d", "add"])
@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_values_survive_the_way_through_tvm(task: Tasks, operator: str, kind: str) -> None:
    tuning = task(operator, kind)
    for values in sample(tuning, 12):
        schedule = tuning.schedule(values).schedule
        back = tuning.values_of(schedule.trace)
        assert back is not None
        # TVM may move a compute location outwards; the program is the same
        assert tuning.schedule(back).program == structural_hash(schedule.mod)


def test_decisions_reach_the_program(task: Tasks) -> None:
    tuning = task("dense", "llvm")
    space = tuning.sketches[0]
    tile = space.tiles[0]
    for values in sample(tuning, 8):
        if values[0] != 0:
            continue
        factors = [int(values[1 + p]) for p in tile.positions]
        assert np.prod(factors) == tile.extent
        trace = space.to_trace(values[1:])
        decided = trace.decisions[trace.insts[space.facts.tiles[0].instruction]]
        assert [int(f) for f in decided] == factors


def test_all_sampling_instructions_become_knobs(task: Tasks) -> None:
    tuning = task("softmax", "llvm")
    kinds = set()
    for values in sample(tuning, 32):
        prefix: Prefix = ()
        for value in values:
            knob = tuning.space.knob(prefix)
            assert knob is not None
            assert value in knob.domain
            kinds.add(dict(knob.words)["kind"])
            prefix = (*prefix, value)
    assert kinds == {"sketch", "tile", "choice", "location"}


def test_locations_are_those_that_tvm_accepts(task: Tasks) -> None:
    tuning = task("softmax", "llvm")
    space = next(s for s in tuning.sketches if s.facts.locations and not s.facts.tiles)
    first = space.positions[space.facts.locations[0].instruction, 0]
    prefix: Prefix = ()
    while len(prefix) < first:
        prefix = (*prefix, space.legal_values(prefix)[0])
    accepted = []
    inst = space.trace.insts[space.facts.locations[0].instruction]
    for location in range(-2, 8):
        schedule = new_schedule(tuning.mod)
        trace = space.with_factors({}, {space.facts.locations[0].instruction: location})
        trace.apply_to_schedule(schedule, remove_postproc=True)
        index = list(space.trace.insts).index(inst)
        if int(schedule.trace.decisions[schedule.trace.insts[index]]) == location:
            accepted.append(location)
    assert list(space.legal_values(prefix)) == accepted


def test_sketches_differ(task: Tasks) -> None:
    versions = [space.version for space in task("softmax", "llvm").sketches]
    assert len(set(versions)) == len(versions) > 1


def test_foreign_traces_are_not_ours(task: Tasks) -> None:
    ours, other = task("dense", "llvm"), task("softmax", "llvm")
    foreign = other.schedule(sample(other, 1)[0]).schedule.trace
    assert ours.values_of(foreign) is None


def test_tvm_remains_the_last_judge(task: Tasks) -> None:
    """Without our limits most GPU candidates of this workload are refused, by name."""
    tuning = task("conv2d", "cuda")
    space = tuning.sketches[0]
    limits, space.constraints = space.constraints, ()
    try:
        refused = []
        for values in sample(tuning, 40, seed=1):
            try:
                tuning.schedule(values)
            except IllegalCandidate as error:
                refused.append(str(error))
    finally:
        space.constraints = limits
    assert len(refused) > 10
    assert all("VerifyGPUCode" in reason for reason in refused)


def test_problem_words_tell_workloads_apart(task: Tasks) -> None:
    keys = {task(op, kind).problem.key for op in ("dense", "conv2d") for kind in ("llvm", "cuda")}
    assert len(keys) == 4
    words = task("dense", "llvm").problem.words
    assert ("extent.R", 64) in words
    assert ("vector.bits", 256) in words
