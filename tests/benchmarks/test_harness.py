"""The statistics, options and output that all benchmark scripts share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import harness
import pytest
from harness import Row
from hypothesis import given
from hypothesis import strategies as st

ROWS = [
    Row("dense", "ours", "latency_s", 0.00123456, "s", 0.001, 0.002),
    Row("all", "uniform", "pass_share", 1.0, "share", 0.9, 1.0),
]


def options(*arguments: str) -> argparse.Namespace:
    return harness.parser("Title.\n\nMore.").parse_args(arguments)


def test_wilson_agrees_with_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81 of 263, 15 of 148, 0 of 20
    for successes, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)):
        found = harness.wilson(successes, n)
        assert found.value == successes / n
        assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    none = harness.wilson(0, 20)
    assert (none.value, none.low, round(none.high, 4)) == (0, 0, 0.1611)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_share_within_0_and_1(case: tuple[int, int]) -> None:
    found = harness.wilson(*case)
    assert -1e-12 <= found.low <= found.value <= found.high <= 1 + 1e-12


@pytest.mark.parametrize("case", [(0, 0), (2, 1), (-1, 3)])
def test_wilson_refuses_what_is_no_share(case: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        harness.wilson(*case)


def test_spread_is_median_and_range() -> None:
    assert harness.spread([5.0, 1.0, 2.0]) == (2.0, 1.0, 5.0)


def test_geometric_mean_of_opposites_is_one() -> None:
    assert harness.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert harness.geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10.0)


def test_alternate_swaps_who_goes_first_and_pairs_by_round() -> None:
    order: list[str] = []
    drift = iter([1.0, 1.0, 10.0, 10.0, 3.0, 3.0])  # a machine that changes between rounds

    def method(name: str, cost: float) -> float:
        order.append(name)
        return cost * next(drift)

    ratio = harness.alternate(lambda: method("a", 6.0), lambda: method("b", 2.0), rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert ratio == (3.0, 3.0, 3.0)


def test_paired_ratio_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="zip"):
        harness.paired_ratio([1.0, 2.0], [1.0])


def test_json_is_a_header_and_then_rows() -> None:
    head, *rows = json.loads(harness.as_json(ROWS))
    assert set(head) == {"machine", "cores", "load_1min", "versions", "command", "date"}
    assert set(head["versions"]) == {"tvm", "torch", "numpy", "tunerplugin"}
    assert head["versions"]["tvm"].startswith("0.27")
    assert rows[0] == {
        "case": "dense",
        "method": "ours",
        "metric": "latency_s",
        "value": 0.00123456,
        "unit": "s",
        "low": 0.001,
        "high": 0.002,
    }
    assert len(rows) == 2


def test_table_lines_up() -> None:
    lines = [x for x in harness.as_table(ROWS).splitlines() if not x.startswith("#")]
    assert lines == [
        "case   method   metric         value  unit     low   high",
        "dense  ours     latency_s   0.001235  s      0.001  0.002",
        "all    uniform  pass_share         1  share    0.9      1",
    ]


def test_emit_goes_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "rows.json"
    harness.emit(ROWS, options("--format", "json", "--out", str(out)))
    assert capsys.readouterr().out == ""
    assert len(json.loads(out.read_text(encoding="utf-8"))) == 3
    harness.emit(ROWS, options())
    assert "pass_share" in capsys.readouterr().out


def test_common_options() -> None:
    parsed = options("--quick", "--seed", "7")
    assert (parsed.quick, parsed.seed, parsed.format, parsed.out) == (True, 7, "table", None)


@pytest.mark.parametrize("text", ["", ",", "a,nosuch"])
def test_names_refuses_unknown_and_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected some of a, b"):
        harness.names(["a", "b"])(text)


def test_names_keeps_the_order_given() -> None:
    assert harness.names(["a", "b"])("b, a") == ["b", "a"]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "²"])
def test_positive_refuses(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number"):
        harness.positive(text)


def test_a_file_that_cannot_be_written_is_told_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        options("--out", str(tmp_path))
    assert stopped.value.code == 2
    assert "expected a file that can be written, got" in capsys.readouterr().err
