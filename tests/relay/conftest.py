"""Tests that run in a second environment, with a TVM of the Relay era (``.ci/relay-env``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import pytest

HAS_RELAY = bool(importlib.util.find_spec("tvm") and importlib.util.find_spec("tvm.relay"))


class NeedsRelay(pytest.Module):
    """A module of this folder under a TVM that cannot import it: skipped, with the reason."""

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip("needs a TVM with Relay: .ci/relay-env", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Do not even import the tests where there is no Relay."""
    return None if HAS_RELAY else NeedsRelay.from_parent(parent, path=module_path)
