"""What importing costs: neither torch nor tvm for the package, the help and the errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "tvm", "tvm_ffi", "matplotlib", "onnx", "xgboost", "psutil", "networkx"}


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a child process has loaded after ``code``."""
    report = "import sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import tunerplugin",
        "import tunerplugin.hw; assert tunerplugin.hw.chip('tpu-v2').tensor_rows == 128",
        "import tunerplugin.records, tunerplugin.space, tunerplugin.outcome, tunerplugin.models",
        "from tunerplugin.cli import main; assert main(['--help']) == 0",
        "from tunerplugin.cli import main; assert main(['tune', '--help']) == 0",
        "from tunerplugin.cli import main; assert main(['tune', 'missing.onnx']) == 2",
        "from tunerplugin.cli import main; assert main(['records', 'check', '/']) == 2",
    ],
)
def test_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) & HEAVY == set()


def test_public_names_exist() -> None:
    import tunerplugin

    for name in tunerplugin.__all__:
        assert getattr(tunerplugin, name) is not None
        assert name in dir(tunerplugin)


def test_subpackages_are_attributes() -> None:
    code = "import tunerplugin; assert tunerplugin.records.SQLiteStore and tunerplugin.hw.__doc__"
    assert "sqlite3" in loaded_after(code)


def test_unknown_name_is_an_attribute_error() -> None:
    import tunerplugin

    with pytest.raises(AttributeError, match="no attribute 'tunee'"):
        _ = tunerplugin.tunee
