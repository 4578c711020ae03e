"""T4 results files: ours fit the schema, and both ours and Kernel Tuner's are read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunerplugin.errors import RecordError
from tunerplugin.outcome import Outcome, Status
from tunerplugin.records import Record, T4Row, export_t4, import_t4
from tunerplugin.testing.records import make_record

NAMES = ("tile_x", "scale", "mode")


def one_of_each() -> list[Record]:
    records = [make_record(0)]
    for trial, status in enumerate((s for s in Status if s is not Status.OK), 1):
        records.append(replace(make_record(trial), outcome=Outcome(status, (), "why", 0.5)))
    return records


def assert_fits_schema(document: Any) -> None:
    """The requirements of results-schema.json 1.0.0, by hand."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["schema_version"])
    assert isinstance(document["results"], list)
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["configuration"], dict)
        assert isinstance(result["objectives"], list)
        assert result["invalidity"] in (
            "timeout",
            "compile",
            "runtime",
            "correctness",
            "constraints",
            "correct",
        )
        assert isinstance(result["correctness"], (int, float))
        times = dict(result["times"])
        assert isinstance(times.pop("runtimes"), list)
        for name in ("framework", "search_algorithm", "validation", *times):
            assert isinstance(times[name], (int, float))
        for measurement in result["measurements"]:
            assert isinstance(measurement["name"], str)
            assert isinstance(measurement["value"], (int, float, str, list))
            assert isinstance(measurement["unit"], str)


def test_export_fits_the_schema_and_says_the_right_things(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert export_t4(one_of_each(), path, lambda record: NAMES) == len(Status)
    document = json.loads(path.read_text())
    assert_fits_schema(document)
    assert document["schema_version"] == "1.0.0"
    good, *failures = document["results"]
    assert good["configuration"] == {"tile_x": 0, "scale": 2.5, "mode": "unroll"}
    assert good["times"]["runtimes"] == pytest.approx([1.0, 1.1])
    assert sum(v for k, v in good["times"].items() if k != "runtimes") == pytest.approx(250.0)
    assert (good["invalidity"], good["correctness"]) == ("correct", 1)
    measured = {m["name"]: (m["value"], m["unit"]) for m in good["measurements"]}
    assert measured["time"] == (pytest.approx(1.05), "ms")
    assert measured["method"] == ("ours", "") and measured["seed"] == (7, "")
    assert [(f["invalidity"], f["correctness"]) for f in failures] == [
        ("constraints", 0),
        ("compile", 0),
        ("compile", 0),
        ("runtime", 0),
        ("timeout", 0),
        ("correctness", 0),
        ("runtime", 0),
    ]
    assert all(f["times"]["runtimes"] == [] for f in failures)
    assert all("time" not in {m["name"] for m in f["measurements"]} for f in failures)


def test_round_trip_keeps_every_status(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    records = one_of_each()
    export_t4(records, path)
    rows = import_t4(path)
    assert [row.status for row in rows] == [record.outcome.status for record in records]
    for row, record in zip(rows, records, strict=True):
        assert tuple(row.configuration.values()) == record.values
        assert list(row.configuration) == ["knob0", "knob1", "knob2"]
        assert row.times_ms == pytest.approx([1e3 * s for s in record.outcome.samples_s])


def test_no_records(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert export_t4([], path) == 0
    assert_fits_schema(json.loads(path.read_text()))
    assert import_t4(path) == ()


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "b"), ("a", "b", "c", "d")])
def test_names_must_fit(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(RecordError, match="expected 3 distinct knob names, got"):
        export_t4([make_record()], tmp_path / "results.json", lambda record: names)
    assert list(tmp_path.iterdir()) == []


def write(path: Path, *results: object) -> Path:
    path.write_text(json.dumps({"results": results, "schema_version": "1.0.0"}))
    return path


def test_results_as_kernel_tuner_writes_them(tmp_path: Path) -> None:
    """Laid out as its store_output_file does: a failed one carries text in place of its time."""
    common = {"objectives": ["time"], "correctness": 1, "timestamp": "2023-01-24 01:03:17+00:00"}
    times = {"compilation": 350.9, "benchmark": 64.5, "framework": 0.5, "search_algorithm": 0}
    path = write(
        tmp_path / "results.json",
        {
            **common,
            "configuration": {"block_size_x": 32, "read_only": 0},
            "times": {**times, "validation": 0, "runtimes": [6.44, 6.41]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 6.425, "unit": "ms"}],
        },
        {
            **common,
            "configuration": {"block_size_x": 64, "read_only": 0},
            "times": times,
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 6.5, "unit": "ms"}],
        },
        {
            **common,
            "configuration": {"block_size_x": 1024, "read_only": 1},
            "times": {**times, "runtimes": []},
            "invalidity": "runtime",
            "measurements": [{"name": "time", "value": "RuntimeFailedConfig", "unit": "ms"}],
        },
    )
    assert import_t4(path) == (
        T4Row({"block_size_x": 32, "read_only": 0}, Status.OK, (6.44, 6.41)),
        T4Row({"block_size_x": 64, "read_only": 0}, Status.OK, (6.5,)),
        T4Row({"block_size_x": 1024, "read_only": 1}, Status.RUN_ERROR, ()),
    )


@pytest.mark.parametrize("samples", [[float("nan")], [1.0, 0.0], [-1.0], [True], ["fast"], []])
def test_unusable_times_are_never_fast(tmp_path: Path, samples: list[object]) -> None:
    result = {"configuration": {"x": 1}, "times": {"runtimes": samples}, "invalidity": "correct"}
    (row,) = import_t4(write(tmp_path / "results.json", result))
    assert (row.status, row.times_ms) == (Status.NON_FINITE, ())


def test_status_that_contradicts_is_not_believed(tmp_path: Path) -> None:
    """Our finer status counts only within the schema's own word."""
    result = {
        "configuration": {},
        "times": {"runtimes": [1.0]},
        "invalidity": "timeout",
        "measurements": [{"name": "status", "value": "ok", "unit": ""}, "junk", {"value": 3}],
    }
    (row,) = import_t4(write(tmp_path / "results.json", result))
    assert (row.status, row.times_ms) == (Status.TIMEOUT, ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected a T4 results file in .*, got no JSON"),
        ("[" * 100_000, "expected a T4 results file in .*, got no JSON"),
        ("[]", "got no list under 'results'"),
        ('{"cache": {}}', "got no list under 'results'"),
        ('{"results": [3]}', "expected a configuration object in result 1 of"),
        (
            '{"results": [{"configuration": {}, "invalidity": "fine"}]}',
            "expected invalidity of result 1 of .* in compile, constraints, .*, got 'fine'",
        ),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=message):
        import_t4(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read .*: No such file"):
        import_t4(tmp_path / "results.json")
