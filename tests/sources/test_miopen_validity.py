"""On problems drawn at random: spaces hold what is valid, and may share what they remember."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.sources.miopen_cases import numbers, problems, reference
from tunerplugin.sources.miopen import SOLVERS, RuledSpace, Solver, space_of
from tunerplugin.space import Prefix

# of the five that differ in a constant, two
TESTED = [name for name in SOLVERS if not name.endswith(("<2>", "<4>", "<16>"))]
REFERENCED = [name for name in TESTED if name != "ConvOclDirectFwd1x1"]


def isas(solver: Solver) -> st.SearchStrategy[str]:
    """Instruction sets that a solver has kernels for."""
    every = ("gfx803", "gfx900", "gfx906", "gfx1030")
    return st.sampled_from([isa for isa in every if isa.startswith(solver.isas)])


@pytest.mark.parametrize("name", REFERENCED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_full_ranges_hold_what_is_valid(name: str, data: st.DataObject) -> None:
    """On tuples drawn at random and on tuples that the space itself walks to."""
    solver, isa = SOLVERS[name], data.draw(isas(SOLVERS[name]))
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
    solver, isa = SOLVERS[name], data.draw(isas(SOLVERS[name]))
    full = data.draw(st.booleans())
    problem = data.draw(problems(solver))
    # grow what the rules only bound: a neighbour of the same signature, where there is one
    other = replace(problem, n=problem.n * 3 + 512, ho=problem.ho + 64, h=problem.h + 64)
    assume(not solver.unsuitable(other))
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
