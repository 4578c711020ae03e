"""What the nearest known convolutions say, and how it is mixed with the predictor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tunerplugin.errors import RecordError, WeightsError
from tunerplugin.predictor import Predictor
from tunerplugin.search import Candidate, UniformScorer
from tunerplugin.sources.miopen import Chooser, PerfRecord, describe, parse_key, space_of, train
from tunerplugin.sources.miopen.learning import CONSENSUS, by_consensus
from tunerplugin.sources.miopen.memory import (
    FAINT,
    OTHER_UNITS,
    SHARE,
    Memory,
    MemoryScorer,
    Neighbours,
    remember,
)

PROBLEM = parse_key("256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F")
FIRST, SECOND = (1, 16, 4, 64, 1, 1, 4, 1), (1, 16, 2, 64, 1, 1, 4, 1)
THIRD = (2, 16, 2, 64, 1, 1, 4, 1)


def record(values: Iterable[int], device: str = "gfx906_60", **changes: int | str) -> PerfRecord:
    problem = replace(PROBLEM, **changes)  # type: ignore[arg-type]
    return PerfRecord(device, problem, "ConvAsm1x1U", tuple(values), device)


RECORDS = [
    record(FIRST, n=32),
    record(FIRST, "gfx906_64", n=32),
    record(FIRST, n=32),  # the same again
    record(SECOND, n=4),
    record(THIRD, direction="B"),
    record(THIRD, "gfx803_36"),
    record(THIRD, dtype="FP16"),
]


def test_tables_hold_every_record_once() -> None:
    tables = remember(RECORDS)
    assert sorted(tables) == [
        "problems",
        "rows:ConvAsm1x1U:FP16:gfx906_60",
        "rows:ConvAsm1x1U:FP32:gfx803_36",
        "rows:ConvAsm1x1U:FP32:gfx906_60",
        "rows:ConvAsm1x1U:FP32:gfx906_64",
        "tuples:ConvAsm1x1U",
    ]
    assert tables["rows:ConvAsm1x1U:FP32:gfx906_60"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert tables["rows:ConvAsm1x1U:FP32:gfx906_64"].tolist() == [[0, 0]]
    assert tables["tuples:ConvAsm1x1U"].tolist() == [list(t) for t in (FIRST, SECOND, THIRD)]
    assert {table.dtype for table in tables.values()} == {np.dtype(np.int16)}
    large = remember([record(FIRST, n=40_000)])["problems"]
    assert large.dtype == np.int32 and 40_000 in large


def test_nearest_first_by_size_device_and_direction() -> None:
    found = Memory(remember(RECORDS)).nearest(PROBLEM, "ConvAsm1x1U", "gfx906_60")
    assert found is not None
    # n = 32 is 0.8 away, other units 0.2, another instruction set two, n = 4 over three, B sixteen
    assert [tuple(values) for values in found.values] == [FIRST, FIRST, THIRD, SECOND, THIRD]
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[1] / found.weights[0] == pytest.approx(np.exp(-OTHER_UNITS))
    assert list(found.weights) == sorted(found.weights, reverse=True)
    elsewhere = Memory(remember(RECORDS)).nearest(PROBLEM, "ConvAsm1x1U", "gfx803_36")
    assert elsewhere is not None and tuple(elsewhere.values[0]) == THIRD


def test_nothing_known_of_another_solver_or_type() -> None:
    memory = Memory(remember(RECORDS))
    assert memory.nearest(PROBLEM, "ConvOclDirectFwd1x1", "gfx906_60") is None
    assert memory.nearest(replace(PROBLEM, dtype="BF16"), "ConvAsm1x1U", "gfx906_60") is None
    assert Memory({}).nearest(PROBLEM, "ConvAsm1x1U", "gfx906_60") is None


def test_mixture_by_hand() -> None:
    space = space_of("ConvAsm1x1U", PROBLEM, True, "gfx906_60")
    neighbours = Neighbours(np.array([FIRST, THIRD]), np.array([0.75, 0.25]))
    scorer = MemoryScorer(UniformScorer(), neighbours)
    problem = describe(PROBLEM, "gfx906_60")
    state = scorer.start(problem)
    knob = space.knob(())
    assert knob is not None
    (first,) = scorer.score(state, [knob], [(1, 2, 3)])
    share = SHARE / (1 + FAINT)
    mixed = [(1 - share) / 3 + share * part for part in (0.75, 0.25, 0.0)]
    assert np.exp(first) == pytest.approx(mixed)
    # of value 1, three quarters of the weight are left, all at k_mult 16; of value 3, none
    state = scorer.extend(state, [0, 0], [knob, knob], [1, 3])
    knobs = [space.knob((1,)), space.knob((3,))]
    assert knobs[0] is not None and knobs[1] is not None
    agreed, alone = scorer.score(state, [knobs[0], knobs[1]], [(8, 16), (8, 16)])
    share = SHARE * 0.75 / (0.75 + FAINT)
    assert np.exp(agreed) == pytest.approx([(1 - share) / 2, (1 - share) / 2 + share])
    assert alone == pytest.approx([math.log(0.5)] * 2)


def test_learns_and_remembers_through_a_file(tmp_path: Path) -> None:
    trained = train(RECORDS, epochs=1)
    # FP16 packs two elements: reads of two are too long for two chunks
    assert trained.examples == 6
    assert trained.left_out == {"tuple that today's rules refuse": 1}
    trained.predictor.save(tmp_path / "w.safetensors")
    chooser = Chooser(Predictor.load(tmp_path / "w.safetensors"))
    best = chooser.choose(replace(PROBLEM, n=32), "ConvAsm1x1U", "gfx906_60", top=3)
    assert best[0].values == FIRST
    assert len({candidate.values for candidate in best}) == 3
    space = space_of("ConvAsm1x1U", PROBLEM, True, "gfx906_60")
    assert all(space.contains(candidate.values) for candidate in best)


def test_who_asks_for_more_gets_the_same_first() -> None:
    chooser = Chooser(train(RECORDS, epochs=1).predictor)
    ask = ("ConvAsm1x1U", "gfx906_60")
    for n in (1, 7, 48, 300):
        problem = replace(PROBLEM, n=n, k=192, h=14, w=14, ho=14, wo=14)
        few, many = (chooser.choose(problem, *ask, top=top) for top in (10, 40))
        assert many[:10] == few
        assert len({candidate.values for candidate in many}) == 40


def test_consensus_by_hand() -> None:
    assert CONSENSUS == 4
    shares = {(1, 1): 0.36, (2, 3): 0.32, (2, 4): 0.32}
    found = [Candidate(values, math.log(share)) for values, share in shares.items()]
    # expected agreement: 0.36 (with itself), and 0.32 + half of the other's 0.32 = 0.48 each:
    # 4 * 0.12 is more than log(0.36 / 0.32) = 0.118
    assert [candidate.values for candidate in by_consensus(found)] == [(2, 3), (2, 4), (1, 1)]
    likelier = [replace(found[0], log_probability=math.log(0.7)), *found[1:]]
    assert by_consensus(likelier)[0].values == (1, 1)
    assert by_consensus(found[:1]) == found[:1]
    alike = [Candidate((1, 2), math.log(0.34)), Candidate((1, 3), math.log(0.33))]
    odd = Candidate((5, 6), math.log(0.33))
    assert by_consensus([odd, *alike])[-1] == odd


def test_consensus_of_a_long_beam_needs_little_memory() -> None:
    """A table of all pairs would take 20 GB."""
    found = [Candidate((n // 250, n % 250), -math.log(50_000)) for n in range(50_000)]
    assert by_consensus(found)[:2] == found[:2]  # all agree alike: the order stays


def test_bfloat16_has_two_names() -> None:
    answers = []
    for known, asked in (("BF16", "BFP16"), ("BFP16", "BF16")):
        memory = Memory(remember([record(FIRST, dtype=known)]))
        found = memory.nearest(replace(PROBLEM, dtype=asked), "ConvAsm1x1U", "gfx906_60")
        assert found is not None
        answers.append(found.values.tolist())
        assert describe(replace(PROBLEM, dtype=asked), "gfx906").words == (
            describe(replace(PROBLEM, dtype=known), "gfx906").words
        )
    assert answers[0] == answers[1]


def test_the_largest_sizes_have_finite_distances() -> None:
    most = (1 << 31) - 1
    huge = replace(PROBLEM, n=most, c=most, k=most, h=most, w=most, ho=most, wo=most)
    tables = remember([*RECORDS, PerfRecord("gfx906_60", huge, "ConvAsm1x1U", FIRST, "x")])
    found = Memory(tables).nearest(huge, "ConvAsm1x1U", "gfx906_60")
    assert found is not None and np.isfinite(found.weights).all()
    assert found.weights[0] == pytest.approx(1)


def test_tables_of_another_kind_are_refused(tmp_path: Path) -> None:
    predictor = Predictor()
    predictor.tables = {"x": np.zeros(3, dtype=np.float64)}  # type: ignore[dict-item]
    predictor.save(tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match=r"expected int16 or int32 in table\.x"):
        Predictor.load(tmp_path / "w.safetensors")


def test_nothing_to_learn_from() -> None:
    old = PerfRecord("gfx906_60", PROBLEM, "ConvAsm1x1U", (1, 16, 4), "gfx906_60")
    with pytest.raises(RecordError, match="none that today's rules accept"):
        train([old])
