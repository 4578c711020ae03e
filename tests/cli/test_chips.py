"""``tunerplugin chips``, by its functions."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tunerplugin.cli import chips, main
from tunerplugin.cli.exits import StopGuard
from tunerplugin.cli.parser import Parser
from tunerplugin.errors import TargetError
from tunerplugin.hw.target import chip, known


def run(*arguments: str) -> int:
    parser = Parser(prog="tunerplugin")
    verbs = parser.add_subparsers(dest="verb", parser_class=Parser)
    chips.add_parser(verbs.add_parser)
    args: argparse.Namespace = parser.parse(["chips", *arguments])
    with StopGuard() as guard:
        return chips.run(args, guard)


def test_lists_all_chips(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == known()
    tpu = next(line for line in lines if line.startswith("tpu-v2"))
    assert "2 x 128 x 128" in tpu and "45.88" in tpu and "16 GiB, 700 GB/s" in tpu


def test_shows_one_chip_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tunerplugin/tpu-v2") == 0
    out = capsys.readouterr().out
    assert "Google TPU v2" in out and "CACM" in out and "estimated" in out


def test_json_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a100", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    (shown,) = document["chips"]
    assert document["verb"] == "chips" and shown["target"] == "tunerplugin/a100"
    assert shown["peak_flops"] == chip("a100").peak_flops
    assert shown["sources"]["tensor_rows"]["estimated"] is True
    assert set(chip("a100").values()) <= set(shown)


def test_unknown_chip_is_named() -> None:
    with pytest.raises(TargetError, match="expected chips of a100, .*got 'a1000'"):
        run("a1000")


def test_a_warning_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without the file and line of the source that Python prints beside it."""
    monkeypatch.setenv("TUNERPLUGIN_CHIPS", str(tmp_path / "nowhere"))
    assert main(["chips"]) == 0
    error = capsys.readouterr().err
    assert "WARNING: TUNERPLUGIN_CHIPS: expected folders, got" in error
    assert ".py" not in error and "UserWarning" not in error
