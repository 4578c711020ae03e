"""The solvers' spaces against their validity tests told again, and against the contract."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources import miopen_rules as said_again
from tunerplugin.errors import EmptySpaceError, InputError, SpaceError
from tunerplugin.search import BeamSearch, Explored, UniformScorer
from tunerplugin.sources.miopen import (
    SOLVERS,
    ConvProblem,
    Rule,
    RuledSpace,
    Solver,
    describe,
    parse_key,
    space_of,
    training_steps,
)
from tunerplugin.space import Constraint, Prefix, Space, Value
from tunerplugin.testing import ConstraintConformance, SpaceConformance

POINTWISE = [
    parse_key("256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"),
    parse_key("60-14-14-1x1-240-14-14-128-0x0-1x1-1x1-0-NCHW-FP32-B"),
    parse_key("30-7-7-1x1-80-7-7-4-0x0-1x1-1x1-0-NCHW-FP16-B"),
    parse_key("192-17-17-1x1-96-17-17-2-0x0-1x1-1x1-0-NCHW-FP16-F"),
    parse_key("10-3-3-1x1-24-3-3-1-0x0-1x1-1x1-0-NCHW-FP32-F"),
    parse_key("64-2-2-1x1-64-2-2-16-0x0-1x1-1x1-0-NCHW-FP16-F"),
    parse_key("7-28-28-1x1-12-28-28-5-0x0-1x1-1x1-0-NCHW-FP32-B"),
]


def numbers(values: Prefix) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


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


SIZES = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, 16, 28, 30, 32, 56, 64, 80, 96, 192, 256, 2048])
EXTENTS = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 14, 16, 17, 28, 32, 33, 56, 112, 230])


@st.composite
def problems(draw: st.DrawFn, solver: Solver) -> ConvProblem:
    """Problems that a solver can compute."""
    y, x = solver.filter_size or draw(st.sampled_from([(3, 3), (5, 5), (1, 7), (7, 7), (4, 12)]))
    groups = draw(st.sampled_from([1, 1, 2, 4])) if solver.grouped else 1
    stride = draw(st.sampled_from([1, 1, 2]))
    return ConvProblem(
        c=draw(SIZES) * groups,
        h=draw(EXTENTS),
        w=draw(EXTENTS),
        y=y,
        x=x,
        k=draw(SIZES) * groups,
        ho=draw(EXTENTS),
        wo=draw(EXTENTS),
        n=draw(SIZES),
        pad_h=y // 2,
        pad_w=x // 2,
        stride_h=stride,
        stride_w=stride,
        dtype=draw(st.sampled_from(solver.dtypes)),
        direction=draw(st.sampled_from(solver.directions)),
        groups=groups,
    )


def reference(problem: ConvProblem, solver: Solver, isa: str) -> Callable[[tuple[int, ...]], bool]:
    """The validity test of a solver, told again."""
    p, name = problem, solver.name
    if name == "ConvHipImplicitGemmV4R4Fwd":
        gemm = (p.k, p.n * p.ho * p.wo, p.c * p.y * p.x)
    elif name == "ConvHipImplicitGemmV4R4WrW":
        gemm = (p.c, p.k * p.y * p.x, p.n * p.h * p.w)
    else:
        pack = 1 if p.dtype == "FP32" else 2
        gemm = (p.k * p.y * p.x, p.n * p.h * p.w, p.c // pack)
    dot2, gfx9 = isa in ("gfx906", "gfx908"), isa.startswith(("gfx8", "gfx9"))
    p = replace(p, dtype=p.dtype.replace("BFP16", "BF16"))
    tests: dict[str, Callable[[tuple[int, ...]], bool]] = {
        "ConvAsm1x1U": lambda v: said_again.asm1x1u(p, v),
        "ConvAsm1x1UV2": lambda v: said_again.asm1x1uv2(p, v),
        "ConvAsm3x3U": lambda v: said_again.asm3x3u(p, v),
        "ConvAsmBwdWrW1x1": lambda v: said_again.bwd_wrw1x1(p, v, gfx9),
        "ConvAsmBwdWrW3x3": lambda v: said_again.bwd_wrw3x3(p, v, dot2),
        "ConvOclDirectFwd": lambda v: said_again.direct_fwd(p, v),
        "ConvHipImplicitGemmV4R1Fwd": lambda v: said_again.v4r1(p, v),
    }
    if name.startswith("ConvOclBwdWrW2"):
        loops = int(name.partition("<")[2].rstrip(">"))
        return lambda v: said_again.bwd_wrw2(p, v, loops)
    return tests.get(name, lambda v: said_again.blocked_gemm(*gemm, v))


# of the five that differ in a constant, two
TESTED = [name for name in SOLVERS if not name.endswith(("<2>", "<4>", "<16>"))]
REFERENCED = [name for name in TESTED if name != "ConvOclDirectFwd1x1"]
ISAS = st.sampled_from(["gfx803", "gfx900", "gfx906", "gfx1030"])


@pytest.mark.parametrize("name", REFERENCED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_full_ranges_hold_what_is_valid(name: str, data: st.DataObject) -> None:
    """On tuples drawn at random and on tuples that the space itself walks to."""
    solver, isa = SOLVERS[name], data.draw(ISAS)
    problem = data.draw(problems(solver))
    space = space_of(name, problem, full=True, device=isa)
    valid = reference(problem, solver, isa)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    for _ in range(30):
        values = tuple(int(rng.choice(domain)) for domain in solver.full)
        assert space.contains(values) == valid(values), values
    if not space.allows(()):
        return
    for _ in range(10):
        prefix: Prefix = ()
        while space.knob(prefix) is not None:
            legal = space.legal_values(prefix)
            assert legal, f"dead end at {prefix}"
            prefix = (*prefix, legal[int(rng.integers(len(legal)))])
        assert valid(numbers(prefix)), prefix
        at = int(rng.integers(len(prefix)))  # a neighbour: nearly valid
        other = (*prefix[:at], int(rng.choice(solver.full[at])), *prefix[at + 1 :])
        assert space.contains(other) == valid(numbers(other)), other


@pytest.mark.parametrize("name", TESTED)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_problems_that_share_a_space_may(name: str, data: st.DataObject) -> None:
    """The shared space answers as one made for the problem alone does."""
    solver, isa, full = SOLVERS[name], data.draw(ISAS), data.draw(st.booleans())
    problem = data.draw(problems(solver))
    # grow what the rules only bound: a neighbour of the same signature, where there is one
    other = replace(problem, n=problem.n * 3 + 512, ho=problem.ho + 64, h=problem.h + 64)
    shared = space_of(name, problem, full, isa)
    space_of(name, other, full, isa)
    for one in (problem, other):
        alone = solver.space(one, isa, full)
        again = space_of(name, one, full, isa)
        if solver.signature(one, isa, full) == solver.signature(problem, isa, full):
            assert again is shared
        rng = np.random.default_rng(1)
        for _ in range(8):
            prefix: Prefix = ()
            while alone.knob(prefix) is not None and alone.allows(prefix):
                legal = alone.legal_values(prefix)
                assert again.legal_values(prefix) == legal
                prefix = (*prefix, legal[int(rng.integers(len(legal)))])
            assert again.allows(()) == alone.allows(())
            assert again.knob(()) == alone.knob(())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), full=st.booleans())
def test_closed_rules_need_no_look_ahead(data: st.DataObject, full: bool) -> None:
    solver = SOLVERS["ConvAsm1x1U"]
    problem = data.draw(problems(solver))
    ranges, rules = solver.ranges(problem, full), solver.rules(problem, "gfx906", full)
    assert solver.closed
    closed = RuledSpace(solver.fields, ranges, rules, closed=True)
    searching = RuledSpace(solver.fields, ranges, rules)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    for _ in range(12):
        prefix: Prefix = ()
        while closed.knob(prefix) is not None:
            legal = closed.legal_values(prefix)
            assert legal == searching.legal_values(prefix)
            if not legal:
                assert prefix == ()
                break
            prefix = (*prefix, legal[int(rng.integers(len(legal)))])


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


class _SmallSolver(SpaceConformance):
    """A solver under its own rules over few values."""

    exact_on_prefixes = True
    name: str
    key: str
    few: tuple[tuple[int, ...], ...]

    def make_space(self) -> Space:
        solver, problem = SOLVERS[self.name], parse_key(self.key)
        rules = solver.rules(problem, "gfx906", True)
        return RuledSpace(solver.fields, self.few, rules, closed=solver.closed)

    def is_legal(self, values: Prefix) -> bool:
        return reference(parse_key(self.key), SOLVERS[self.name], "gfx906")(numbers(values))


class TestAsm1x1U(_SmallSolver):
    name = "ConvAsm1x1U"
    key = "24-7-7-1x1-80-7-7-4-0x0-1x1-1x1-0-NCHW-FP16-B"
    few = ((1, 2, 4), (1, 8, 32), (2, 4, 8), (16, 64), (1, 4), (1, 2, 4), (1, 5), (1, 8))


class TestAsm3x3U(_SmallSolver):
    name = "ConvAsm3x3U"
    key = "24-9-70-3x3-24-9-70-4-1x1-1x1-1x1-0-NCHW-FP32-F_g3"
    few = ((0, 9), tuple(range(1, 9)), (1, 4, 8))


class TestBwdWrW1x1(_SmallSolver):
    name = "ConvAsmBwdWrW1x1"
    key = "24-9-70-1x1-24-9-70-4-0x0-1x1-1x1-0-NCHW-FP16-W"
    few = ((1, 4), (2, 4, 16), (1, 8), (1, 4), (8,), (1, 4), (1, 3, 8), (4,), (0, 1), (0, 3))


class TestBwdWrW3x3(_SmallSolver):
    name = "ConvAsmBwdWrW3x3"
    key = "24-9-70-3x3-16-9-70-4-1x1-1x1-1x1-0-NCHW-FP16-W"
    few = ((0, 1), (0, 1), (8, 16), (1, 4, 8), (1, 3, 7, 10), (1, 4, 8))


class TestDirectFwd(_SmallSolver):
    name = "ConvOclDirectFwd"
    key = "24-9-70-5x5-16-18-140-4-2x2-2x2-1x1-0-NCHW-FP32-B"
    few = ((8, 32), (8, 16), (8, 32), (16, 64), (1, 2), (1, 2, 4), (1, 8), (1, 4), (2,))


class TestBwdWrW2(_SmallSolver):
    name = "ConvOclBwdWrW2<4>"
    key = "6-9-70-5x5-16-9-140-4-2x2-1x2-1x1-0-NCHW-FP32-W"
    few = ((1, 8), (6, 9, 12), (1, 3, 8), (1, 3), (2, 5, 9, 11))


class TestV4R4(_SmallSolver):
    name = "ConvHipImplicitGemmV4R4WrW"
    key = "64-8-8-3x3-32-8-8-4-1x1-1x1-1x1-0-NCHW-FP32-W"
    few = ((64, 256), (32, 64, 128), (32, 64), (4, 16), (2, 4), (2, 4))


def _vgprs(a: int, b: int) -> bool:
    return 3 + 2 * a * b <= 20


class TestFallingRule(ConstraintConformance):
    """Judged by the least values of what is open."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return RuledSpace(["a", "x", "b"], [(1, 2, 4, 9), (0, 1), (2, 3, 8)], [])

    def make_constraint(self) -> Constraint:
        rule = Rule("vgprs", ("a", "b"), _vgprs, falling=True)
        return RuledSpace(["a", "x", "b"], [(1, 2, 4, 9), (0, 1), (2, 3, 8)], [rule]).rules[0]

    def is_legal(self, values: Prefix) -> bool:
        a, _, b = numbers(values)
        return a * b <= 8


class TestPlainRule(ConstraintConformance):
    """Silent until its last field."""

    def make_space(self) -> Space:
        return RuledSpace(["a", "x", "b"], [(1, 2, 4), (0, 1), (2, 3, 8)], [])

    def make_constraint(self) -> Constraint:
        rule = Rule("divides", ("b", "a"), lambda b, a: b % a == 0)
        return RuledSpace(["a", "x", "b"], [(1, 2, 4), (0, 1), (2, 3, 8)], [rule]).rules[0]

    def is_legal(self, values: Prefix) -> bool:
        a, _, b = numbers(values)
        return b % a == 0


class TestLookAhead(ConstraintConformance):
    """Refuses exactly the prefixes that unsettled rules leave nothing for."""

    ranges = [(1, 2, 3), (0, 1), (2, 4, 8)]
    rules = [
        Rule("third", ("a", "c"), lambda a, c: c % a == 0),
        Rule("sum", ("b", "c"), lambda b, c: not (b == 1 and c == 8)),
    ]

    def make_space(self) -> Space:
        return RuledSpace(["a", "b", "c"], self.ranges, [])

    def make_constraint(self) -> Constraint:
        space = RuledSpace(["a", "b", "c"], self.ranges, self.rules)

        class Whole(Constraint):
            name = "all rules"

            def allows(self, prefix: tuple[Value, ...]) -> bool:
                return all(constraint.allows(prefix) for constraint in space.constraints)

        return Whole()

    exact_on_prefixes = True

    def is_legal(self, values: Prefix) -> bool:
        a, b, c = numbers(values)
        return c % a == 0 and not (b == 1 and c == 8)
