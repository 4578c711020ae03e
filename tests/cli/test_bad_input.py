"""Every kind of bad input: exit code 2, one clear sentence on stderr, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tunerplugin.cli import main

SCRIPT = """
from tvm.script import ir as I, tirx as T

@I.ir_module
class Add:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("add"):
                v = T.axis.spatial(8, i)
                b[v] = a[v] + T.float32(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one good model, one empty and one garbage file of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(SCRIPT)
    (tmp_path / "folder.onnx").mkdir()
    for suffix in ("onnx", "pt2", "json", "py"):
        (tmp_path / f"garbage.{suffix}").write_bytes(b"\x00\x01 not a model \xff")
        (tmp_path / f"empty.{suffix}").write_bytes(b"")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "none.py").write_text("VALUE = 3\n")
    second = SCRIPT.replace("class Add", "class Second").replace("from tvm", "\nfrom tvm")
    (tmp_path / "two.py").write_text(SCRIPT + second)
    (tmp_path / "raises.py").write_text("raise ValueError('my own bug')\n")
    (tmp_path / "file").write_text("")
    (tmp_path / "weights.safetensors").write_bytes(b"garbage")
    return tmp_path


def sentence(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a command that must be refused; its one line on stderr."""
    code = main(argv)
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


ARGUMENTS = [
    ("", "expected one of demo, tune, predict, train, records, report, chips, mine, got no verb"),
    ("tuen good.py", "got 'tuen' (did you mean 'tune'?)"),
    ("tune", "expected MODEL, got nothing"),
    ("tune good.py other.py", "expected no further argument, got 'other.py'"),
    ("tune good.py --trails 3", "got '--trails' (did you mean '--trials'?)"),
    ("tune good.py --trial 3", "got '--trial' (did you mean '--trials'?)"),
    ("tune good.py --trials -1", "expected a whole number of at least 1, got '-1'"),
    ("tune good.py --trials 0", "expected a whole number of at least 1, got '0'"),
    ("tune good.py --trials many", "expected a whole number of at least 1, got 'many'"),
    ("tune good.py --trials", "argument --trials: expected one argument"),
    ("tune good.py --jobs 0", "expected a whole number of at least 1, got '0'"),
    ("tune good.py --seed -3", "expected a whole number of at least 0, got '-3'"),
    ("tune good.py --format yaml", "expected one of table, json, got 'yaml'"),
    ("tune good.py -v -q", "not allowed with argument"),
    ("demo --jobs x", "expected a whole number of at least 1, got 'x'"),
    ("predict good.py --trials 3", "got '--trials'"),
    ("records", "expected {list,export,import,check}, got nothing"),
    ("records lst .", "got 'lst' (did you mean 'list'?)"),
    (
        "records export . --to csv out",
        "expected one of metaschedule, t4, jsonl, autotvm, got 'csv'",
    ),
    ("records export . out", "expected --to, got nothing"),
    ("report . --baseline-trials 0", "expected a whole number of at least 1, got '0'"),
]


@pytest.mark.parametrize(("command", "part"), ARGUMENTS)
def test_arguments(
    command: str, part: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = sentence(capsys, *command.split())
    assert part in line
    assert "--help" in line


FILES = [
    ("tune missing.onnx", "got 'missing.onnx', which does not exist"),
    ("predict missing.pt2", "got 'missing.pt2', which does not exist"),
    ("tune folder.onnx", "got the directory 'folder.onnx'"),
    ("tune file", "ending in one of .onnx, .pt2, .py, .json, got 'file'"),
    (
        "tune good.py --weights missing.safetensors",
        "got 'missing.safetensors', which is not a file",
    ),
    ("tune good.py --work-dir file/inside", "expected a folder that can be written"),
    ("predict good.py --out file", "name another with --out"),
    ("demo --work-dir file", "expected a folder that can be written, got 'file'"),
    ("demo --weights folder.onnx", "expected a weights file"),
    ("records list missing", "got 'missing' without records.sqlite"),
    ("records check .", "got '.' without records.sqlite"),
    ("records import . missing.jsonl", "got 'missing.jsonl', which is not there"),
    (
        "records import . weights.safetensors",
        "got 'weights.safetensors' without a line of any of them",
    ),
    ("report missing", "got 'missing' without records.sqlite"),
]


@pytest.mark.parametrize(("command", "part"), FILES)
def test_files(command: str, part: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert part in sentence(capsys, *command.split())


@pytest.mark.parametrize(
    ("model", "part"),
    [
        *((f"{name}.onnx", "expected an ONNX model") for name in ("garbage", "empty")),
        *((f"{name}.pt2", "not a torch.export.save archive") for name in ("garbage", "empty")),
        *((f"{name}.json", "saved by tvm.ir.save_json") for name in ("garbage", "empty", "list")),
        ("garbage.py", "expected a TVMScript file"),
        ("empty.py", "expected one IRModule in 'empty.py', got none"),
        ("none.py", "expected one IRModule in 'none.py', got none"),
        ("two.py", "expected one IRModule in 'two.py', got 2 (Add, Second)"),
        ("raises.py", "ValueError: my own bug"),
    ],
)
@pytest.mark.parametrize("verb", ["tune", "predict"])
def test_models(
    verb: str, model: str, part: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = sentence(capsys, verb, model, "--target", '{"kind": "llvm", "num-cores": 2}')
    assert part in line
    assert model in line


@pytest.mark.parametrize(
    "target", ["lvm", "", "llvm -mcpu=znver3", "{kind: llvm}", '{"kind": "lvm"}', '{"a": 1}']
)
@pytest.mark.parametrize("verb", ["tune", "predict", "demo"])
def test_targets(verb: str, target: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = [] if verb == "demo" else ["good.py"]
    line = sentence(capsys, verb, *model, "--target", target)
    assert "expected a TVM target such as llvm, nvidia/nvidia-a100 or" in line
    assert repr(target) in line


def test_demo_needs_a_cpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = sentence(capsys, "demo", "--target", "nvidia/nvidia-a100")
    assert "expected a CPU target (llvm) for the demo" in line


@pytest.mark.parametrize("verb", ["tune", "predict"])
def test_wrong_weights(verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = sentence(capsys, verb, "good.py", "--weights", "weights.safetensors")
    assert "weights.safetensors" in line


def test_debug_shows_the_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "raises.py", "--debug", "--target", "llvm"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "my own bug" in error
    assert error.strip().splitlines()[-1].startswith("tunerplugin tune: expected a TVMScript file")


def test_process_exit_code_and_streams(folder: Path) -> None:
    command = [sys.executable, "-m", "tunerplugin", "tune", "missing.onnx", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
