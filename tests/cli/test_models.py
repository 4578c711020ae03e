"""Each format of model gives the module and parameters that were saved."""

from __future__ import annotations

import contextlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunerplugin import load_model
from tunerplugin.errors import InputError


@pytest.fixture(scope="module")
def net() -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


@pytest.fixture(scope="module")
def pt2(net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    path = tmp_path_factory.mktemp("models") / "net.pt2"
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(2, 6),)), str(path))
    return path


def run(mod: Any, params: dict[str, Any], argument: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import tvm

    bound = tvm.relax.transform.BindParams("main", params)(mod) if params else mod
    machine = tvm.relax.VirtualMachine(tvm.compile(bound, target="llvm"), tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(argument)).numpy())


def test_torch(net: Any, pt2: Path) -> None:
    import torch

    mod, params = load_model(pt2)
    assert sorted(tensor.shape for tensor in params.values()) == [(3,), (3, 5), (5,), (5, 6)]
    argument = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    expected = net(torch.from_numpy(argument)).detach().numpy()
    np.testing.assert_allclose(run(mod, params, argument), expected, rtol=1e-5, atol=1e-6)


def test_onnx(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(tmp_path / "net.onnx"))
    mod, params = load_model(tmp_path / "net.onnx")
    (tensor,) = params.values()
    np.testing.assert_array_equal(tensor.numpy(), weight)
    argument = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    expected = np.maximum(argument @ weight, 0)
    np.testing.assert_allclose(run(mod, params, argument), expected, rtol=1e-5)


def test_json_and_script_are_the_same_module(pt2: Path, tmp_path: Path) -> None:
    import tvm

    mod, _ = load_model(pt2)
    (tmp_path / "net.json").write_text(tvm.ir.save_json(mod))
    script = mod.script().replace("# from tvm", "from tvm")
    (tmp_path / "net.py").write_text(script)
    for name in ("net.json", "net.py"):
        loaded = load_model(tmp_path / name)
        assert loaded.params == {}
        tvm.ir.assert_structural_equal(loaded.mod, mod)


def test_script_with_one_function(tmp_path: Path) -> None:
    import tvm

    (tmp_path / "add.py").write_text(
        "from tvm.script import tirx as T\n"
        "@T.prim_func(s_tir=True)\n"
        "def add(a: T.Buffer((8,), 'float32'), b: T.Buffer((8,), 'float32')):\n"
        "    for i in range(8):\n"
        "        with T.sblock('add'):\n"
        "            v = T.axis.spatial(8, i)\n"
        "            b[v] = a[v] + T.float32(1)\n"
    )
    mod = load_model(tmp_path / "add.py").mod
    assert isinstance(mod["main"], tvm.tirx.PrimFunc)


def test_script_name_does_not_shadow_a_module(tmp_path: Path) -> None:
    import json

    (tmp_path / "json.py").write_text("VALUE = 1\n")
    with pytest.raises(InputError, match="got none"):
        load_model(tmp_path / "json.py")
    assert json.loads("1") == 1


def test_pickled_objects_are_refused(pt2: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.pt2"
    evil.write_bytes(pt2.read_bytes())
    with zipfile.ZipFile(evil, "a") as archive:
        archive.writestr("evil/data/constants/opaque_obj_0", b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(InputError, match="opaque_obj_0.*could run code"):
        load_model(evil)


class MakesDirectory:
    """Unpickling it runs ``os.mkdir``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickles_are_held_to_tensors(pt2: Path, tmp_path: Path) -> None:
    """torch would make the call that the pickle asks for; we do not."""
    import torch

    evil = {name: tmp_path / f"{name}.pt2" for name in ("torch", "ours")}
    for name, path in evil.items():
        with zipfile.ZipFile(pt2) as good, zipfile.ZipFile(path, "w") as archive:
            for info in good.infolist():
                data = good.read(info)
                if info.filename.endswith("sample_inputs/model.pt"):
                    data = pickle.dumps(MakesDirectory(tmp_path / f"made by {name}"))
                archive.writestr(info.filename.replace("net/", f"{name}/"), data)
    with contextlib.suppress(Exception):
        torch.export.load(str(evil["torch"]))
    assert (tmp_path / "made by torch").is_dir()
    with contextlib.suppress(InputError):
        load_model(evil["ours"])
    assert not (tmp_path / "made by ours").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
