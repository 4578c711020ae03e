"""Keys of problems and names of devices."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerplugin.errors import InputError
from tunerplugin.sources.miopen import (
    Conv3dError,
    ConvProblem,
    check_sizes,
    describe,
    format_key,
    parse_device,
    parse_key,
)
from tunerplugin.sources.miopen.problem import DIRECTIONS, ELEMENT_BYTES, output_size

KEY = "60-14-14-1x1-240-14-13-128-0x0-1x2-1x1-0-NCHW-FP16-B_g3"


def test_every_part_of_a_key_is_read() -> None:
    problem = parse_key("60-14-15-3x5-240-7-8-128-1x2-2x3-4x5-1-NCHW-FP16-B_g3")
    assert problem == ConvProblem(
        c=60,
        h=14,
        w=15,
        y=3,
        x=5,
        k=240,
        ho=7,
        wo=8,
        n=128,
        pad_h=1,
        pad_w=2,
        stride_h=2,
        stride_w=3,
        dilation_h=4,
        dilation_w=5,
        bias=1,
        layout="NCHW",
        dtype="FP16",
        direction="B",
        groups=3,
    )
    assert problem.packed == 2
    assert not problem.forward


SIZES = st.integers(1, 9999)


@given(
    sizes=st.lists(SIZES, min_size=9, max_size=9),
    pads=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    steps=st.tuples(*[st.integers(1, 9)] * 4),
    bias=st.integers(0, 1),
    layout=st.sampled_from(["NCHW", "NHWC", "NHWC-NCHW-NCHW"]),
    dtype=st.sampled_from(list(ELEMENT_BYTES)),
    direction=st.sampled_from(DIRECTIONS),
    groups=st.integers(1, 4),
)
def test_keys_round_trip(
    sizes: list[int],
    pads: tuple[int, int],
    steps: tuple[int, int, int, int],
    bias: int,
    layout: str,
    dtype: str,
    direction: str,
    groups: int,
) -> None:
    c, h, w, y, x, k, ho, wo, n = sizes
    shape = (c * groups, h, w, y, x, k * groups, ho, wo, n)
    problem = ConvProblem(*shape, *pads, *steps, bias, layout, dtype, direction, groups)
    assert parse_key(format_key(problem)) == problem
    assert str(problem) == format_key(problem)


def test_other_layouts_are_named_three_times() -> None:
    key = KEY.replace("NCHW", "NHWC-NHWC-NHWC")
    assert parse_key(key).layout == "NHWC"
    assert format_key(parse_key(key)) == key
    assert parse_key(KEY.replace("NCHW", "NHWC")) == parse_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        KEY[:-1],
        KEY + "x",
        KEY + "_ciFP8",
        KEY.replace("FP16", "FP64"),
        KEY.replace("-B", "-X"),
        KEY.replace("60-14", "0-14"),
        KEY.replace("_g3", "_g7"),
        KEY.replace("_g3", "_g0"),
        KEY.replace("14-13", "14--3"),
        KEY.replace("60-14", "2147483648-14"),
        KEY.replace("60-14", "9" * 5000 + "-14"),
        KEY.replace("60-14", "\u0666\u0660-14"),  # digits, but not MIOpen's
        KEY.replace("_g3", "_g" + "3" * 5000),
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_key(key)
    assert not isinstance(refusal.value, Conv3dError)
    message = str(refusal.value)
    assert message.startswith("expected") and len(message) < 400
    assert ", got " in message and ";" in message  # what to do


def test_3d_keys_are_recognised() -> None:
    with pytest.raises(Conv3dError):
        parse_key("3-16-56-56-3x3x3-64-16-56-56-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F")


@given(st.text(alphabet=string.digits + "-x_NCHWFPBg", max_size=80))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        problem = parse_key(text)
    except InputError:
        return
    assert parse_key(format_key(problem)) == problem


@given(
    out=st.integers(1, 60),
    filter_=st.integers(1, 7),
    pad=st.integers(0, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
)
def test_output_sizes_undo_each_other(
    out: int, filter_: int, pad: int, stride: int, dilation: int
) -> None:
    """Backward gives the least of the sizes that forward maps to the same output."""
    size = output_size(out, filter_, pad, stride, dilation, "B")
    assert output_size(size, filter_, pad, stride, dilation, "F") == out
    assert output_size(size + stride - 1, filter_, pad, stride, dilation, "F") == out
    assert output_size(size + stride, filter_, pad, stride, dilation, "F") == out + 1
    assert output_size(out, filter_, pad, stride, dilation, "W") == size


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("3-224-224-7x7-64-112-112-1-3x3-2x2-1x1-0-NCHW-FP32-F", ""),
        ("64-28-28-3x3-32-55-56-4-1x1-2x2-1x1-0-NCHW-FP16-B", ""),  # both sizes give 28
        ("4-2-2-3x3-3-1-1-512-0x0-2x2-1x1-0-NCHW-FP32-F", ""),  # MIOpen rounds up to one pixel
        ("64-28-28-3x3-32-57-56-4-1x1-2x2-1x1-0-NCHW-FP16-B", "a height of 29 from 57, got 28"),
        ("64-28-28-3x3-32-28-14-4-1x1-1x2-1x1-0-NCHW-FP16-W", "a width of 7 from 14, got 28"),
        ("4-8-8-3x3-4-8-8-1-1x1-1x1-2x2-0-NCHW-FP32-F", "a height of 6 from 8, got 8"),
    ],
)
def test_output_sizes_are_checked(key: str, said: str) -> None:
    if not said:
        check_sizes(parse_key(key))
        return
    with pytest.raises(InputError, match=f"expected {said}"):
        check_sizes(parse_key(key))


@pytest.mark.parametrize(
    ("name", "isa", "units"),
    [
        ("gfx906_60", "gfx906", 60),
        ("gfx906_60_2023a", "gfx906", 60),
        ("gfx803_36", "gfx803", 36),
        ("gfx90a68", "gfx90a", 104),
        ("gfx90a6e_2021", "gfx90a", 110),
        ("gfx90878", "gfx908", 120),
        ("gfx942130", "gfx942", 304),
        ("gfx1030_36", "gfx1030", 36),
        ("gfx906", "gfx906", 0),
        ("gfx1201_64", "gfx1201", 64),
    ],
)
def test_device_names(name: str, isa: str, units: int) -> None:
    device = parse_device(name)
    assert (device.isa, device.compute_units) == (isa, units)
    assert parse_device(device.name) == device


@pytest.mark.parametrize("name", ["", "sm_80", "GFX906_60"])
def test_other_device_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="expected a device"):
        parse_device(name)


def test_description_tells_the_convolution_and_the_device() -> None:
    problem = describe(parse_key(KEY), "gfx906_60")
    words = dict(problem.words)
    assert len(words) == len(problem.words)
    assert words["pixels_out"] == 14 * 13
    assert words["c_per_group"] == 20
    assert words["packed"] == 2
    assert words["compute_units"] == 60
    assert words["dot2"] == 1
    assert words["clock_mhz"] == 1725
    other = dict(describe(parse_key(KEY), "gfx1201").words)
    assert "compute_units" not in other and "wave_size" not in other
    assert describe(parse_key(KEY), "gfx906_60_2019") == problem
