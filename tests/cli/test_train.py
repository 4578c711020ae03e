"""``tunerplugin train`` and ``tunerplugin predict miopen``: small real records, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources.hub_cases import content, write_cache
from tests.sources.test_miopen_records import make_sqlite
from tunerplugin.cli import main
from tunerplugin.predictor import Predictor, load_packaged
from tunerplugin.sources import clblast
from tunerplugin.sources.miopen import parse_key, read_records, space_of

KEY = "256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"
RESNET = "3-224-224-7x7-64-112-112-1-3x3-2x2-1x1-0-NCHW-FP32-F"
SIX = "64-7-7-1x1-6-7-7-1-0x0-1x1-1x1-0-NCHW-FP16-B"
#: records as MIOpen writes them
TEXT = f"""{KEY}=ConvAsm1x1U:1,16,4,64,1,1,4,1;ConvOclDirectFwd1x1:1,64,1,1,1,4,64,2048,0
64-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm1x1U:1,16,4,64,1,1,4,1
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A text database of a GPU, as MIOpen names it."""
    path = tmp_path / "gfx906_60.cd.pdb.txt"
    path.write_text(TEXT)
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_trains_and_predicts_what_it_learnt(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, user = tmp_path / "w.safetensors", tmp_path / "gfx906_60.udb.txt"
    train = ("train", "miopen", str(database), "--out", str(weights), "--epochs", "120")
    code, out, err = run(capsys, *train, "--format", "json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["examples"], document["left_out"]) == (3, {})
    assert document["loss"] < 0.3
    assert Predictor.load(weights).info.training_data == "3 miopen records of 1 files, seed 0"

    predict = ("predict", "miopen", KEY, "--device", "gfx906_60", "--weights", str(weights))
    code, out, err = run(capsys, *predict, "--out", str(user), "--format", "json")
    assert code == 0, err
    first = {row["solver"]: row for row in json.loads(out)["candidates"]}
    assert [*first["ConvAsm1x1U"]["values"].values()] == [1, 16, 4, 64, 1, 1, 4, 1]
    assert first["ConvAsm1x1U"]["values"]["k_mult"] == 16
    # what was written is what was shown, in MIOpen's own format
    written = {record.solver: record.values for record in read_records(user)}
    assert written == {s: tuple(row["values"].values()) for s, row in first.items()}


def test_what_is_left_out_is_told(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines that say nothing here, in a folder with a user's database of the SQLite kind."""
    huge = KEY.replace("256-56", f"{1 << 40}-56", 1)
    database.write_text(
        TEXT
        + f"{KEY}=ConvBinWinogradRxSf2x3:7;ConvAsm1x1U:1,2\n{huge}=ConvAsm1x1U:1,16,4,64,1,1,4,1\n"
        + f"{KEY}=ConvAsm1x1U:4,4,1,64,1,1,1,1;ConvAsm3x3U:1,1,1\r\n"
    )
    make_sqlite(tmp_path / "gfx906_60_1.1.0.udb")
    weights = tmp_path / "w.safetensors"
    train = ("train", "miopen", str(tmp_path), "--out", str(weights), "--epochs", "1")
    code, out, err = run(capsys, *train, "--format", "json")
    assert code == 0, err
    document = json.loads(out)
    assert document["examples"] == 5
    assert document["left_out"] == {
        "unknown solver": 2,
        "wrong arity": 2,
        "malformed problem": 2,
        "tuple that today's rules refuse": 1,
        "problem that the solver cannot compute": 1,
        "3-D problem": 1,
        "malformed values": 1,
    }
    code, out, err = run(capsys, *train)
    assert code == 0 and "2 left out: wrong arity" in out.splitlines()


@pytest.mark.parametrize("place", ["blur", "."], ids=["of a kernel", "of kernels"])
def test_trains_on_recordings_of_kernels(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of caches, or a folder with one for each kernel; of 16 configurations, all."""
    (tmp_path / "blur").mkdir()
    write_cache(tmp_path / "blur" / "A4000.json.gz", content())
    write_cache(tmp_path / "blur" / "A100.json.gz", content("NVIDIA A100-PCIE-40GB", bias=1))
    weights = tmp_path / "w.safetensors"
    train = ("train", "hub", str(tmp_path / place), "--out", str(weights), "--epochs", "1")
    code, out, err = run(capsys, *train, "--format", "json")
    assert code == 0, err
    document = json.loads(out)
    recorded = len(content()["cache"])
    assert document["examples"] + sum(document["left_out"].values()) == 2 * recorded
    assert Predictor.load(weights).info.training_data.endswith("hub records of 2 files, seed 0")


def test_trains_on_clblasts_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry: dict[str, object] = {"kernel": "Xdot", "precision": "Single"}
    entry |= {"device_type": "GPU", "vendor": "AMD", "arch": "gfx906"}
    records = [
        entry | {"device": device, "params": {"WGS1": size, "WGS2": 32}}
        for device, size in (("Radeon VII", 256), ("MI50", 128), ("default", 64))
    ]
    data, weights = tmp_path / "best.json", tmp_path / "w.safetensors"
    data.write_text(json.dumps(records).replace("default", clblast.DEFAULT))
    train = ("train", "clblast", str(data), "--out", str(weights), "--epochs", "1")
    code, out, err = run(capsys, *train)
    assert code == 0, err
    assert out.startswith("1 left out: default, no device's record\ntrained on 2 records in ")
    # its weights know nothing of convolutions
    predict = ("predict", "miopen", KEY, "--device", "gfx906_60", "--weights", str(weights))
    code, out, err = run(capsys, *predict)
    assert (code, out) == (2, "")
    assert "expected weights trained on MIOpen's records" in err and "2 clblast records" in err


def test_same_seed_same_weights(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "c.safetensors")]
    for file, seed in zip(files, ("3", "3", "4"), strict=True):
        argv = ("train", "miopen", str(database), "--out", str(file), "--epochs", "2")
        assert run(capsys, *argv, "--seed", seed)[0] == 0
    first, second, third = (Predictor.load(file).model.state_dict() for file in files)
    assert all(first[name].equal(second[name]) for name in first)
    assert not all(first[name].equal(third[name]) for name in first)


def test_packaged_weights_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_packaged("miopen") is not None
    argv = ("predict", "miopen", KEY, "--device", "gfx906_60", "--solver", "ConvAsm1x1U")
    code, out, err = run(capsys, *argv, "--top", "5")
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 6 and lines[0].split()[:3] == ["solver", "rank", "probability"]
    space = space_of("ConvAsm1x1U", parse_key(KEY), True, "gfx906_60")
    tuples = [tuple(map(int, line.split()[3].split(","))) for line in lines[1:]]
    assert len(set(tuples)) == 5 and all(space.contains(values) for values in tuples)


def test_solvers_without_a_legal_tuple_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Backward, six channels are no multiple of the four that k_mult is at least in FP16."""
    argv = ("predict", "miopen", SIX, "--device", "gfx906_60", "--format", "json")
    code, out, err = run(capsys, *argv, "--out", str(tmp_path / "gfx906_60.udb.txt"))
    assert code == 0, err
    document = json.loads(out)
    assert [row["solver"] for row in document["candidates"]] == ["ConvOclDirectFwd1x1"]
    assert document["no_legal_tuple"] == ["ConvAsm1x1U"]
    assert err == "no tuple is legal for: ConvAsm1x1U\n"
    written = read_records(tmp_path / "gfx906_60.udb.txt")
    assert [r.solver for r in written] == ["ConvOclDirectFwd1x1"]


def test_the_first_layer_of_resnet_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """One image, and 147 sums that no matrix product here can split."""
    code, out, err = run(capsys, "predict", "miopen", RESNET, "--device", "gfx906_60")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["solver", "ConvOclDirectFwd"]


def test_more_tuples_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("predict", "miopen", KEY, "--device", "gfx906_60", "--format", "json")
    solver = ("--solver", "ConvHipImplicitGemmV4R4Fwd", "--top", "100000")
    code, out, err = run(capsys, *argv, *solver)
    assert code == 0, err
    space = space_of("ConvHipImplicitGemmV4R4Fwd", parse_key(KEY), True, "gfx906_60")
    found = [tuple(row["values"].values()) for row in json.loads(out)["candidates"]]
    assert sorted(found) == sorted(space.enumerate())


BAD = [
    (f"predict miopen {KEY}", "expected a convolution and --device, got key '256"),
    ("predict miopen --device gfx906_60", "expected a convolution and --device, got key None"),
    (f"predict miopen {KEY} --device rtx", "expected a device like gfx906_60"),
    (f"predict miopen {KEY} --device gfx906_60 --solver Conv", "expected a solver among"),
    (f"predict miopen {KEY} --device gfx906_60 --target llvm", "expected --device, got --target"),
    ("predict miopen 256-56 --device gfx906_60", "got '256-56'"),
    (
        f"predict miopen {KEY} --device gfx906_60 --solver ConvAsm3x3U",
        "expected a filter of (3, 3), got (1, 1)",
    ),
    (f"predict miopen {KEY.replace('NCHW', 'NHWC')} --device gfx906_60", "none can; name another"),
    (f"predict miopen {KEY} --device gfx1201_64", "computes on gfx1201_64"),
    (f"predict miopen {'9' * 5000}-{KEY} --device gfx906_60", "write it as MIOpen's databases do"),
    (f"predict miopen {KEY.replace('56-48', '57-48')} --device gfx906_60", "a width of 56 from 56"),
    (
        f"predict miopen {RESNET} --device gfx906_60 --solver ConvHipImplicitGemmV4R4Fwd",
        "expected rows and columns in 32s and sums in fours, got (64, 12544, 147); name another",
    ),
    (
        f"predict miopen {SIX} --device gfx906_60 --solver ConvAsm1x1U",
        "no tuple is legal for ConvAsm1x1U; name another convolution or solver",
    ),
    ("predict net.onnx --top 3", "expected top with miopen as MODEL only, got 3"),
    ("train miopen nowhere --out w.safetensors", "got 'nowhere'; check the path"),
    (
        "train hub empty --out w.safetensors",
        "expected a file, or a folder with */*.json.gz or *.json.gz",
    ),
    (
        "train miopen gfx906_60.db.txt --out empty",
        "expected a file to write, got the folder 'empty'; name a file",
    ),
    ("train hub bad.json --out w.safetensors", "bad.json"),
    ("train clblast bad.json --out w.safetensors", "expected a list of records in bad.json"),
    ("train miopen gfx906_60.db.txt --out w.safetensors", "none that today's rules accept"),
    ("train miopen gfx906_60.ufdb.txt --out w.safetensors", "1 left out: malformed values"),
    ("train xgboost x --out w", "expected one of miopen, hub, clblast, got 'xgboost'"),
]


@pytest.mark.parametrize(("line", "part"), BAD)
def test_bad_input_is_one_sentence(
    line: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "gfx906_60.db.txt").write_text(f"{KEY}=ConvUnknown:1,2\n")
    find = f"{KEY}=ConvAsm1x1U:0.12,0,miopenConvolutionFwdAlgoDirect\n"
    (tmp_path / "gfx906_60.ufdb.txt").write_text(find)
    code, out, err = run(capsys, *line.split())
    assert code == 2, err
    assert out == "" and len(err.strip().splitlines()) == 1
    assert part in err
    assert not (tmp_path / "w.safetensors").exists()


def test_predicting_does_not_load_torchs_compiler() -> None:
    """It takes seconds, and an answer is to take less than one after the imports."""
    code = (
        "import sys; from tunerplugin.cli import main; "
        f"main(['predict', 'miopen', '{KEY}', '--device', 'gfx906_60']); "
        "print('LOADED', 'torch._dynamo' in sys.modules, 'tvm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED False False"
