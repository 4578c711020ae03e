"""Weights on disk: exact, and refused in one sentence when anything does not fit."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from tests.predictor.cases import (
    MATMUL,
    decode,
    examples_of,
    matmul_cost,
    matmul_space,
    sample_distinct,
)
from tunerplugin.errors import WeightsError
from tunerplugin.predictor import ModelConfig, Predictor, WeightsInfo
from tunerplugin.predictor.weights import tensors_sha256

SMALL = ModelConfig(
    width=16, attention_heads=2, hidden=16, buckets=64, pair_width=8, value_hidden=8
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predictor, Path]:
    predictor, space = Predictor(seed=2, config=SMALL), matmul_space()
    candidates = sample_distinct(space, 16, np.random.default_rng(0))
    costs = [matmul_cost(v) for v in candidates]
    predictor.update(examples_of(MATMUL, space, candidates, costs))
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    predictor.save(path, WeightsInfo("16 synthetic matmuls", "CC0-1.0"))
    return predictor, path


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())


def test_round_trip_is_exact(saved: tuple[Predictor, Path]) -> None:
    predictor, path = saved
    loaded, space = Predictor.load(path), matmul_space()
    assert loaded.info == WeightsInfo("16 synthetic matmuls", "CC0-1.0")
    assert loaded.model.config == SMALL
    candidates = sample_distinct(space, 20, np.random.default_rng(9))
    ranks = predictor.rank(MATMUL, space, candidates)
    assert np.array_equal(loaded.rank(MATMUL, space, candidates), ranks) and ranks.any()
    for name, tensor in predictor.model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])
    before, after = (decode(p, MATMUL, space, candidates[0]) for p in (predictor, loaded))
    assert all(a == pytest.approx(b, abs=1e-6) for a, b in zip(before, after, strict=True))


def test_loaded_weights_can_be_trained_further(saved: tuple[Predictor, Path]) -> None:
    loaded, space = Predictor.load(saved[1]), matmul_space()
    candidates = sample_distinct(space, 8, np.random.default_rng(3))
    before = loaded.rank(MATMUL, space, candidates)
    costs = [matmul_cost(v) for v in candidates]
    assert loaded.update(examples_of(MATMUL, space, candidates, costs)).skipped == 0
    assert not np.array_equal(before, loaded.rank(MATMUL, space, candidates))


def test_saving_leaves_one_readable_file(saved: tuple[Predictor, Path]) -> None:
    predictor, path = saved
    predictor.save(path, predictor.info)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    predictor.save(path, WeightsInfo("16 synthetic matmuls", "CC0-1.0"))


Damage = Callable[[dict[str, torch.Tensor], dict[str, str]], None]


def rehash(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    metadata["sha256"] = tensors_sha256(tensors)


def wider(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    metadata["config"] = json.dumps({**json.loads(metadata["config"]), "width": 4096})


def one_bit(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    tensors["knob.weight"][0, 0] += 1e-3


def not_finite(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    tensors["knob.weight"][0, 0] = math.nan
    rehash(tensors, metadata)


def half(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    tensors["knob.weight"] = tensors["knob.weight"].half()
    rehash(tensors, metadata)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t, m: m.update(format="x"), "expected format tunerplugin-predictor in .* got x"),
        (lambda t, m: m.update(format_version="99"), "expected format_version 1 in .* got 99"),
        (lambda t, m: m.update(encoding_version="0"), "expected encoding_version 1 in .* got 0"),
        (lambda t, m: m.pop("sha256"), "expected sha256 in the header"),
        (lambda t, m: m.pop("licence"), "expected licence in the header"),
        (lambda t, m: m.update(config="{"), "expected the sizes of a model"),
        (lambda t, m: m.update(config='{"width": -3}'), "expected the sizes of a model"),
        (lambda t, m: m.update(config='{"depth": 3}'), "expected the sizes of a model"),
        (lambda t, m: m.update(config='{"decoder_layers": 999}'), "at most 16 layers"),
        (lambda t, m: m.update(config="[" * 100_000), "expected the sizes of a model"),
        (wider, r"expected tensor begin of shape \(4096,\) in .* got \(16,\)"),
        (lambda t, m: t.pop("end"), r"expected tensor end of shape \(16,\) in .* got none"),
        (
            lambda t, m: t.update(zzz=torch.ones(1)),
            r"expected tensor zzz of shape none .* got \(1,\)",
        ),
        (one_bit, "expected tensors with sha256"),
        (not_finite, "expected finite numbers in knob.weight"),
        (half, "expected float32 in knob.weight"),
    ],
)
def test_what_does_not_fit_is_refused(
    saved: tuple[Predictor, Path], tmp_path: Path, damage: Damage, message: str
) -> None:
    tensors, metadata = read(saved[1])
    damage(tensors, metadata)
    path = tmp_path / "bad.safetensors"
    save_file(tensors, str(path), metadata)
    with pytest.raises(WeightsError, match=message) as caught:
        Predictor.load(path)
    assert "train new weights" in str(caught.value) and "\n" not in str(caught.value)


class Trap:
    """Would create a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


def test_other_files_are_refused_and_not_run(saved: tuple[Predictor, Path], tmp_path: Path) -> None:
    path, marker = tmp_path / "w.safetensors", tmp_path / "ran"
    whole = saved[1].read_bytes()
    contents = {
        "empty": b"",
        "torn header": whole[:40],
        "torn tensors": whole[:-100],
        "longer": whole + b"more",
        "text": b"not weights at all, just some text\n" * 10,
        "pickle": pickle.dumps(Trap(marker)),
        "huge header": (50 << 20).to_bytes(8, "little") + bytes(51 << 20),
        "header beyond the end": (1 << 62).to_bytes(8, "little") + whole[8:],
        "no metadata": (2).to_bytes(8, "little") + b"{}",
    }
    for name, content in contents.items():
        path.write_bytes(content)
        with pytest.raises(WeightsError, match="expected .* got"):
            pytest.fail(f"{name} was loaded: {Predictor.load(path)}")
    assert not marker.exists()
    with pytest.raises(WeightsError, match="No such file"):
        Predictor.load(tmp_path / "absent")
    with pytest.raises(WeightsError, match="Is a directory"):
        Predictor.load(tmp_path)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_flipped_bit_is_refused_or_harmless(
    saved: tuple[Predictor, Path], tmp_path: Path, data: st.DataObject
) -> None:
    """Damage raises ``WeightsError`` and nothing else; what loads has intact tensors."""
    content = bytearray(saved[1].read_bytes())
    header = int.from_bytes(content[:8], "little") + 8
    limit = data.draw(st.sampled_from([header, len(content)]))
    content[data.draw(st.integers(0, limit - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(content)
    try:
        loaded = Predictor.load(path)
    except WeightsError:
        return
    for name, tensor in saved[0].model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])


def test_diverged_weights_are_not_saved(tmp_path: Path) -> None:
    predictor = Predictor(config=SMALL)
    predictor.model.begin.data.fill_(math.inf)
    with pytest.raises(WeightsError, match="expected finite weights to save"):
        predictor.save(tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sizes", [{"width": 0}, {"width": 10}, {"hidden": 2.5}, {"buckets": 1}])
def test_impossible_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ModelConfig(**sizes)
