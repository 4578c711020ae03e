"""MIOpen's validity tests said again, whole tuples at a time, in the order of the source."""

from __future__ import annotations

from math import ceil

from tunerplugin.sources.miopen import ConvProblem

Values = tuple[int, ...]


def asm1x1u(p: ConvProblem, values: Values) -> bool:
    """``ConvAsm1x1U``, 2-byte or 4-byte elements."""
    read, k_mult, cpw, chunk, n_mult, c_mult, wc, wk = values
    e, pixels = 4 // p.element_bytes, p.ho * p.wo
    if k_mult % e or (p.direction == "B" and p.k % k_mult):
        return False
    if read * e > cpw or cpw % e or cpw > ceil(pixels / chunk):
        return False
    if n_mult > ceil(p.n / (64 / chunk)) or c_mult % e:
        return False
    vgprs = 4 + 2 * ceil(cpw * n_mult * c_mult / e) + cpw * n_mult * k_mult + bool(pixels % e) + 1
    if vgprs >= 256 or 25 + 2 * k_mult * c_mult >= 102 or wc > p.c:
        return False
    share = ceil(p.c / wc)
    if share % c_mult or (p.c - share * (wc - 1)) % c_mult or k_mult * wk > p.k:
        return False
    return wc * wk <= 16 and 256 // vgprs * 4 >= wc * wk


def asm1x1uv2(p: ConvProblem, values: Values) -> bool:
    """``ConvAsm1x1UV2`` for images that need no 64-bit division, FP32."""
    chunk, dwords, k, c, n, w, h, rows, wk, wc = values
    stride = p.stride_w if p.direction == "F" else 1
    if wc * wk > 16 or wc > p.c or rows > chunk or k * wk > p.k:
        return False
    inputs = dwords * w * h * c * n * 2
    vgprs = 6 + inputs + ceil(dwords / stride) * w * h * k * n
    if p.direction == "B" and p.stride_w > 1:
        buffer = 2 if dwords == 1 else 4
        vgprs += max(0, buffer - (inputs - 1))
    if vgprs >= 256 or 256 // vgprs * 4 < wc * wk or 25 + 2 * k * c >= 102:
        return False
    if n > ceil(p.n / (64 / chunk)) or (p.direction == "B" and p.k % k):
        return False
    missing = n * (64 // chunk) - 1
    if (p.c + missing) * 4 * p.c * p.h * p.w >= 2**31:
        return False
    if (p.k + missing) * 4 * p.k * p.ho * p.wo >= 2**31:
        return False
    share = ceil(p.c / wc)
    return share % c == 0 and (p.c - share * (wc - 1)) % c == 0


def asm3x3u(p: ConvProblem, values: Values) -> bool:
    """``ConvAsm3x3U``."""
    _, fpw, lines = values
    if p.groups > 1 and (p.k % fpw or (p.k // fpw) % p.groups):
        return False
    lanes = ceil(p.w / ceil(p.w / 64))
    per_line = ceil(p.w / lanes)
    inputs = per_line * (lines if p.h == lines else lines + 2)
    power = bin(p.k // p.groups).count("1") == 1
    n = (p.h != lines) + (p.w % lanes != 0) + 2 + per_line * fpw * lines
    n += inputs if power else max(inputs, 4)
    n += inputs if power else max(inputs, 3)
    return n < 256


def bwd_wrw1x1(p: ConvProblem, values: Values, gfx9: bool = True) -> bool:
    """``ConvAsmBwdWrW1x1``."""
    chunk, c_gpr, c_mult, k_gpr, k_mult, n_gpr, parts, read, short, prefetch = values
    pixels = 64 // (c_gpr * n_gpr * chunk)
    if pixels not in (1, 2, 4) or chunk * c_gpr < 16 or (chunk > 1 and chunk * c_gpr > 16):
        return False
    if k_gpr > c_gpr or c_gpr * n_gpr * pixels * chunk != 64:
        return False
    if p.dtype == "FP32" and short:
        return False
    if p.dtype != "FP32" and not short and (c_mult % 2 or p.k % 2):
        return False
    sums = c_mult * k_mult * k_gpr
    loads = (c_mult + k_mult) * read
    vgprs = sums + 12 + loads * (prefetch + 1) + (loads if p.dtype == "BF16" and gfx9 else 0)
    if vgprs > (128 if parts > 4 else 256):
        return False
    return parts == 1 or (parts - 1) * 64 * 4 * sums <= 65536


def bwd_wrw3x3(p: ConvProblem, values: Values, dot2: bool) -> bool:
    """``ConvAsmBwdWrW3x3``."""
    waves, reverse, chunk, kpw, depth, npg = values
    cpw, e = 64 // chunk, 2 if p.dtype == "FP16" else 1
    outer, inner = (p.c, p.k) if reverse else (p.k, p.c)
    if outer % (cpw * p.groups) or inner % (kpw * p.groups) or chunk * kpw > 64:
        return False
    if npg > p.n or depth > min(p.ho, 16) or (reverse and (p.stride_h, p.stride_w) != (1, 1)):
        return False
    sums = p.x * p.y * cpw * kpw * chunk // 64
    line_in = ceil(ceil(p.wo / e) / (chunk if chunk == 16 else chunk - p.pad_w))
    line_in += line_in % p.stride_w
    line_out = line_in // p.stride_w if line_in > 1 else 1
    lines_in = (depth + p.y - 1) * e * line_in
    lines_out = ceil(depth / p.stride_h) * e * line_out
    division = (0 if lines_in >= 4 else 4) + (0 if lines_out >= 3 else 3)
    if bin(p.c // (cpw if reverse else kpw) // p.groups).count("1") == 1:
        division = 0
    vgprs = sums + lines_in + lines_out + division + 6 + e - 1
    if vgprs > 256 or (npg > 4 and vgprs > 128) or (waves and waves * 4 < npg):
        return False
    if (npg - 1) * 64 * 4 * sums > 65536:
        return False
    unroll = depth * (depth + 2)
    loops = depth + unroll + max(0, p.ho - 1 - depth) % unroll + 1
    memory = 3 + (line_in + 3) // 4
    vector = (kpw * p.y * line_out * p.x * 4 * (2 if e == 2 and not dot2 else 1)) // 3 * e
    return loops * (memory + vector + (3 * memory if e == 2 else 0)) * e < 32000


def direct_fwd(p: ConvProblem, values: Values) -> bool:
    """``ConvOclDirectFwd``, tuples whose tiles agree."""
    group1, group0, in1, in0, out1, out0, n_out, n_in, _ = values
    if group1 * out1 != in1 or group0 * out0 != in0:
        return False
    backward = p.direction != "F"
    if backward and p.stride_h > 1:
        out1 = p.stride_h
    if backward and p.stride_w > 1:
        out0 = p.stride_w
    group1, group0 = max(8, in1 // out1), max(8, in0 // out0)
    in1, in0 = group1 * out1, group0 * out0
    if group1 * group0 > 256:
        return False
    n_in, n_out = min(p.c // p.groups, n_in), min(p.k // p.groups, n_out)
    if backward:
        high, wide = ceil((in1 + p.y - 1) / p.stride_h), ceil((in0 + p.x - 1) / p.stride_w)
    else:
        high, wide = (in1 - 1) * p.stride_h + p.y, (in0 - 1) * p.stride_w + p.x
    return (high * wide * n_in + n_out * n_in * p.x * p.y) * p.element_bytes <= 65536


def bwd_wrw2(p: ConvProblem, values: Values, loops: int) -> bool:
    """``ConvOclBwdWrW2<loops>``."""
    waves, read, per_tile, tiles, rows = values
    if p.w < read or (p.groups > 1 and tiles > 1) or per_tile * tiles > p.c // p.groups:
        return False
    batches = ceil(p.n / loops)
    workspace = p.k // p.groups * p.y * p.x * p.c * batches * p.element_bytes
    if rows < p.y or (batches > 1 and workspace > 6 * 1024**3):
        return False
    in_width, out_width = p.wo, p.w
    effective = max(
        in_width + 2 * p.pad_w,
        p.pad_w + ceil(in_width / read) * read,
        p.x + (out_width - 1) * p.stride_w,
    )
    right = effective - (in_width + 2 * p.pad_w)
    width = p.pad_w + in_width + right
    if p.dtype == "FP32":
        width = width // 2 * 2 + 1
    inputs = width * ((rows - 1) * p.stride_h + p.y) + p.pad_w + right
    per_item = p.x if p.x <= 7 or p.x % 2 else p.x // 2
    block = p.y * ceil(p.x / per_item)
    blocks = 64 * waves // block
    if blocks == 0:
        return False
    scans = ceil(out_width / blocks)
    held = min(blocks, ceil(out_width / scans))
    outputs = rows * max(scans * held, ceil(out_width / read) * read) * tiles
    sums = block * per_item * held * tiles
    return max(inputs + outputs, sums) * p.element_bytes <= 65536


def v4r1(p: ConvProblem, values: Values) -> bool:
    """``ConvHipImplicitGemmV4R1Fwd``."""
    bpb, kpb, epb, repeat, mpt, npt, m0, n0, m1, n1, in_e, in_n1, in_b, in_n2, wei_e, wei_k = values
    pack = 1 if p.dtype == "FP32" else 2
    if p.n % (repeat * npt):
        return False
    b, e = p.n // (repeat * npt) * p.ho * p.wo, p.c // p.groups // pack * p.y * p.x
    if epb % in_e or epb % wei_e or bpb % in_b or kpb % wei_k or repeat % in_n1 or npt % in_n2:
        return False
    if p.k % kpb or b % bpb or e % epb or (p.k // kpb) % p.groups or (pack == 2 and npt != mpt):
        return False
    if kpb % (mpt * m0 * m1) or kpb // (mpt * m0 * m1) != 2:
        return False
    if (repeat * npt * bpb) % (npt * n0 * n1) or repeat * npt * bpb // (npt * n0 * n1) != 2:
        return False
    block = m0 * n0 * m1 * n1
    if not 64 <= block <= 512 or block != in_e * in_n1 * in_b * in_n2 or block != wei_k * wei_e:
        return False
    lds = (bpb + kpb) * epb * pack * p.element_bytes * 2 + 2 * 4
    return lds <= 65536 and epb == in_e and bpb == in_b


def blocked_gemm(rows: int, columns: int, sums: int, values: Values) -> bool:
    """The V4R4 kernels and ``BwdDataV1R1``, with the copies and the LDS that they compute."""
    block, m, n, k, m_thread, n_thread = values
    if rows % m or columns % n or sums % k:
        return False
    m1, n1 = {64: (2, 2), 128: (4, 2), 256: (4, 4)}[block]
    if m // m_thread != 2 * 4 * m1 or n // n_thread != 2 * 4 * n1:
        return False
    for side in (m, n):
        each = k * side // block
        if each == 0 or k // each == 0:  # the worst case: reads of one element
            return False
    return 2 * k * (m + n) * 4 <= 65536
