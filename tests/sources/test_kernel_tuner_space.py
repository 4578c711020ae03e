"""Kernel Tuner's spaces: T1 files, conditions as constraints, recorded sets, words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.hub_cases import DOMAINS, HUB, NAMES, needs_hub, recorded, t1
from tunerplugin.errors import InputError, SpaceError
from tunerplugin.search import BeamSearch, Explored, UniformScorer
from tunerplugin.sources.kernel_tuner import (
    Condition,
    KernelTunerSpace,
    Recorded,
    References,
    device_words,
    find_gpu,
    likeness,
    parameter_words,
    parse_expression,
    problem_of,
    read_cache,
    read_space_file,
    space_of_file,
    space_of_recordings,
)
from tunerplugin.space import Constraint, ListSpace, Prefix, Space
from tunerplugin.testing.spaces import ConstraintConformance, SpaceConformance

CONDITIONS = [
    "use_padding == 0 or block_size_x % 64 != 0",
    "32 <= block_size_x * tile_size_x <= 128",
]


def file_space(tmp_path: Path, conditions: list[str]) -> KernelTunerSpace:
    path = tmp_path / "blur.json"
    path.write_text(json.dumps(t1(conditions)))
    return space_of_file(read_space_file(path))


class TestConditionedSpace(SpaceConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_space(self) -> Space:
        return file_space(self.folder, CONDITIONS)

    def make_others(self) -> list[Space]:
        return [KernelTunerSpace(NAMES, (*DOMAINS[:2], (0, 1, 2)), [])]

    def is_legal(self, values: Prefix) -> bool:
        block, tile, padding = (int(value) for value in values)
        return (padding == 0 or block % 64 != 0) and 32 <= block * tile <= 128


class TestRecordedSpace(SpaceConformance):
    exact_on_prefixes = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_space(self) -> Space:
        recording = recorded(self.folder)
        return space_of_recordings([recording], References("MI250X", [recording]))

    def is_legal(self, values: Prefix) -> bool:
        return values[0] != 64 or values[2] == 0


class TestCondition(ConstraintConformance):
    exact_on_prefixes = True

    def make_space(self) -> Space:
        return ListSpace(["a", "b", "c"], [(1, 2, 3, 4), (1, 2, 8), (0, 1)])

    def make_constraint(self) -> Constraint:
        text = parse_expression("c == 0 or a * b >= 16", ("a", "b", "c"))
        return Condition(text, ("a", "b", "c"), [(1, 2, 3, 4), (1, 2, 8), (0, 1)])

    def is_legal(self, values: Prefix) -> bool:
        return values[2] == 0 or int(values[0]) * int(values[1]) >= 16


class TestConditionWithoutLookAhead(TestCondition):
    exact_on_prefixes = False

    def make_constraint(self) -> Constraint:
        made = super().make_constraint()
        assert isinstance(made, Condition)
        made.MAX_LOOKAHEAD = 1
        return made


class TestRecorded(ConstraintConformance):
    exact_on_prefixes = True
    LEGAL = frozenset({(1, 5), (2, 6), (2, 5)})

    def make_space(self) -> Space:
        return ListSpace(["a", "b"], [(1, 2, 3), (5, 6)])

    def make_constraint(self) -> Constraint:
        return Recorded(self.LEGAL)

    def is_legal(self, values: Prefix) -> bool:
        return values in self.LEGAL


def test_look_ahead_sees_what_is_open() -> None:
    """5 * b can only be 32 or more with a b of 8, which the domain lacks."""
    condition = Condition(parse_expression("a * b >= 32", "ab"), "ab", [(5, 16), (1, 2, 4)])
    assert not condition.allows((5,))
    assert condition.allows((16,))
    assert condition.name == "a * b >= 32"


def test_a_division_by_zero_forbids_nothing_and_other_errors_are_told() -> None:
    divides = Condition(parse_expression("8 % a == 0", "a"), "a", [(0, 3)])
    assert divides.allows((0,))
    assert not divides.allows((3,))
    wrong = Condition(parse_expression("a + 'x' == 3", "a"), "a", [(0, 3)])
    with pytest.raises(InputError, match="to have a value"):
        wrong.allows((0,))


@needs_hub
@pytest.mark.parametrize(
    ("kernel", "gpu"), [("convolution_milo", "A4000"), ("dedispersion_milo", "A100")]
)
def test_the_recorded_configurations_are_the_space(kernel: str, gpu: str) -> None:
    """Exactly: what the conditions allow was measured, and nothing else was."""
    recording = read_cache(HUB / kernel / f"{gpu}.json.gz")
    space = space_of_file(read_space_file(HUB / "kernels" / f"{kernel}.json"))
    assert space.names == recording.names
    legal = list(space.enumerate())
    assert len(legal) == len(recording.outcomes)
    assert set(legal) == set(recording.outcomes)
    assert list(space_of_recordings([recording]).enumerate()) == legal


@needs_hub
def test_value_lists_that_are_computed() -> None:
    file = read_space_file(HUB / "kernels" / "hotspot_milo.json")
    domains = dict(zip(file.names, file.domains, strict=True))
    assert domains["block_size_x"] == (1, 2, 4, 8, 16, *range(32, 1025, 32))
    assert domains["block_size_y"] == (1, 2, 4, 8, 16, 32)
    assert file.problem_size == (4096, 4096)


def test_a_beam_as_wide_as_the_space_is_the_space(tmp_path: Path) -> None:
    space = file_space(tmp_path, CONDITIONS)
    legal = list(space.enumerate())
    problem = problem_of("blur", "A100", space.names)
    beam = BeamSearch(problem, space, UniformScorer(), Explored(space))
    found = beam.search(2 * len(legal), np.random.default_rng(0))
    assert sorted(candidate.values for candidate in found) == sorted(legal)


def _without(key: str) -> dict[str, Any]:
    made: dict[str, Any] = t1(CONDITIONS)
    del made["ConfigurationSpace"][key]
    return made


def _with_values(values: Any) -> dict[str, Any]:
    made: dict[str, Any] = t1([])
    made["ConfigurationSpace"]["TuningParameters"][1]["Values"] = values
    return made


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ([], "ConfigurationSpace"),
        ({"ConfigurationSpace": 3}, "ConfigurationSpace"),
        (_without("TuningParameters"), "TuningParameters"),
        (_with_values("[1, 1]"), "'tile_size_x'"),
        (_with_values("3"), "'tile_size_x'"),
        (_with_values("[]"), "'tile_size_x'"),
        (_with_values([1, [2]]), "'tile_size_x'"),
        (_with_values("[open('x')]"), "a call of open"),
        (_with_values(None), "'tile_size_x'"),
        (t1(["block_size_x * tile <= 3"]), "'tile'"),
        (t1(["block_size_x.real"]), "Attribute"),
        (t1([3]), "condition 0"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, made: Any, named: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(made))
    with pytest.raises(InputError, match="expected .* got ") as caught:
        read_space_file(path)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_conditions_and_listed_values(tmp_path: Path) -> None:
    made = _with_values([1, True, "fast", 2.5])
    del made["ConfigurationSpace"]["Conditions"]
    path = tmp_path / "space.json"
    path.write_text(json.dumps(made))
    with pytest.raises(InputError, match="distinct"):  # True is 1
        read_space_file(path)
    path.write_text(json.dumps(_with_values([0, True, "fast", 2.5])))
    assert read_space_file(path).domains[1] == (0, 1, "fast", 2.5)


def test_recordings_of_two_kernels_are_no_space(tmp_path: Path) -> None:
    first = recorded(tmp_path)
    other = type(first)("blur", "X", (), ("a",), ((1,),), {})
    with pytest.raises(SpaceError, match="one kernel's files"):
        space_of_recordings([first, other])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("block_size_x", {("kind", "block_size"), ("axis", "x"), ("part", "block")}),
        ("use_padding", {("kind", "use_padding"), ("part", "padding")}),
        ("MWG", {("kind", "mwg")}),
        ("WPT1", {("kind", "wpt"), ("axis", "1")}),
        ("x", {("kind", "x")}),
        ("_", {("kind", "_")}),
    ],
)
def test_parameter_words(name: str, words: set[tuple[str, str]]) -> None:
    found = parameter_words(name)
    assert found[0] == ("knob", name)
    assert words <= set(found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("RTX_Titan", "TITAN RTX"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("AMD Radeon PRO W6600", "PRO W6600"),
        ("A4000", "RTX A4000"),
        ("NVIDIA GeForce RTX 3060", None),
        ("", None),
    ],
)
def test_gpus_are_found_by_whole_words(name: str, expected: str | None) -> None:
    found = find_gpu(name)
    assert (found.name if found else None) == expected


def test_devices_as_words() -> None:
    a100 = dict(device_words("NVIDIA A100-PCIE-40GB"))
    assert (a100["units"], a100["bandwidth_gb_s"], a100["wave"]) == (108, 1555, 32)
    assert a100["flops_per_byte"] == pytest.approx(19490 / 1555, rel=1e-3)  # 19.5 TFLOP/s
    assert device_words("Voodoo 2") == (("device", "Voodoo 2"),)
    assert likeness("A4000", "A6000") > likeness("A4000", "A100") > likeness("A4000", "MI250X")
    assert likeness("A4000", "Voodoo 2") == likeness("A4000", "W6600") == 1


def test_references_weigh_by_likeness(tmp_path: Path) -> None:
    alike = recorded(tmp_path, "NVIDIA RTX A6000")
    unlike = recorded(tmp_path, "MI250X", bias=1)
    references = References("NVIDIA RTX A4000", [unlike, alike])
    values = (32, 2, 0)
    assert alike.quality(values) == 1.0
    assert unlike.quality(values) == pytest.approx(1 / 1.5)
    assert references.speed(values) == pytest.approx((8 + 1 / 1.5) / 9)
    assert references.speeds(values) == {1.0: pytest.approx(1 / 1.5), 8.0: 1.0}
    assert references.speed((32, 2, 7)) is None
    assert references.words((32, 2, 7)) == ()
    space = space_of_recordings([alike], references)
    assert dict(space.describe(values)) == {
        "threads": 32,
        "elements": 2,
        "speed_at_likeness_1": 0.667,
        "speed_at_likeness_8": 1.0,
        "speed_elsewhere": 0.963,
    }
