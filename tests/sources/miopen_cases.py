"""Problems that solvers can compute, and each solver's validity test told again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tests.sources import miopen_rules as said_again
from tunerplugin.sources.miopen import ConvProblem, Solver
from tunerplugin.space import Prefix

SIZES = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, 16, 28, 30, 32, 56, 64, 80, 96, 192, 256, 2048])
#: what matrix products can divide
SIXTEENS = st.sampled_from([16, 32, 48, 64, 80, 96, 128, 192, 256, 2048])
EXTENTS = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 14, 16, 17, 28, 32, 33, 56, 112, 230])


@st.composite
def problems(draw: st.DrawFn, solver: Solver) -> ConvProblem:
    """Problems that a solver can compute."""
    y, x = solver.filter_size or draw(st.sampled_from([(3, 3), (5, 5), (1, 7), (7, 7), (4, 12)]))
    groups = draw(st.sampled_from([1, 1, 2, 4])) if solver.grouped else 1
    strides = draw(st.sampled_from(solver.strides or [(1, 1), (1, 1), (2, 2)]))
    most = min(y - strides[0], x - strides[1], y // 2)
    pads = (max(most, 0),) * 2 if solver.padding is None else (solver.padding,) * 2
    sizes = SIXTEENS if "ImplicitGemm" in solver.name else SIZES
    problem = ConvProblem(
        c=draw(sizes) * groups,
        h=draw(EXTENTS),
        w=draw(EXTENTS),
        y=y,
        x=x,
        k=draw(sizes) * groups,
        ho=draw(EXTENTS),
        wo=draw(EXTENTS),
        n=draw(sizes),
        pad_h=pads[0],
        pad_w=pads[1],
        stride_h=strides[0],
        stride_w=strides[1],
        dtype=draw(st.sampled_from(solver.dtypes)),
        direction=draw(st.sampled_from(solver.directions)),
        groups=groups,
    )
    assume(not solver.unsuitable(problem))
    return problem


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


def numbers(values: Prefix) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
