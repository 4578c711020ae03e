"""Kernel Tuner's cache files: every kind of outcome, and damage told in one sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.hub_cases import (
    HUB,
    NAMES,
    content,
    milliseconds,
    needs_hub,
    recorded,
    write_cache,
)
from tunerplugin.errors import InputError, RecordError, TunerError
from tunerplugin.outcome import Status
from tunerplugin.sources.kernel_tuner import read_cache

FIRST = "16,1,0"


def test_what_a_file_says(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    assert (recording.kernel, recording.device) == ("blur", "NVIDIA RTX A4000")
    assert recording.names == NAMES
    assert recording.problem_size == (4096, 4096)
    assert len(recording.outcomes) == 15
    outcome = recording.outcomes[16, 1, 0]
    assert outcome.latency_s == pytest.approx(milliseconds(16, 1, 0) * 1e-3)
    assert outcome.wall_s == pytest.approx(0.5)
    assert recording.best_s == pytest.approx(1e-3)
    assert recording.quality((32, 2, 0)) == 1.0
    assert recording.quality((64, 3, 0)) == 0.0
    assert recording.quality((64, 3, 1)) == 0.0


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"time": "InvalidConfig"}, Status.ILLEGAL),
        ({"time": "CompilationFailedConfig"}, Status.COMPILE_ERROR),
        ({"time": "RuntimeFailedConfig"}, Status.RUN_ERROR),
        ({"__error__": "RuntimeFailedConfig"}, Status.RUN_ERROR),
        ({"time": 1e20}, Status.RUN_ERROR),
        ({"time": float("nan")}, Status.NON_FINITE),
        ({"time": float("inf")}, Status.NON_FINITE),
        ({"time": 10**400}, Status.NON_FINITE),
        ({"time": 0}, Status.NON_FINITE),
        ({"time": -1.5}, Status.NON_FINITE),
        ({"time": 3}, Status.OK),
        ({"time": 2.5, "times": [1, 4], "compile_time": "soon"}, Status.OK),
    ],
)
def test_each_outcome(tmp_path: Path, entry: dict[str, Any], status: Status) -> None:
    made = content()
    parameters = {name: made["cache"][FIRST][name] for name in NAMES}
    made["cache"][FIRST] = parameters | entry
    recording = read_cache(write_cache(tmp_path / "cache.json.gz", made))
    assert recording.outcomes[16, 1, 0].status is status


def test_a_driver_without_a_name_is_called_by_its_file(tmp_path: Path) -> None:
    path = write_cache(tmp_path / "MI250X.json.gz", content(device=""))
    assert read_cache(path).device == "MI250X"


def test_booleans_are_numbers_and_a_size_may_be_a_number(tmp_path: Path) -> None:
    made = content() | {"problem_size": 20000000}
    made["tune_params"]["use_padding"] = [False, True]
    for entry in made["cache"].values():
        entry["use_padding"] = bool(entry["use_padding"])
    recording = read_cache(write_cache(tmp_path / "cache.json", made))
    assert recording.domains[2] == (0, 1)
    assert recording.problem_size == (20000000,)


@pytest.mark.parametrize("end", ["", ",", ",\n", "\n"])
def test_a_file_whose_tuner_still_runs(tmp_path: Path, end: str) -> None:
    """Kernel Tuner leaves the braces open, with or without a comma."""
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(content())[:-2] + end)
    assert len(read_cache(path).outcomes) == 15


def _changed(path: list[str], value: Any) -> dict[str, Any]:
    made = content()
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ([1], "tune_params_keys"),
        (_changed(["cache"], []), "cache"),
        (_changed(["cache"], {}), "measurements"),
        (_changed(["kernel_name"], 3), "kernel_name"),
        (_changed(["tune_params_keys"], "abc"), "tune_params_keys"),
        (_changed(["tune_params_keys"], [["x"]]), "parameter ['x']"),
        (_changed(["tune_params_keys"], []), "parameters"),
        (_changed(["tune_params", "use_padding"], 3), "'use_padding'"),
        (_changed(["tune_params", "use_padding"], [0, None]), "'use_padding'"),
        (_changed(["cache", FIRST], 7), FIRST),
        (_changed(["cache", FIRST, "block_size_x"], 17), "block_size_x"),
        (_changed(["cache", FIRST, "block_size_x"], [16]), "block_size_x"),
        (_changed(["cache", FIRST, "block_size_x"], None), "block_size_x"),
        (_changed(["cache", FIRST, "time"], "Surprise"), "'Surprise'"),
        (_changed(["cache", FIRST, "time"], None), FIRST),
        (_changed(["cache", FIRST, "time"], [1.0]), FIRST),
        (_changed(["cache", FIRST, "time"], True), FIRST),
    ],
)
def test_wrong_types_are_one_sentence(tmp_path: Path, made: Any, named: str) -> None:
    path = write_cache(tmp_path / "cache.json", made)
    with pytest.raises(RecordError, match="expected .* got ") as caught:
        read_cache(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_cut_file_is_damaged_or_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Never a traceback, and never an entry that is not in the whole file."""
    text = json.dumps(content())
    path = tmp_path_factory.mktemp("cut") / "cache.json"
    path.write_text(text[: data.draw(st.integers(0, len(text)))])
    try:
        found = read_cache(path).outcomes
    except RecordError as error:
        assert "\n" not in str(error)
        return
    path.write_text(text)
    whole = read_cache(path).outcomes
    assert found.items() <= whole.items()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_archive_is_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bit flips and cuts of the compressed file."""
    packed = bytearray(gzip.compress(json.dumps(content()).encode(), mtime=0))
    place = data.draw(st.integers(10, len(packed) - 1))
    packed[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flip") / "cache.json.gz"
    path.write_bytes(packed[: data.draw(st.integers(place, len(packed)))])
    with pytest.raises(RecordError, match="expected") as caught:
        read_cache(path)
    assert str(path) in str(caught.value)


def test_what_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_cache(tmp_path / "missing.json")
    with pytest.raises(InputError, match="directory"):
        read_cache(tmp_path)
    path = tmp_path / "cache.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="UTF-8"):
        read_cache(path)
    path.write_text("[" * 100_000)
    with pytest.raises(TunerError, match="nested|whole JSON"):
        read_cache(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunerplugin.sources.kernel_tuner.files.MAX_BYTES", 1000)
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(RecordError, match="at most 1000 bytes"):
        read_cache(path)


def test_nothing_ran(tmp_path: Path) -> None:
    made = content()
    for entry in made["cache"].values():
        entry["time"] = "RuntimeFailedConfig"
    recording = read_cache(write_cache(tmp_path / "cache.json", made))
    with pytest.raises(RecordError, match="got 15 that did not"):
        _ = recording.best_s


@needs_hub
@pytest.mark.parametrize(
    ("file", "counts"),
    [
        (
            "convolution/RTX_2080_Ti",
            {Status.OK: 5256, Status.COMPILE_ERROR: 1426, Status.RUN_ERROR: 86},
        ),
        ("pnpoly/RTX_3090", {Status.OK: 3774, Status.RUN_ERROR: 318}),
    ],
)
def test_files_of_the_hub(file: str, counts: dict[Status, int]) -> None:
    recording = read_cache(HUB / f"{file}.json.gz")
    statuses = [outcome.status for outcome in recording.outcomes.values()]
    assert {status: statuses.count(status) for status in set(statuses)} == counts
