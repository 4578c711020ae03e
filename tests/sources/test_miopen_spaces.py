"""The solvers' spaces against their validity tests told again, and against the contract."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.sources import miopen_rules as said_again
from tests.sources.miopen_cases import numbers
from tunerplugin.errors import EmptySpaceError, InputError, SpaceError
from tunerplugin.search import BeamSearch, Explored, UniformScorer
from tunerplugin.sources.miopen import (
    SOLVERS,
    ConvProblem,
    Rule,
    RuledSpace,
    describe,
    parse_key,
    solvers_for,
    space_of,
    training_steps,
)
from tunerplugin.space import Prefix

POINTWISE = [
    parse_key("256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"),
    parse_key("60-14-14-1x1-240-14-14-128-0x0-1x1-1x1-0-NCHW-FP32-B"),
    parse_key("30-7-7-1x1-80-7-7-4-0x0-1x1-1x1-0-NCHW-FP16-B"),
    parse_key("192-17-17-1x1-96-17-17-2-0x0-1x1-1x1-0-NCHW-FP16-F"),
    parse_key("10-3-3-1x1-24-3-3-1-0x0-1x1-1x1-0-NCHW-FP32-F"),
    parse_key("64-2-2-1x1-64-2-2-16-0x0-1x1-1x1-0-NCHW-FP16-F"),
    parse_key("7-28-28-1x1-12-28-28-5-0x0-1x1-1x1-0-NCHW-FP32-B"),
]


@cache
def searched_tuples(problem: ConvProblem) -> tuple[Prefix, ...]:
    """Brute force over ConvAsm1x1U."""
    tuples = list(itertools.product(*SOLVERS["ConvAsm1x1U"].searched))
    assert len(tuples) == 41_472
    return tuple(values for values in tuples if said_again.asm1x1u(problem, values))


@pytest.mark.parametrize("problem", POINTWISE, ids=str)
def test_asm1x1u_is_the_filtered_product_without_dead_ends(problem: ConvProblem) -> None:
    space = space_of("ConvAsm1x1U", problem)
    legal = searched_tuples(problem)
    assert list(space.enumerate()) == list(legal)
    reached = 0
    pending: list[Prefix] = [()] if legal else []
    while pending:
        prefix = pending.pop()
        reached += len(prefix) == 8
        if len(prefix) < 8:
            more = space.legal_values(prefix)
            assert more, f"dead end at {prefix}"
            pending += [(*prefix, value) for value in more]
    assert reached == len(legal)


@pytest.mark.parametrize("problem", POINTWISE[:4], ids=str)
def test_beam_search_finds_all_of_asm1x1u(problem: ConvProblem) -> None:
    space, legal = space_of("ConvAsm1x1U", problem), searched_tuples(problem)
    assert 0 < len(legal) < 41_472 / 4
    words = describe(problem, "gfx906_60")
    beam = BeamSearch(words, space, UniformScorer(), Explored(space))
    found = [c.values for c in beam.search(len(legal), np.random.default_rng(0))]
    assert len(found) == len(legal)
    assert set(found) == set(legal)
    assert beam.report.dead_ends == 0


def test_an_impossible_problem_says_which_rules_refused() -> None:
    problem = replace(POINTWISE[0], k=4)  # k_mult is 8 at least
    space = space_of("ConvAsm1x1U", problem)
    assert list(space.enumerate()) == []
    beam = BeamSearch(describe(problem, "gfx906_60"), space, UniformScorer(), Explored(space))
    with pytest.raises(EmptySpaceError, match="refused"):
        beam.search(1, np.random.default_rng(0))


SECOND = parse_key("24-6-6-1x1-96-6-6-16-0x0-1x1-1x1-0-NCHW-FP16-F")
FIRST = parse_key("64-14-14-1x1-128-14-14-16-0x0-1x1-1x1-0-NCHW-FP32-F")


def test_direct_1x1_speaks_two_languages() -> None:
    """Counted from the loops of the exhaustive search."""
    first = list(space_of("ConvOclDirectFwd1x1", FIRST).enumerate())
    assert len(first) == 3 * 3 * 4
    assert {values[4] for values in first} == {1}
    second = list(space_of("ConvOclDirectFwd1x1", SECOND).enumerate())
    # three groups, (pixels, outputs) without (4, 32), two counts of inputs
    assert len(second) == 3 * (3 * 4 - 1) * 2
    assert {values[4] for values in second} == {0}
    odd = replace(SECOND, h=7, w=7)
    assert {v[5] for v in space_of("ConvOclDirectFwd1x1", odd).enumerate()} == {1}


def test_direct_1x1_full_ranges_hold_the_default() -> None:
    full = space_of("ConvOclDirectFwd1x1", FIRST, full=True)
    assert full.contains((8, 8, 16, 16, 1, 0, 32, 128, 1))
    assert not full.contains((8, 8, 16, 16, 1, 0, 32, 64, 1))
    assert full.contains((1, 64, 1, 1, 1, 4, 16, 2048, 0))


def test_searched_direct_fwd_leaves_out_what_the_output_cannot_fill() -> None:
    small = parse_key("4-5-40-3x3-2-5-40-1-1x1-1x1-1x1-0-NCHW-FP32-F")
    tuples = [numbers(v) for v in space_of("ConvOclDirectFwd", small).enumerate()]
    assert {v[2] for v in tuples} == {8}  # 16 is no less than twice five
    assert {v[3] for v in tuples} == {16, 32}
    assert {v[6] for v in tuples} == {1, 2}
    assert {v[8] for v in tuples} == {1}
    assert all(v[4] * v[5] * v[6] * v[8] < 128 for v in tuples)
    assert set(tuples) <= {
        numbers(v) for v in space_of("ConvOclDirectFwd", small, True).enumerate()
    }


def test_workspace_refuses_the_whole_problem() -> None:
    key = "2048-64-64-5x5-2048-64-64-1024-2x2-1x1-1x1-0-NCHW-FP32-W"
    assert list(space_of("ConvOclBwdWrW2<1>", parse_key(key)).enumerate()) == []
    assert not space_of("ConvOclBwdWrW2<1>", parse_key(key)).contains((1, 6, 1, 1, 5))


def test_counts_of_searched_ranges() -> None:
    """Numbers that the source or its readers state."""
    sizes = {
        name: math.prod(map(len, solver.searched))
        for name, solver in SOLVERS.items()
        if name != "ConvOclDirectFwd1x1"
    }
    assert sizes["ConvAsm1x1U"] == 41_472
    assert sizes["ConvAsm3x3U"] == 640
    assert sizes["ConvAsmBwdWrW3x3"] * 10 == 20_480
    assert sizes["ConvOclBwdWrW2<4>"] == 1_134
    assert sizes["ConvHipImplicitGemmV4R1Fwd"] == 27_648
    assert sizes["ConvHipImplicitGemmV4R4Fwd"] == 324
    assert math.prod(map(len, SOLVERS["ConvAsm1x1U"].full)) == 6_193_152
    assert math.prod(map(len, SOLVERS["ConvAsmBwdWrW1x1"].full)) == 3_000_000


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("ConvAsm1x1U", "4-8-8-1x1-4-10-10-1-1x1-1x1-1x1-0-NCHW-FP32-F", "padding of 0"),
        ("ConvAsm1x1UV2", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F", "strides"),
        ("ConvAsm3x3U", "4-8-8-3x3-4-4-4-1-1x1-2x2-1x1-0-NCHW-FP32-F", "strides"),
        ("ConvAsm3x3U", "3-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-F", "in fours per group"),
        ("ConvAsmBwdWrW3x3", "4-6-6-3x3-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-W", "padding of 1"),
        ("ConvOclDirectFwd", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F", "a filter of 3x3"),
        ("ConvOclDirectFwd", "4-9-9-3x3-4-5-5-1-0x0-1x1-2x2-0-NCHW-FP32-F", "no dilation"),
        ("ConvOclBwdWrW2<1>", "4-8-8-3x3-4-8-8-1-1x1-1x1-1x1-0-NCHW-FP32-W", "other than"),
        ("ConvOclBwdWrW2<2>", "4-8-8-5x5-4-8-8-1-2x2-1x1-1x1-0-NCHW-FP32-W", "batch of at least 2"),
        (
            "ConvHipImplicitGemmV4R1Fwd",
            "16-8-8-1x1-16-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F",
            "images in eights",
        ),
        (
            "ConvHipImplicitGemmV4R4Fwd",
            "64-512-512-3x3-64-512-512-64-1x1-1x1-1x1-0-NCHW-FP32-F",
            "below 2 GiB",
        ),
        ("ConvAsm3x3U", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F", "filter"),
        ("ConvAsm1x1U", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-W", "direction"),
        ("ConvAsm1x1U", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-BF16-F", "data type"),
        ("ConvAsm1x1U", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F_g2", "group"),
        ("ConvAsm1x1U", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NHWC-FP32-F", "layout"),
        ("ConvNone", "4-8-8-1x1-4-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F", "solver among"),
    ],
)
def test_unsuitable_problems_are_refused_in_a_sentence(name: str, key: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        space_of(name, parse_key(key))


def test_solvers_of_a_device() -> None:
    """Assembly is for GCN and CDNA; a GPU that nobody recorded gets what runs anywhere."""
    pointwise = parse_key("64-28-28-1x1-64-28-28-32-0x0-1x1-1x1-0-NCHW-FP32-F")
    gemms = ["ConvHipImplicitGemmV4R1Fwd", "ConvHipImplicitGemmV4R4Fwd"]
    assert solvers_for(pointwise, "gfx906_60") == ["ConvAsm1x1U", "ConvOclDirectFwd1x1", *gemms]
    assert solvers_for(pointwise, "gfx1030_36") == gemms
    assert solvers_for(pointwise) == solvers_for(pointwise, "gfx906_60")
    assert solvers_for(pointwise, "gfx1201_64") == []
    square = parse_key("64-28-28-3x3-64-28-28-32-1x1-1x1-1x1-0-NCHW-FP32-F")
    assert solvers_for(square, "gfx942_304") == ["ConvOclDirectFwd", *gemms]
    assert solvers_for(square, "gfx1201_64") == ["ConvOclDirectFwd"]
    with pytest.raises(InputError, match="expected an instruction set gfx8 or gfx9.., got gfx1030"):
        space_of("ConvAsm1x1U", pointwise, device="gfx1030_36")


def test_training_steps_tell_the_decisions() -> None:
    steps = training_steps(POINTWISE[0], "ConvAsm1x1U", (1, 32, 2, 64, 1, 1, 1, 2))
    assert [step.knob.name for step in steps] == list(SOLVERS["ConvAsm1x1U"].fields)
    assert [step.value for step in steps] == [1, 32, 2, 64, 1, 1, 1, 2]
    assert steps[0].legal == (1, 2, 3, 4)
    assert ("solver", "ConvAsm1x1U") in steps[0].knob.words
    with pytest.raises(SpaceError):
        training_steps(POINTWISE[0], "ConvAsm1x1U", (4, 32, 2, 64, 1, 1, 1, 2))


def test_a_rule_over_a_missing_field_is_refused() -> None:
    with pytest.raises(SpaceError, match="fields among"):
        RuledSpace(["a"], [(1, 2)], [Rule("no", ("b",), lambda b: True)])
