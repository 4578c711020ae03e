"""The benchmark hub's files where they are, and a small kernel with recordings of its own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tunerplugin.sources.kernel_tuner import Recording, read_cache

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
HUB = SHARED / "kernel_tuner_hub"

needs_hub = pytest.mark.skipif(not HUB.is_dir(), reason="the hub's recordings are not here")

NAMES = ("block_size_x", "tile_size_x", "use_padding")
DOMAINS: tuple[tuple[int, ...], ...] = ((16, 32, 64), (1, 2, 3), (0, 1))
FAILURES = {(64, 3): "RuntimeFailedConfig", (64, 2): "CompilationFailedConfig"}


def milliseconds(block: int, tile: int, padding: int, bias: int = 0) -> float:
    """A made-up run time with one optimum, at a block of 32 and a tile of 2 or, biased, 3."""
    return 1.0 + abs(block - 32) / 16 + abs(tile - 2 - bias) / 2 + padding / 8


def content(device: str = "NVIDIA RTX A4000", bias: int = 0) -> dict[str, Any]:
    """A cache file's content: padding only with blocks of 16 and 32, some failures."""
    cache: dict[str, Any] = {}
    for block in DOMAINS[0]:
        for tile in DOMAINS[1]:
            for padding in DOMAINS[2]:
                if padding and block == 64:
                    continue
                time = FAILURES.get((block, tile), milliseconds(block, tile, padding, bias))
                entry = dict(zip(NAMES, (block, tile, padding), strict=True))
                cache[f"{block},{tile},{padding}"] = entry | {"time": time, "compile_time": 500}
    return {
        "device_name": device,
        "kernel_name": "blur",
        "problem_size": [4096, 4096],
        "tune_params_keys": list(NAMES),
        "tune_params": dict(zip(NAMES, map(list, DOMAINS), strict=True)),
        "cache": cache,
    }


def write_cache(path: Path, made: dict[str, Any]) -> Path:
    """Write a cache file, compressed if its name says so."""
    text = json.dumps(made)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def recorded(folder: Path, device: str = "NVIDIA RTX A4000", bias: int = 0) -> Recording:
    """A recording of the small kernel."""
    return read_cache(write_cache(folder / "cache.json", content(device, bias)))


def t1(conditions: Sequence[object]) -> dict[str, Any]:
    """The small kernel's T1 file."""
    return {
        "General": {"BenchmarkName": "blur"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": "int", "Values": str(list(domain))}
                for name, domain in zip(NAMES, DOMAINS, strict=True)
            ],
            "Conditions": [{"Expression": condition} for condition in conditions],
        },
        "KernelSpecification": {"ProblemSize": [4096, 4096]},
    }
