"""Technology presets, area and power."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.hw.test_accelerator import TINY
from tunerplugin.errors import InputError, TargetError
from tunerplugin.hw.estimate.design import area, power
from tunerplugin.hw.estimate.technology import Technology, technologies, technology
from tunerplugin.hw.target import chip

PRESETS = Path(__file__).resolve().parents[2] / "hw" / "technology"
TEXT = (PRESETS / "7nm-macro.toml").read_text(encoding="utf-8")
MIB = 1 << 20


def test_presets_cite_every_constant() -> None:
    assert technologies() == ["7nm-cache", "7nm-macro", "wham-45nm"]
    constants = {field.name for field in fields(Technology) if field.type == "float"}
    for name in technologies():
        preset = technology(name)
        assert preset.name == name
        assert set(preset.origins) == constants - {"node_nm"}
        assert all(origin.source for origin in preset.origins.values())


def test_area_and_power_by_hand() -> None:
    tech = replace(
        technology("7nm-macro"),
        name="by hand",
        mac_um2=1000.0,
        vector_lane_um2=2000.0,
        sram_mm2_per_mib=1.0,
        core_sram_mm2_per_mib=2.0,
        memory_mm2_per_tb_s=30.0,
        link_mm2=0.5,
        other_share=0.5,
        mac_pj=1.0,
        vector_op_pj=10.0,
        sram_pj_per_byte=2.0,
        memory_pj_per_byte=30.0,
        static_w_per_mm2=0.1,
    )
    design = replace(
        TINY, shared_buffer_bytes=4 * MIB, core_buffer_bytes=MIB // 2, links=2, link_bytes_s=1e9
    )
    found = area(design, tech)
    assert found.technology == "by hand"
    parts = (64e-3, 32e-3, 4.0, 2.0, 3.0, 1.0)
    assert found.total_mm2 == pytest.approx(2 * sum(parts))
    assert found.other_mm2 == pytest.approx(sum(parts))
    watts = power(design, tech)
    assert watts.tensor_w == pytest.approx(64 * 1e9 * 1e-12)
    assert watts.vector_w == pytest.approx(16 * 1e9 * 10e-12)
    assert watts.on_chip_w == pytest.approx(2.0)
    assert watts.memory_w == pytest.approx(3.0)
    assert watts.static_w == pytest.approx(0.1 * found.total_mm2)
    assert watts.total_w == pytest.approx(0.064 + 0.16 + 2 + 3 + 0.2 * sum(parts))


def test_whams_ceiling() -> None:
    """<8 TC, 2 VC, 128x128, 128, 128 MB> is 278.83 mm^2 in the published table."""
    design = replace(
        TINY,
        tensor_cores=8,
        tensor_rows=128,
        tensor_columns=128,
        vector_cores=2,
        vector_lanes=128,
        shared_buffer_bytes=128 * MIB,
    )
    assert area(design, technology("wham-45nm")).total_mm2 == pytest.approx(278.83, rel=2e-3)


@pytest.mark.parametrize("name", ["tpu-v4", "a100", "gaudi2"])
def test_seven_nanometre_chips_are_within_a_factor_of_their_power(name: str) -> None:
    """No fit: constants from papers, chips from datasheets; published power is board or maximum."""
    published = chip(name).tdp_w
    assert published is not None
    for preset in ("7nm-macro", "7nm-cache"):
        watts = power(chip(name), technology(preset)).total_w
        assert 0.4 < watts / published < 1.5


def test_the_presets_differ_where_they_say() -> None:
    macro, cache = (area(chip("tpu-v4"), technology(f"7nm-{kind}")) for kind in ("macro", "cache"))
    assert cache.tensor_mm2 == macro.tensor_mm2
    assert cache.shared_buffer_mm2 > 4 * macro.shared_buffer_mm2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "7nm-macro"', "name = 7", "name and title: expected texts, got 7"),
        ("node_nm = 7", "", "node_nm: expected a finite number of at least 0, got None"),
        ("node_nm = 7", "node = 7", "node: expected one of name, title, node_nm, area, energy"),
        ("[energy]", "[energies]", "energies: expected one of"),
        ("mac_um2 =", "mac_mm2 =", "area.mac_mm2: expected one of mac_um2"),
        ("value = 1526.0", "value = -1", "mac_um2: expected a finite number of at least 0, got -1"),
        ("value = 1526.0, ", "", "mac_um2: expected a finite number of at least 0, got None"),
        ("value = 0.145", "value = 1", "other_share: expected a share from 0 to below 1, got 1"),
        ("link_mm2 = { value = 0.965, source", "link_mm2 = { value = 0.965, origin", "link_mm2"),
        ("[area]", "[area", "expected a TOML file, got a syntax error"),
    ],
)
def test_bad_files_name_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TEXT
    file = tmp_path / "own.toml"
    file.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(TargetError, match=message) as caught:
        technology(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TEXT.replace("7nm-macro", "own").replace("1526.0", "900"), encoding="utf-8")
    assert technology(file).mac_um2 == 900.0
    assert technology(technology(file)).name == "own"
    with pytest.raises(InputError, match="expected a readable technology file"):
        technology(tmp_path / "none.toml")
    missing = "\n".join(line for line in TEXT.splitlines() if not line.startswith("mac_pj"))
    file.write_text(missing, encoding="utf-8")
    with pytest.raises(TargetError, match="energy.mac_pj: expected a value, got none"):
        technology(file)
