"""MIOpen's convolution problems and the keys under which its databases keep them.

A key reads ``C-H-W-yxx-K-Ho-Wo-N-phxpw-shxsw-dhxdw-bias-LAYOUT-DTYPE-DIR[_gG]``, as in
``256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F`` (ROCm/MIOpen
``src/conv/problem_description.cpp``, ``Serialize``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ...errors import InputError

ELEMENT_BYTES = {"FP32": 4, "FP16": 2, "BF16": 2, "BFP16": 2, "INT8": 1}
"""Bytes per element of the data types whose records are read."""

DIRECTIONS = ("F", "B", "W")
"""Forward, backward data, backward weights."""

DEFAULT_LAYOUT = "NCHW"

MAX_SIZE = (1 << 31) - 1
"""Sizes are signed 32-bit words in MIOpen."""

EXAMPLE = "256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"

_SIZE = r"([0-9]{1,10})"
_SIZES = "-".join(
    ((_SIZE,) * 3) + (f"{_SIZE}x{_SIZE}",) + ((_SIZE,) * 4) + ((f"{_SIZE}x{_SIZE}",) * 3)
)
_KEY = re.compile(_SIZES + r"-([01])-([A-Za-z]+(?:-[A-Za-z]+-[A-Za-z]+)?)-([A-Z0-9]+)-([FBW])(.*)")
_KEY_3D = re.compile(r"(?:[0-9]+-){4}[0-9]+x[0-9]+x[0-9]+-")
_GROUPS = re.compile(rf"_g{_SIZE}")


class Conv3dError(InputError):
    """The key of a 3-D convolution, which is recognised and not read."""


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """A 2-D convolution as MIOpen names it; sizes in elements.

    ``c``, ``h``, ``w`` are those of the kernel's input and ``k``, ``ho``, ``wo`` of its output: in
    backward directions (``B``, ``W``) the input is the gradient dy and the output dx, so ``c``
    counts what the forward convolution calls output channels.  ``y``, ``x`` are the filter's sizes,
    ``n`` the batch.
    """

    c: int
    h: int
    w: int
    y: int
    x: int
    k: int
    ho: int
    wo: int
    n: int
    pad_h: int = 0
    pad_w: int = 0
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    bias: int = 0
    layout: str = DEFAULT_LAYOUT
    dtype: str = "FP32"
    direction: str = "F"
    groups: int = 1

    def __post_init__(self) -> None:
        sizes = (self.c, self.h, self.w, self.y, self.x, self.k, self.ho, self.wo, self.n)
        steps = (self.stride_h, self.stride_w, self.dilation_h, self.dilation_w, self.groups)
        if min(*sizes, *steps) < 1 or min(self.pad_h, self.pad_w, self.bias) < 0:
            raise InputError(
                f"expected positive sizes, strides and groups, got {self}; correct the key"
            )
        if max(*sizes, *steps, self.pad_h, self.pad_w) > MAX_SIZE:
            raise InputError(f"expected sizes below 2^31, got {self}; correct the key")
        if self.dtype not in ELEMENT_BYTES or self.direction not in DIRECTIONS:
            raise InputError(
                f"expected a data type in {', '.join(ELEMENT_BYTES)} and a direction in "
                f"{', '.join(DIRECTIONS)}, got {self.dtype!r} and {self.direction!r}; other "
                "convolutions are not known here"
            )
        if self.c % self.groups or self.k % self.groups:
            raise InputError(
                f"expected channels that {self.groups} groups divide, got {self.c} and {self.k}; "
                "correct the key"
            )

    @property
    def element_bytes(self) -> int:
        """Bytes per element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def number_format(self) -> str:
        """The data type under one name: BFP16 is an old one of BF16."""
        return "BF16" if self.dtype == "BFP16" else self.dtype

    @property
    def packed(self) -> int:
        """Elements in 32 bits."""
        return 4 // self.element_bytes

    @property
    def half(self) -> bool:
        """Whether elements have 16 bits."""
        return self.element_bytes == 2

    @property
    def forward(self) -> bool:
        """Whether the direction is forward."""
        return self.direction == "F"

    @property
    def pointwise(self) -> bool:
        """Whether the filter is 1x1."""
        return self.y == self.x == 1

    def __str__(self) -> str:
        return format_key(self)


@lru_cache(maxsize=1 << 12)
def parse_key(text: str) -> ConvProblem:
    """The problem that a key names.

    Raises ``Conv3dError`` for a 3-D convolution and ``InputError`` for what is no key or cannot be
    computed.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        if _KEY_3D.match(text):
            raise Conv3dError(
                f"expected a 2-D convolution, got the 3-D {text[:120]!r}; those are not known here"
            )
        raise InputError(
            f"expected a key like {EXAMPLE}, got {text[:120]!r}; write it as MIOpen's databases do"
        )
    *sizes, bias, layout, dtype, direction, rest = match.groups()
    groups = _GROUPS.fullmatch(rest)
    if rest and groups is None:
        raise InputError(
            f"expected nothing or _g and the groups after the direction, got {rest[:80]!r}; "
            "leave it out"
        )
    names = layout.split("-")
    c, h, w, y, x, k, ho, wo, n, ph, pw, sh, sw, dh, dw = map(int, sizes)
    return ConvProblem(
        *(c, h, w, y, x, k, ho, wo, n, ph, pw, sh, sw, dh, dw),
        bias=int(bias),
        layout=names[0] if len(set(names)) == 1 else layout,
        dtype=dtype,
        direction=direction,
        groups=int(groups[1]) if groups else 1,
    )


def format_key(problem: ConvProblem) -> str:
    """The key of a problem, as MIOpen writes it: layouts other than NCHW are named three times."""
    p = problem
    layout = p.layout
    if layout != DEFAULT_LAYOUT and "-" not in layout:
        layout = "-".join((layout,) * 3)
    groups = f"_g{p.groups}" if p.groups != 1 else ""
    return (
        f"{p.c}-{p.h}-{p.w}-{p.y}x{p.x}-{p.k}-{p.ho}-{p.wo}-{p.n}-{p.pad_h}x{p.pad_w}"
        f"-{p.stride_h}x{p.stride_w}-{p.dilation_h}x{p.dilation_w}-{p.bias}"
        f"-{layout}-{p.dtype}-{p.direction}{groups}"
    )


def check_sizes(problem: ConvProblem) -> None:
    """Raise ``InputError`` when the output is not as large as the convolution makes it.

    Databases may hold such problems; asked for by hand, they are slips of the pen.
    """
    p = problem
    for axis, given, other, filter_, pad, stride, dilation in (
        ("height", p.h, p.ho, p.y, p.pad_h, p.stride_h, p.dilation_h),
        ("width", p.w, p.wo, p.x, p.pad_w, p.stride_w, p.dilation_w),
    ):
        large, small = (given, other) if p.forward else (other, given)  # of x and of y
        made = max(1, output_size(large, filter_, pad, stride, dilation, "F"))
        if made != small:
            order = "" if p.forward else f" (in direction {p.direction}, dy stands before dx)"
            raise InputError(
                f"expected a {axis} of {made} from {large}, got {small} in {problem}{order}; "
                "correct the key"
            )


def output_size(size: int, filter_: int, pad: int, stride: int, dilation: int, dir_: str) -> int:
    """The output's extent along one axis, from the input's.

    In backward directions the forward convolution is undone; with a stride of s the true size may
    be up to s - 1 larger.
    """
    reach = dilation * (filter_ - 1) + 1
    if dir_ == "F":
        return (size + 2 * pad - reach) // stride + 1
    return (size - 1) * stride - 2 * pad + reach
