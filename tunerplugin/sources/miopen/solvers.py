"""The registry of solvers, and the spaces of their tuples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

from ...errors import InputError
from ...space import Step
from .asm import Asm1x1U, Asm3x3U
from .asm_strided import Asm1x1UV2
from .asm_wrw import AsmBwdWrW1x1, AsmBwdWrW3x3
from .devices import parse_device
from .implicit_gemm import BwdDataV1R1, V4R1Fwd, V4R4Fwd, V4R4WrW
from .ocl import OclDirectFwd, OclDirectFwd1x1
from .ocl_wrw import OclBwdWrW2
from .problem import ConvProblem
from .rules import RuledSpace
from .solver import Solver

_ALL: tuple[Solver, ...] = (
    Asm1x1U("ConvAsm1x1U"),
    Asm1x1UV2("ConvAsm1x1UV2"),
    Asm3x3U("ConvAsm3x3U"),
    AsmBwdWrW1x1("ConvAsmBwdWrW1x1"),
    AsmBwdWrW3x3("ConvAsmBwdWrW3x3"),
    OclDirectFwd("ConvOclDirectFwd"),
    OclDirectFwd1x1("ConvOclDirectFwd1x1"),
    *(OclBwdWrW2(f"ConvOclBwdWrW2<{loops}>", loops) for loops in (1, 2, 4, 8, 16)),
    V4R1Fwd("ConvHipImplicitGemmV4R1Fwd"),
    V4R4Fwd("ConvHipImplicitGemmV4R4Fwd"),
    V4R4WrW("ConvHipImplicitGemmV4R4WrW"),
    BwdDataV1R1("ConvHipImplicitGemmBwdDataV1R1"),
)

SOLVERS: dict[str, Solver] = {solver.name: solver for solver in _ALL}
"""Every solver whose tuples are read, by its name in databases."""


def solver_of(name: str) -> Solver:
    """The solver of that name; raises ``InputError`` for another."""
    solver = SOLVERS.get(name)
    if solver is None:
        raise InputError(f"expected a solver among {', '.join(SOLVERS)}, got {name!r}; choose one")
    return solver


def solvers_for(problem: ConvProblem, device: str = "") -> list[str]:
    """The solvers that can compute a problem (on a device, named as in ``space_of``).

    Some may have no legal tuple for it all the same.  Raises ``InputError`` for the device.
    """
    isa = parse_device(device).isa if device else ""
    return [name for name, solver in SOLVERS.items() if not solver.unsuitable(problem, isa)]


def space_of(solver: str, problem: ConvProblem, full: bool = False, device: str = "") -> RuledSpace:
    """The legal tuples of a solver for a problem.

    ``full``: all that MIOpen accepts, else what its exhaustive search walks by default.  ``device``
    is named as databases are (``"gfx906_60"``); without one, rules that hang on the instruction set
    are judged for the least of them.  Raises ``InputError`` for an unknown solver or device, or a
    problem that the solver cannot compute there.
    """
    found = solver_of(solver)
    isa = parse_device(device).isa if device else LEAST_ISA
    return _space(found, problem, isa, full)


LEAST_ISA = "gfx803"
"""The instruction set that refuses whatever another one refuses."""


#: spaces kept; beyond that memory is worth more than time, and all are forgotten
_KEPT = 1 << 12
_spaces: dict[Hashable, RuledSpace] = {}


@lru_cache(maxsize=_KEPT)
def _space(solver: Solver, problem: ConvProblem, isa: str, full: bool) -> RuledSpace:
    """Problems with one signature share a space and what it remembers."""
    wrong = solver.unsuitable(problem, isa)
    if wrong:
        raise InputError(f"{solver.name} cannot compute {problem}: {wrong}; name another solver")
    key = (solver.name, full, solver.signature(problem, isa, full))
    space = _spaces.get(key)
    if space is None:
        if len(_spaces) >= _KEPT:
            _spaces.clear()
        space = _spaces[key] = solver.space(problem, isa, full)
    return space


def training_steps(
    problem: ConvProblem,
    solver: str,
    values: Sequence[int],
    full: bool = False,
    device: str = "",
) -> tuple[Step, ...]:
    """The decisions of a recorded tuple, with what was legal at each.

    Raises as ``space_of`` does, and ``SpaceError`` for a tuple that the space does not hold.
    """
    return space_of(solver, problem, full, device).steps(values)
