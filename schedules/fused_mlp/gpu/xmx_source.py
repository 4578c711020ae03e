"""OpenCL C beside what TVM generates: DPAS and conversions, and DPAS emulated where there is none.

TVM's kernels call the functions below (``xmx_*``) as externs.  A compiler that gets
``-DXMX_EMULATE`` takes the emulation, which computes what the instruction is specified to compute
from the same registers with sub-group broadcasts; so a kernel's data layout is tested on any OpenCL
device with sub-groups.  Specification: cl_intel_subgroup_matrix_multiply_accumulate 1.1.
"""

from __future__ import annotations

import re

EMULATE = "-DXMX_EMULATE"
"""The build option that selects the emulation."""

_CONVERT = {
    "float16": """
inline short xmx_narrow(float value) { return as_short((half)value); }
inline float xmx_widen(short bits) { return (float)as_half(bits); }
""",
    # Round to nearest even; a NaN must not become infinite by rounding up.
    "bfloat16": """
#ifdef XMX_EMULATE
inline short xmx_narrow(float value) {
  uint bits = as_uint(value);
  uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (short)(isnan(value) ? 0x7fc0u : rounded);
}
#else
ushort __attribute__((overloadable)) intel_convert_bfloat16_as_ushort(float value);
inline short xmx_narrow(float value) {
  return as_short(intel_convert_bfloat16_as_ushort(value));
}
#endif
inline float xmx_widen(short bits) { return as_float((uint)as_ushort(bits) << 16); }
""",
}

# Two k values in one 32-bit register, for sub-groups of 8.
_PAIR = """
inline int xmx_pair(float low, float high) {
  return as_int((short2)(xmx_narrow(low), xmx_narrow(high)));
}
inline float xmx_low(int pair) { return xmx_widen(as_short2(pair).x); }
inline float xmx_high(int pair) { return xmx_widen(as_short2(pair).y); }
"""

# A tile of weights is 8 rows of one 32-bit pair per lane.  IGC knows block reads of shared memory
# before its front end declares them.
_MEMORY = """
#ifdef XMX_EMULATE
#define XMX_TILE(p) (int8)((p)[0], (p)[XMX_LANES], (p)[2 * XMX_LANES], (p)[3 * XMX_LANES], \\
  (p)[4 * XMX_LANES], (p)[5 * XMX_LANES], (p)[6 * XMX_LANES], (p)[7 * XMX_LANES])
inline int8 xmx_tile_shared(const __local void* tile) {
  const __local int* p = (const __local int*)tile + get_sub_group_local_id();
  return XMX_TILE(p);
}
inline int8 xmx_tile_global(const __global void* tile) {
  const __global int* p = (const __global int*)tile + get_sub_group_local_id();
  return XMX_TILE(p);
}
#else
uint8 __attribute__((overloadable)) intel_sub_group_block_read8(const __local uint* tile);
inline int8 xmx_tile_shared(const __local void* tile) {
  return as_int8(intel_sub_group_block_read8((const __local uint*)tile));
}
inline int8 xmx_tile_global(const __global void* tile) {
  return as_int8(intel_sub_group_block_read8((const __global uint*)tile));
}
#endif
inline int xmx_uniform(int value) { return sub_group_broadcast(value, 0); }
inline int4 xmx_words(const __global void* source) { return *(const __global int4*)source; }
"""

# Row m of A: on 16 lanes lane k holds element k; on 8 lanes lane k / 2 holds the pair k, k + 1.
# B: element k / 2 of lane n holds the pair B[k][n], B[k + 1][n].
_DPAS = """
#define XMX_JOIN(a, b) a##b
#define XMX_VECTOR(type, size) XMX_JOIN(type, size)
#define XMX_A XMX_VECTOR(XMX_ELEMENT, XMX_ROWS)
#define XMX_SUMS XMX_VECTOR(float, XMX_ROWS)
#ifdef XMX_EMULATE
inline XMX_SUMS xmx_dpas(XMX_A a, int8 b, XMX_SUMS c) {
  float sums[XMX_ROWS];
  XMX_ELEMENT rows[XMX_ROWS];
  int pairs[8];
  XMX_VECTOR(vstore, XMX_ROWS)(c, 0, sums);
  XMX_VECTOR(vstore, XMX_ROWS)(a, 0, rows);
  vstore8(b, 0, pairs);
  for (int k = 0; k < 16; ++k) {
    short2 pair = as_short2(pairs[k / 2]);
    float right = xmx_widen(k % 2 ? pair.y : pair.x);
    for (int m = 0; m < XMX_ROWS; ++m) {
      short2 left = as_short2(sub_group_broadcast((int)rows[m], k / (16 / XMX_LANES)));
      sums[m] += xmx_widen(XMX_LANES == 8 && k % 2 ? left.y : left.x) * right;
    }
  }
  return XMX_VECTOR(vload, XMX_ROWS)(0, sums);
}
#else
XMX_SUMS __attribute__((overloadable)) XMX_MAD(XMX_A a, int8 b, XMX_SUMS c);
#define xmx_dpas XMX_MAD
#endif
"""
_MAD = {
    "float16": "intel_sub_group_f16_f16_matrix_mad_k16",
    "bfloat16": "intel_sub_group_bf16_bf16_matrix_mad_k16",
}


def amend(source: str, *, sub_group: int, rows: int, dtype: str) -> str:
    """TVM's source with the functions it calls, and with the sub-group size its kernel needs.

    ``sub_group``: 16 (Xe-HPC and later) or 8 (Xe-HPG); TVM has no attribute for it.  ``rows``: of
    one DPAS, 8 or 4.
    """
    defines = {
        "XMX_LANES": str(sub_group),
        "XMX_ROWS": str(rows),
        "XMX_ELEMENT": "short" if sub_group == 16 else "int",
        "XMX_MAD": _MAD[dtype],
    }
    prelude = [
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable" if dtype == "float16" else "",
        *(f"#define {name} {value}" for name, value in defines.items()),
        _CONVERT[dtype] + _PAIR + _MEMORY + _DPAS,
    ]
    attribute = f"__attribute__((intel_reqd_sub_group_size({sub_group})))\n__kernel void"
    return "\n".join(prelude) + re.sub(r"^__kernel void", attribute, source, flags=re.MULTILINE)
