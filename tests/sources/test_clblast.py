"""CLBlast's best parameters: read, written back, learnt and predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.hub_cases import SHARED
from tunerplugin.errors import InputError, RecordError
from tunerplugin.predictor import Predictor
from tunerplugin.search import UniformScorer
from tunerplugin.sources.clblast import (
    BestParameters,
    ClblastDevice,
    ClblastSpace,
    examples,
    predict,
    problem_of,
    read_clblast,
    spaces_of,
)
from tunerplugin.space import Prefix, Space
from tunerplugin.testing.spaces import SpaceConformance

FILE = SHARED / "clblast" / "clblast_best_params.json"
needs_file = pytest.mark.skipif(not FILE.is_file(), reason="CLBlast's records are not here")

TURING = ClblastDevice("NVIDIA", "GPU", "SM7.5", "NVIDIA GeForce RTX 2080 Ti")


def entry(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kernel": "Xdot",
        "precision": "Single",
        "device_type": "GPU",
        "vendor": "NVIDIA",
        "arch": "SM7.5",
        "device": "NVIDIA GeForce RTX 2080 Ti",
        "params": {"WGS1": 128, "WGS2": 32},
    }
    return made | changes


def small() -> list[dict[str, Any]]:
    """Two vendors that prefer different parameters, for one kernel."""
    made = [
        entry(vendor=vendor, arch=arch, device=f"{vendor} {n}", params=params)
        for vendor, arch, params in (
            ("NVIDIA", "SM7.5", {"WGS1": 128, "WGS2": 32}),
            ("AMD", "gfx1030", {"WGS1": 64, "WGS2": 64}),
            ("Intel", "Gen9", {"WGS1": 32, "WGS2": 128}),
        )
        for n in range(10, 14)
    ]
    return [*made, entry(device="(default)", params={"WGS1": 64, "WGS2": 32})]


def read(folder: Path, made: Any) -> tuple[BestParameters, ...]:
    path = folder / "best.json"
    path.write_text(json.dumps(made))
    return read_clblast(path)


class TestSpace(SpaceConformance):
    exact_on_prefixes = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_space(self) -> Space:
        return ClblastSpace("Xdot", read(self.folder, small()))

    def make_others(self) -> list[Space]:
        return [ClblastSpace("Xaxpy", read(self.folder, small()))]

    def is_legal(self, values: Prefix) -> bool:
        return values in {(128, 32), (64, 64), (32, 128), (64, 32)}


def test_round_trip(tmp_path: Path) -> None:
    records = read(tmp_path, small())
    assert [record.to_json() for record in records] == small()
    space = spaces_of(records)["Xdot"]
    for record in records:
        assert space.contains(record.values)
        assert space.parameters(record.values) == dict(record.parameters)


def test_words_of_a_device() -> None:
    words = problem_of("Xgemm", "ComplexDouble", TURING).words
    assert ("bits", 128) in words
    assert ("architecture_part", "sm") in words
    assert ("architecture_part", 7.5) in words
    assert ("device_part", "rtx") in words
    assert ("device_part", 2080) in words
    odd = ClblastDevice("", "", "gfx90c:xnack-", "x" * 9 + "9" * 5000)
    assert ("architecture_part", 90) in odd.words
    assert ("device_part", "9" * 5000) in odd.words


def test_examples_leave_out_computed_defaults(tmp_path: Path) -> None:
    records = read(tmp_path, small())
    made = examples(records, spaces_of(records))
    assert len(made) == 12
    assert {example.quality for example in made} == {1.0}
    assert made[0].problem == records[0].problem
    assert made[0].values == (128, 32)


def test_a_device_that_was_never_seen(tmp_path: Path) -> None:
    """Gets what its vendor's other devices have; the whole beam is the space."""
    records = read(tmp_path, small())
    spaces = spaces_of(records)
    predictor = Predictor(seed=0)
    predictor.fit(examples(records, spaces), epochs=40)
    for vendor, arch, best in (("NVIDIA", "SM7.5", 128), ("AMD", "gfx1030", 64)):
        device = ClblastDevice(vendor, "GPU", arch, f"{vendor} 99")
        found = predict(predictor, spaces["Xdot"], problem_of("Xdot", "Single", device), top=9)
        assert found[0]["WGS1"] == best
        assert len(found) == 4


def test_predictions_are_what_was_best_somewhere(tmp_path: Path) -> None:
    records = read(tmp_path, small())
    space = spaces_of(records)["Xdot"]
    found = predict(UniformScorer(), space, problem_of("Xdot", "Half", TURING), top=2)
    assert len(found) == 2
    assert all(tuple(one.values()) in {record.values for record in records} for one in found)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ({}, "a list of records"),
        ([], "a list of records"),
        ([3], "record 0"),
        ([entry(), entry(vendor=None)], "record 1"),
        ([entry(params=[1])], "record 0"),
        ([entry(params={})], "0 parameters"),
        ([entry(params={"WGS1": 1.5})], "WGS1"),
        ([entry(params={"WGS1": True})], "WGS1"),
        ([entry(precision="Quarter")], "'Quarter'"),
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, made: Any, named: str) -> None:
    with pytest.raises(RecordError, match="expected .* got ") as caught:
        read(tmp_path, made)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_clblast(tmp_path / "missing.json")
    (tmp_path / "torn.json").write_text(json.dumps(small())[:-20])
    with pytest.raises(RecordError, match="whole JSON"):
        read_clblast(tmp_path / "torn.json")
    with pytest.raises(InputError, match="'Quarter'"):
        problem_of("Xdot", "Quarter", TURING)
    mixed = read(tmp_path, [entry(), entry(params={"WGS2": 32, "WGS1": 128})])
    with pytest.raises(RecordError, match="same parameters"):
        spaces_of(mixed)


@needs_file
def test_all_records() -> None:
    records = read_clblast(FILE)
    assert len(records) == 12_231
    assert [record.to_json() for record in records] == json.loads(FILE.read_text())
    spaces = spaces_of(records)
    assert len(spaces) == 16
    gemm = [record for record in records if record.kernel == "Xgemm"]
    assert {record.values for record in gemm} == set(spaces["Xgemm"].enumerate())
    devices = {r.device for r in gemm if r.device.name != "(default)"}
    assert len({example.problem for example in examples(gemm, spaces)}) > len(devices)
