"""AMD's matrix instructions in OpenCL C, on the sub-groups of a device that has none.

Written from the ISA guides' tables, not from the templates' own notion of the layouts, which is
what these functions test.
"""

from __future__ import annotations

import re

from tunerplugin.schedules.fused_mlp.gpu.amd_isa import MatrixInstruction

_HEAD = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define FROM(value, lane) sub_group_shuffle(value, lane)
inline float value_of_half(half x) { return (float)x; }
inline float value_of_short(short x) { return as_float(((uint)as_ushort(x)) << 16); }
inline float value_of_float(float x) { return x; }
inline int other_half(int x) { return FROM(x, get_sub_group_local_id() ^ 16); }
"""

# D[row][j] in element e of the lane: which row?  (lane = j + TILE * g)
_RESULT_ROW = {"mfma16": "4 * g + e", "mfma32": "8 * (e / 4) + 4 * g + e % 4"}
_RESULT_ROW |= {"gfx11": "2 * e + g", "gfx12": "8 * g + e"}

# Operands A[row][k] and B[k][row]: lane row + TILE * (k / DEPTH) holds element k % DEPTH; on gfx11
# lanes row and row + 16 both hold all k, and anything may come out if they differ.
_MULTIPLY = """
inline {c} multiply({ab} a_, {ab} b_, {c} c_) {{
  {element} a[DEPTH], b[DEPTH];
  float c[RESULTS];
  {put_a} {put_b} {put_c}
  uint lane = get_sub_group_local_id(), j = lane % TILE, g = lane / TILE;
  for (uint k = 0; k < K; ++k) {{
    uint from = REPLICATED ? 0 : TILE * (k / DEPTH);
    float x = value_of_{element}(FROM(b[k % DEPTH], j + from));
    if (REPLICATED && x != value_of_{element}(FROM(b[k % DEPTH], j + 16))) x = NAN;
    for (uint e = 0; e < RESULTS; ++e) {{
      uint row = {row};
      float w = value_of_{element}(FROM(a[k % DEPTH], row + from));
      if (REPLICATED && w != value_of_{element}(FROM(a[k % DEPTH], row + 16))) w = NAN;
      c[e] = fma(w, x, c[e]);
    }}
  }}
  return {result};
}}
"""


def source(instruction: MatrixInstruction) -> str:
    """OpenCL C of ``multiply`` and ``other_half``."""
    kind, k, depth, results = _shape(instruction)
    element = {"float16": "half", "float32": "float", "int16": "short"}[instruction.operand]
    vector = element if depth == 1 else f"{element}{depth}"
    defines = {
        "TILE": instruction.tile,
        "K": k,
        "DEPTH": depth,
        "RESULTS": results,
        "REPLICATED": int(kind == "gfx11"),
    }
    text = _MULTIPLY.format(
        c=f"float{results}",
        ab=vector,
        element=element,
        put_a=_unpacked("a", "a_", depth),
        put_b=_unpacked("b", "b_", depth),
        put_c=_unpacked("c", "c_", results),
        row=_RESULT_ROW[kind],
        result=f"vload{results}(0, c)",
    )
    return "".join(f"#define {name} {value}\n" for name, value in defines.items()) + _HEAD + text


def amended(instruction: MatrixInstruction, text: str) -> str:
    """A kernel's OpenCL C with the emulation, on sub-groups as wide as the instruction's wave."""
    # The test's runner passes the batch as an int.
    text = text.replace("long batch", "int batch")
    size = f"__attribute__((intel_reqd_sub_group_size({instruction.wave})))"
    kernel = re.sub(r"^__kernel void", f"{size}\n__kernel void", text, flags=re.MULTILINE)
    return source(instruction) + kernel


def _shape(instruction: MatrixInstruction) -> tuple[str, int, int, int]:
    """Kind of layout, k of the instruction, elements of an operand and of a result in a lane."""
    if ".wmma." in instruction.intrinsic:
        return ("gfx11", 16, 16, 8) if instruction.replicated else ("gfx12", 16, 8, 8)
    match = re.search(r"f32\.(\d+)x\d+x(\d+)", instruction.intrinsic)
    assert match is not None
    tile, k = int(match.group(1)), int(match.group(2))
    return f"mfma{tile}", k, k * tile // 64, tile * tile // 64


def _unpacked(array: str, vector: str, elements: int) -> str:
    if elements == 1:
        return f"{array}[0] = {vector};"
    return f"vstore{elements}({vector}, 0, {array});"
