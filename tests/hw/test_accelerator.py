"""The accelerator template and its TOML datasheets."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import InputError, TargetError
from tunerplugin.hw.accelerator import DATAFLOWS, DTYPE_BYTES, TOPOLOGIES, Accelerator
from tunerplugin.hw.datasheet import Datasheet, Origin, Published, load, load_datasheet, save

CHIPS = Path(__file__).resolve().parents[2] / "hw" / "chips"
SHIPPED = sorted(CHIPS.glob("*.toml"))
TINY = Accelerator(
    name="tiny",
    tensor_cores=2,
    tensor_rows=4,
    tensor_columns=8,
    vector_cores=1,
    vector_lanes=16,
    frequency_hz=1e9,
    dtype="bfloat16",
    dataflow="ws",
    shared_buffer_bytes=1 << 20,
    core_buffer_bytes=1 << 12,
    memory_bytes=1 << 30,
    memory_bytes_s=1e11,
    on_chip_bytes_s=1e12,
)
GOOD = """
name = "mine"
[tensor]
source = "datasheet"
cores = 2
rows = 4
columns = 8
dataflow = "ws"
dtype = "bfloat16"
frequency_hz = 1e9
[vector]
estimated = true
cores = 1
lanes = { value = 16, source = "slides" }
[buffers]
source = "datasheet"
shared_bytes = 1048576
core_bytes = 4096
bytes_s = 1e12
[memory]
source = "datasheet"
bytes = 1073741824
bytes_s = 1e11
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_derived_figures() -> None:
    assert TINY.macs == 2 * 4 * 8
    assert TINY.peak_flops == 2 * 64 * 1e9
    assert TINY.peak_vector_flops == 16e9
    assert TINY.element_bytes == 2


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_chips_reproduce_their_published_peak(file: Path) -> None:
    sheet = load_datasheet(file)
    assert sheet.accelerator.name == file.stem
    assert sheet.published is not None and sheet.published.tolerance <= 0.01
    error = abs(sheet.accelerator.peak_flops / sheet.published.peak_flops - 1)
    assert error <= sheet.published.tolerance


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_number_has_an_origin(file: Path) -> None:
    sheet = load_datasheet(file)
    stated = set(sheet.accelerator.values()) - {"name"}
    defaults = {"links", "link_bytes_s", "topology"}
    assert stated - defaults <= set(sheet.origins)
    for key, origin in sheet.origins.items():
        assert origin.source, f"{key} names no source"
        if "recalled" in origin.source:
            assert origin.estimated, f"{key} is recalled only, so it is estimated"


def test_all_promised_chips_are_shipped() -> None:
    promised = "a100 gaudi2 h100 max1550 mi250x mi300x nvdla-like tpu-v2 tpu-v3 tpu-v4"
    assert [file.stem for file in SHIPPED] == promised.split()


def test_origins_of_groups_and_of_keys(tmp_path: Path) -> None:
    sheet = load_datasheet(write(tmp_path, GOOD))
    assert sheet.accelerator == replace(TINY, name="mine")
    assert sheet.origins["tensor_cores"] == Origin("datasheet")
    assert sheet.origins["vector_cores"] == Origin("", estimated=True)
    assert sheet.origins["vector_lanes"] == Origin("slides")
    assert sheet.estimated == ("vector_cores",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', "", "name: expected lower-case letters.*got None"),
        ('name = "mine"', 'name = "Mine!"', "name: expected lower-case.*got 'Mine!'"),
        ('name = "mine"', 'name = "mine"\ntitle = 3', "title: expected a text, got 3"),
        ("rows = 4", "rows = 0", "tensor.rows: expected a whole number of at least 1, got 0"),
        ("rows = 4", "rows = 4.5", "tensor.rows: expected a whole number.*got 4.5"),
        ("rows = 4", "rows = true", "tensor.rows: expected a whole number.*got True"),
        ("rows = 4", 'rows = "4"', "tensor.rows: expected a whole number.*got '4'"),
        ("rows = 4\n", "", "tensor.rows: expected a value, got none"),
        ("rows = 4", "row = 4", "tensor.row: expected one of cores, rows, columns"),
        ('"ws"', '"rs"', "tensor.dataflow: expected one of ws, os, is, got 'rs'"),
        ('"bfloat16"', '"int3"', "tensor.dtype: expected one of float32, bfloat16.*'int3'"),
        (
            "rows = 4",
            "rows = 1e30",
            "tensor.rows: expected a number of at most 1.04858e\\+06, got 1e",
        ),
        ("rows = 4", "rows = 1" + 400 * "0", "tensor.rows: expected a whole number.*got 1000"),
        ("frequency_hz = 1e9", "frequency_hz = 1e30", "frequency_hz: expected a number of at most"),
        ("frequency_hz = 1e9", "frequency_hz = nan", "frequency_hz: expected a finite number"),
        ("frequency_hz = 1e9", "frequency_hz = -1", "a finite number above 0, got -1"),
        ("[memory]", "[memori]", "memori: expected one of name, title, tensor"),
        ("[tensor]\nsource", "[tensor]\nsauce", "tensor.sauce: expected one of"),
        ('[tensor]\nsource = "datasheet"', "[tensor]", 'tensor.cores: expected source = "..."'),
        ('[tensor]\nsource = "datasheet"', "[tensor]\nsource = 7", "tensor.source: expected a te"),
        ("estimated = true", "estimated = 1", "vector.estimated: expected true or false, got 1"),
        ('source = "slides" }', "origin = 1 }", "vector.lanes.origin: expected one of value"),
        ('16, source = "slides" }', "16 }", 'vector.lanes: expected source = "..."'),
        ("value = 16, ", "", "vector.lanes: expected a whole number of at least 1, got None"),
        ("[tensor]", "[tensor", "expected a TOML file, got a syntax error"),
        ("[memory]", '[links]\nsource = "x"\ntopology = "star"\n[memory]', "links.topology: expe"),
        ("[memory]", "[published]\npeak_flops = 1\n[memory]", "published: expected a table with"),
        (
            "[memory]",
            '[published]\npeak_flops = 0\ntolerance = 1\nsource = "x"\n[memory]',
            "published.peak_flops: expected a number above 0, got 0",
        ),
    ],
)
def test_bad_toml_names_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(TargetError, match=message) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value).removeprefix(str(file)) or "syntax" in message


def test_missing_table_and_missing_file(tmp_path: Path) -> None:
    text = re.sub(r"\[memory\].*", "", GOOD, flags=re.DOTALL)
    with pytest.raises(TargetError, match=r"memory: expected a table \[memory\] with bytes"):
        load(write(tmp_path, text))
    with pytest.raises(InputError, match="expected a readable accelerator file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InputError, match="expected a writable accelerator file"):
        save(TINY, tmp_path / "no" / "folder.toml")


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_saving_a_datasheet_keeps_all(file: Path, tmp_path: Path) -> None:
    sheet = load_datasheet(file)
    assert load_datasheet(save(sheet, tmp_path / "copy.toml")) == sheet


def test_a_bare_design_is_saved_as_estimated(tmp_path: Path) -> None:
    sheet = load_datasheet(save(TINY, tmp_path / "tiny.toml", source="mined for BERT-base"))
    assert sheet.accelerator == TINY
    assert set(sheet.estimated) == set(TINY.values()) - {"name"}
    assert sheet.origins["tensor_rows"] == Origin("mined for BERT-base", estimated=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.toml"]


counts, sizes, reals = st.integers(1, 1 << 20), st.integers(1, 1 << 50), st.floats(1e-3, 1e18)


@settings(max_examples=60, deadline=None)
@given(
    accelerator=st.builds(
        Accelerator,
        name=st.text("abcxyz019.-_", min_size=1),
        tensor_cores=counts,
        tensor_rows=counts,
        tensor_columns=counts,
        vector_cores=counts,
        vector_lanes=counts,
        frequency_hz=reals,
        dtype=st.sampled_from(list(DTYPE_BYTES)),
        dataflow=st.sampled_from(DATAFLOWS),
        shared_buffer_bytes=sizes,
        core_buffer_bytes=sizes,
        memory_bytes=sizes,
        memory_bytes_s=reals,
        on_chip_bytes_s=reals,
        links=st.integers(0, 64),
        link_bytes_s=st.floats(0, 1e12),
        topology=st.sampled_from(TOPOLOGIES),
        tdp_w=st.none() | reals,
        area_mm2=st.none() | reals,
        process_nm=st.none() | reals,
    ),
    title=st.text('ab c"é\n', max_size=20),
    source=st.text("ab\"'\\\n\t\x7f\x00é", min_size=1).filter(str.strip),
)
def test_any_design_round_trips(
    accelerator: Accelerator, title: str, source: str, tmp_path_factory: Any
) -> None:
    origins = {key: Origin(source) for key in accelerator.values() if key != "name"}
    sheet = Datasheet(accelerator, title, origins, Published(1.5, 0.1, source))
    file = save(sheet, tmp_path_factory.mktemp("sheet") / "x.toml")
    assert load_datasheet(file) == sheet


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor_rows": 0}, "tensor_rows: expected a whole number of at least 1, got 0"),
        ({"memory_bytes_s": float("inf")}, "memory_bytes_s: expected a finite number above 0"),
        ({"links": -1}, "links: expected a whole number of at least 0, got -1"),
        ({"topology": "star"}, "topology: expected one of none, ring"),
        ({"tdp_w": 0}, "tdp_w: expected a finite number above 0, got 0"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        replace(TINY, **change)


def test_whole_floats_become_whole_numbers() -> None:
    made = replace(TINY, memory_bytes=16e9)  # type: ignore[arg-type]
    assert made.memory_bytes == 16_000_000_000 and isinstance(made.memory_bytes, int)
