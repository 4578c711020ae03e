"""The ``tvm.backends`` entry point."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import metadata

import pytest

from tunerplugin import backend


def with_versions(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        key = name.replace("-", "_")
        if key not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[key]

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize("ffi", ["0.1.15.post1", "0.1.15", "0.2"])
def test_names_an_ffi_that_crashes(monkeypatch: pytest.MonkeyPatch, ffi: str) -> None:
    with_versions(monkeypatch, apache_tvm="0.27.0.post1", apache_tvm_ffi=ffi)
    with pytest.warns(RuntimeWarning, match=f"got {ffi}.*pip install 'apache-tvm-ffi<0.1.15'"):
        backend.register_backend()


@pytest.mark.parametrize(
    "versions",
    [
        {"apache_tvm": "0.27.0.post1", "apache_tvm_ffi": "0.1.14.post1"},
        {"apache_tvm": "0.28.0", "apache_tvm_ffi": "0.1.15.post1"},
        {},
    ],
)
def test_is_silent_otherwise(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    with_versions(monkeypatch, **versions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.register_backend()


def test_installed_versions_are_good_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.register_backend()


def test_import_tvm_does_not_load_the_tuner() -> None:
    code = (
        "import sys, tvm; from tunerplugin.backend import register_backend; register_backend();"
        "print(sorted(n for n in sys.modules if n.startswith('tunerplugin')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    chips = ["errors", "hw", "hw.accelerator", "hw.datasheet", "hw.target"]
    loaded = ["tunerplugin", "tunerplugin.backend", *(f"tunerplugin.{name}" for name in chips)]
    assert done.stdout.splitlines()[-1] == str(loaded)
