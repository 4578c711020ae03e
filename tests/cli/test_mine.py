"""``tunerplugin mine``: results as table, JSON and files; every kind of bad input."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tunerplugin.cli import VERBS, main, mine
from tunerplugin.hw.datasheet import load

SCRIPT = """
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8))
    return model, (torch.empty(64, 256),), nn.functional.cross_entropy, (torch.zeros(64).long(),)

def nothing():
    return 3

def raises():
    raise RuntimeError("my own bug")

def lacks():
    class Model(nn.Module):
        def forward(self, x):
            return self.nothing(x)

    return Model(), (torch.empty(64, 256),)

def fits():
    return nn.Linear(8, 8), (torch.empty(64, 9),)

value = 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(VERBS, "mine", mine)
    (tmp_path / "model.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "garbage.json").write_text("{")
    (tmp_path / "garbage.onnx").write_bytes(b"\x00garbage")
    (tmp_path / "file").write_text("")
    return tmp_path


def test_table_files_and_explanations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "mine model.py --train --batch 64 --area 100 --power 60 --explain --name mine-1"
    assert main([*command.split(), "--out", "result"]) == 0
    text = capsys.readouterr().out
    assert "best throughput within 100 mm^2 and 60 W, technology 7nm-macro:" in text
    assert "start: the reference" in text and "grow: critical operators" in text
    assert "Pareto front:" in text
    made = load(folder / "result" / "mine-1.toml")
    assert made.name == "mine-1" and made.area_mm2 is not None and made.area_mm2 <= 100
    header, *lines = (folder / "result" / "front.csv").read_text().splitlines()
    assert header.startswith("design,tensor_cores,") and lines


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = "mine model.py:build --area 100 --power 60 --metric energy-delay --format json"
    assert main(command.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verb"] == "mine" and document["metric"] == "energy-delay"
    best, reference = document["best"], document["reference"]
    assert best["area_mm2"] <= 100 and best["power_w"] <= 60
    assert reference["design"]["name"] == "tpu-v2"
    ratio = best["throughput"] / reference["throughput"]
    assert document["speedup_over_reference"] == pytest.approx(ratio)
    assert best["runs"][0]["samples"] == 64  # of the input in the script
    assert best["throughput"] == pytest.approx(64 / best["runs"][0]["seconds"])
    assert document["front"] and document["steps"] and document["certified"] == []


def test_common_and_exact(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    command = "mine model.py --train --common model.py:build=3 --exact --time-limit 2"
    assert main([*command.split(), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["best"]["runs"]) == len(document["certified"]) == 2
    assert all(found["gap"] >= 0 for found in document["certified"])


BAD = [
    ("mine", "expected MODEL, got nothing"),
    ("mine resnet19", "expected model.py:FUNCTION, model.onnx, relax.json or one of resnet18, "),
    ("mine missing.py", "got 'missing.py', which is not one"),
    ("mine model.py:absent", "expected a function absent() that returns a graph"),
    ("mine model.py:nothing", "expected nothing() to return a graph, (module, inputs), "),
    ("mine model.py:raises", "got RuntimeError in line 13: my own bug"),
    ("mine broken.py", "got ModuleNotFoundError in line 1: No module named"),
    ("mine garbage.json", "garbage.json"),
    ("mine garbage.onnx", "garbage.onnx"),
    ("mine model.py --area 0", "expected a number above 0, got '0'"),
    ("mine model.py --power nan", "expected a number above 0, got 'nan'"),
    ("mine model.py --metric speed", "expected one of throughput, "),
    ("mine model.py --technology 3nm", "a technology of 7nm-cache, 7nm-macro, wham-45nm, got"),
    ("mine model.py --reference tpu-v9", "got 'tpu-v9'"),
    ("mine model.py --area 1", "the smallest design"),
    ("mine model.py --power 1", "the smallest design"),
    ("mine model.py --floor 1e15", "the best found reaches"),
    ("mine model.py --common model.py=x", "--common model.py=x: expected a number above 0"),
    ("mine model.py --out file", "expected a folder that can be written, got 'file'"),
    ("mine model.py:lacks", "got AttributeError in line 18: 'Model' object has no attribute"),
    ("mine model.py:fits", "Linear does not run on tensors without data (a and b must have"),
    ("mine model.py:fits --train", "Linear does not run on tensors without data"),
    ("mine resnet18 --sequence 4", "--sequence: expected a model that it acts on (built-in "),
    ("mine model.py --dtype float32", "--dtype: expected a model that it acts on"),
    ("mine model.py --train --loss cross_entropy", "--loss: expected a model that it acts on"),
    ("mine garbage.onnx --train --recompute whole", "--recompute: expected a model that it acts"),
    ("mine resnet18 --recompute whole", "--recompute: expected --train beside it"),
    ("mine resnet18 --optimizer sgd", "--optimizer: expected --train beside it"),
]


@pytest.mark.parametrize(("command", "sentence"), BAD)
def test_bad_input(command: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.strip().splitlines()
    assert sentence in line
    assert captured.out == ""


def test_positive() -> None:
    assert mine.positive("1e3") == 1000.0
    for text in ("inf", "-1", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            mine.positive(text)
