"""The hub benchmark: its statistics, its rivals, and a whole run on recordings made up here."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import hub
import hub_rivals
import numpy as np
import pytest

from tunerplugin.sources.kernel_tuner import read_cache

needs_kernel_tuner = pytest.mark.skipif(
    importlib.util.find_spec("kernel_tuner") is None, reason="kernel_tuner is not installed"
)
AXES = {"block_size_x": [16, 32, 64, 128], "tile_size_x": [1, 2, 3, 4], "use_padding": [0, 1]}
DEVICES = {"A4000": 0, "A6000": 0, "A100": 1, "MI250X": 2}


def content(device: str, shift: int) -> dict[str, Any]:
    cache = {}
    for block in AXES["block_size_x"]:
        for tile in AXES["tile_size_x"]:
            for padding in (0, 1):
                time: Any = 1 + abs(np.log2(block / 32) - shift) + abs(tile - 2) / 3 + padding / 9
                time = "RuntimeFailedConfig" if block * tile > 256 else float(time)
                entry = {"block_size_x": block, "tile_size_x": tile, "use_padding": padding}
                cache[f"{block},{tile},{padding}"] = entry | {"time": time}
    head = {"device_name": device, "kernel_name": "blur", "problem_size": [512, 512]}
    return head | {"tune_params_keys": list(AXES), "tune_params": AXES, "cache": cache}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub of one space on four GPUs, and a fifth GPU's file beside it."""
    made = tmp_path_factory.mktemp("hub")
    (made / "convolution_milo").mkdir()
    for device, shift in DEVICES.items():
        text = json.dumps(content(device, shift)).encode()
        (made / "convolution_milo" / f"{device}.json.gz").write_bytes(gzip.compress(text))
    (made / "W7800.json").write_text(json.dumps(content("AMD Radeon PRO W7800", 2)))
    return made


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    out = folder / "rows.json"
    common = ["--data", str(folder), "--quick", "--alone", "--format", "json", "--out", str(out)]
    hub.main([*common, *arguments])
    rows: list[dict[str, Any]] = json.loads(out.read_text())[1:]
    return rows


def test_every_gpu_is_left_out_once(folder: Path) -> None:
    rows = run(folder)
    values = {(r["case"], r["method"], r["metric"]): r["value"] for r in rows}
    metrics = ["fraction_at_0", "best_of_10", *(f"fraction_at_{n}" for n in (10, 25, 50, 100))]
    for gpu in [*DEVICES, None]:
        case = f"convolution_milo/{gpu}" if gpu else "all"
        for method in ("ours", "mean_rank", "random"):
            found = [values[case, method, metric] for metric in metrics]
            assert all(0 <= value <= 1 for value in found), (case, method, found)
            assert found[2:] == sorted(found[2:])
            assert found[-1] == 1.0  # 32 configurations, all tried
    for row in rows:
        assert row["low"] <= row["value"] <= row["high"]
    # the other GPU of that architecture has the same optimum
    assert values["convolution_milo/A4000", "ours", "fraction_at_0"] == 1.0
    mean = np.mean([values[f"convolution_milo/{g}", "ours", "fraction_at_0"] for g in DEVICES])
    assert values["all", "ours", "fraction_at_0"] == pytest.approx(mean)


def test_a_gpu_that_is_not_of_the_hub(folder: Path) -> None:
    rows = run(folder, "--cache", str(folder / "W7800.json"), "--seeds", "2")
    assert {row["case"] for row in rows} == {"convolution_milo/W7800", "all"}
    assert {"ours", "mean_rank", "random"} <= {row["method"] for row in rows}


def test_what_is_left_out_is_left_out(folder: Path) -> None:
    cases = hub.read_cases(folder)
    assert [case.name for case in cases] == [f"convolution_milo/{g}" for g in sorted(DEVICES)]
    for case in cases:
        others = hub.others_of(case, cases)
        assert {other.gpu for other in others} == set(DEVICES) - {case.gpu}


def test_bad_input_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="got none"):
        hub.read_cases(tmp_path)
    strange = content("A100", 0) | {"kernel_name": "gemm"}
    (tmp_path / "strange.json").write_text(json.dumps(strange))
    with pytest.raises(SystemExit, match="got gemm with block_size_x"):
        hub.outside_case(tmp_path / "strange.json", hub.read_cases(folder))


def test_files_that_cannot_be_used_are_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "A100.json.gz").write_bytes(gzip.compress(b"{}"))
    for arguments, said in (
        (["--data", str(folder), "--cache", "nowhere.json"], "got No such file or directory"),
        (["--data", str(tmp_path)], "expected tune_params_keys to be a list in"),
    ):
        with pytest.raises(SystemExit) as stopped:
            hub.main(["--alone", *arguments])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
    text = json.dumps(content("A100", 0)).encode()
    (tmp_path / "space" / "A100.json.gz").write_bytes(gzip.compress(text))
    with pytest.raises(SystemExit, match="run without --quick"):
        hub.main(["--alone", "--quick", "--data", str(tmp_path)])


def test_table_takes_the_median_over_seeds_and_the_mean_over_cases() -> None:
    table = hub.Table()
    for case, seeds in (("a", [0.2, 0.4, 0.9]), ("b", [0.6, 1.0, 0.5])):
        for value in seeds:
            table.add_curve(case, "ours", [0.1, value, 0.05])
    table.add("a", "partial", "fraction_at_10", 0.5)
    table.add_curve("a", "nothing", [])
    rows = {(r.case, r.method, r.metric): (r.value, r.low, r.high) for r in table.rows("ab")}
    assert rows["a", "ours", "fraction_at_50"] == (0.4, 0.2, 0.9)
    assert rows["all", "ours", "fraction_at_10"] == pytest.approx((0.7, 0.4, 0.7))
    assert ("all", "partial", "fraction_at_10") not in rows
    assert rows["a", "nothing", "fraction_at_10"] == (0, 0, 0)


def test_proposals_count_before_trials() -> None:
    table = hub.Table()
    table.add_proposal("a", "ours", [0.5, *[0.1] * 8, 0.7, 1.0])
    found = {key[2]: values for key, values in table.samples.items()}
    assert found == {"fraction_at_0": [0.5], "best_of_10": [0.7]}


@needs_kernel_tuner
def test_strategies_see_the_recording(folder: Path, tmp_path: Path) -> None:
    """Their trials are recorded configurations, and simulation finds what was recorded."""
    recording = read_cache(folder / "convolution_milo" / "A100.json.gz")
    simulation = hub_rivals.Simulation(recording, tmp_path)
    assert {"random_sample", "genetic_algorithm", "bayes_opt"} <= set(hub_rivals.strategy_names())
    whole = simulation.run("brute_force", 100, 0)
    assert sorted(whole) == sorted(map(recording.quality, recording.outcomes))
    found = simulation.run("random_sample", 10, 0)
    assert len(found) == 10
    assert set(found) <= set(whole)
    assert found == simulation.run("random_sample", 10, 0)


@needs_kernel_tuner
def test_a_strategy_that_never_ends_is_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a space that is used up, and without harm to the next."""
    recording = read_cache(folder / "convolution_milo" / "A100.json.gz")
    simulation = hub_rivals.Simulation(recording, tmp_path)
    monkeypatch.setattr(hub_rivals, "DEADLINE_S", 2.0)
    with pytest.raises(TimeoutError, match="no end after 2 s"):
        simulation.run("hybrid_vndx", 100, 0)
    assert len(simulation.run("random_sample", 10, 0)) == 10
