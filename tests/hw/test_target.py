"""The bridge to TVM targets."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tvm
from tvm.target import Target

from tests.hw.test_accelerator import SHIPPED, TINY
from tunerplugin.errors import TargetError
from tunerplugin.hw import target as bridge
from tunerplugin.hw.accelerator import Accelerator
from tunerplugin.hw.datasheet import load, save


@pytest.fixture(autouse=True)
def _tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_registered", {})
    bridge.register_all()


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_chips_are_tags_and_round_trip(file: Path) -> None:
    target = Target(f"tunerplugin/{file.stem}")
    assert (str(target.kind.name), str(target.attrs["model"])) == ("ext_dev", file.stem)
    assert Accelerator.from_target(target) == load(file)
    assert Accelerator.from_target(f"tunerplugin/{file.stem}") == load(file)


def test_targets_survive_json_and_a_host() -> None:
    target = Target("tunerplugin/a100", host="llvm")
    again = Target(json.loads(str(target)))
    assert Accelerator.from_target(again) == bridge.chip("a100")
    assert Accelerator.from_target(tvm.ir.load_json(tvm.ir.save_json(target))).name == "a100"


def test_overrides_in_the_target() -> None:
    config = {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.tensor_cores": 4}
    changed = Accelerator.from_target(Target(config))
    assert changed == replace(bridge.chip("tpu-v2"), tensor_cores=4)
    assert changed.peak_flops == 2 * bridge.chip("tpu-v2").peak_flops
    tuner = {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.max_unroll": 64}
    assert Accelerator.from_target(tuner) == bridge.chip("tpu-v2")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tunerplugin/tpu-v9", "expected a TVM target.*known chips: a100, .*tpu-v4"),
        ("llvm", r"expected a target with feature.tunerplugin.\* features"),
        ({"kind": "ext_dev", "feature.other.x": 1}, "expected a target with feature.tunerplugin"),
        (
            {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.tensor_rowz": 1},
            "feature.tunerplugin.tensor_rowz: expected one of tensor_cores",
        ),
        (
            {"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.tensor_rows": -1},
            "feature.tunerplugin.tensor_rows: expected a whole number of at least 1, got -1",
        ),
        (
            {"kind": "ext_dev", "model": "x", "feature.tunerplugin.tensor_rows": 4},
            "target 'x': expected feature.tunerplugin.tensor_cores.*; or use a tag",
        ),
    ],
)
def test_bad_targets_are_named(target: object, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Accelerator.from_target(target)


def test_registering_an_own_design() -> None:
    mine = replace(TINY, name="mine-1")
    assert Accelerator.from_target(bridge.register(mine)) == mine
    assert Accelerator.from_target(Target("tunerplugin/mine-1")) == mine
    assert "mine-1" in bridge.known() and bridge.chip("mine-1") == mine
    bridge.register(mine)  # again: nothing changes
    other = replace(mine, tensor_cores=8)
    with pytest.raises(TargetError, match="expected a name that is free, got 'mine-1'"):
        bridge.register(other)
    bridge.register(other, override=True)
    assert Accelerator.from_target(Target("tunerplugin/mine-1")) == other


def test_chips_by_name_tag_and_file(tmp_path: Path) -> None:
    file = save(TINY, tmp_path / "tiny.toml")
    assert bridge.chip(file) == TINY
    assert bridge.chip("tunerplugin/tpu-v3") == bridge.chip("tpu-v3")
    with pytest.raises(TargetError, match=r"expected a .toml file or one of a100,.*got 'tpu'"):
        bridge.chip("tpu")


def test_folders_of_own_designs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(replace(TINY, name="mine-2"), tmp_path / "any-name.toml")
    (tmp_path / "broken.toml").write_text("name = 3", encoding="utf-8")
    monkeypatch.setenv("TUNERPLUGIN_CHIPS", str(tmp_path))
    with pytest.warns(UserWarning, match=r"TUNERPLUGIN_CHIPS: left out: .*broken.toml: name: exp"):
        bridge.register_all()
    assert Accelerator.from_target(Target("tunerplugin/mine-2")).name == "mine-2"
    (tmp_path / "broken.toml").unlink()
    assert "mine-2" in bridge.known()
    monkeypatch.setenv("TUNERPLUGIN_CHIPS", str(tmp_path / "none"))
    with pytest.warns(UserWarning, match="TUNERPLUGIN_CHIPS: expected folders, got"):
        assert "mine-2" not in bridge.known()


def test_import_tvm_registers_the_tags() -> None:
    """What the entry point does within ``import tvm``; it loads neither torch nor numpy for it."""
    root = str(Path(__file__).resolve().parents[2])  # for a checkout that was never installed
    code = (
        f"import sys, tunerplugin; tunerplugin.__path__.append({root!r});"
        "before = set(sys.modules);"
        "from tunerplugin.backend import register_backend;"
        "import tunerplugin.hw.target as bridge; bridge.datasheets();"
        "print(sorted({'tvm', 'torch', 'numpy', 'networkx'} & (set(sys.modules) - before)));"
        "import tvm; register_backend();"
        "print(tvm.target.Target('tunerplugin/tpu-v4').attrs['model'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "tpu-v4"]
