"""The Relay pass under a TVM without Relay: importable, and refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tunerplugin.schedules
from tunerplugin.errors import InputError
from tunerplugin.integrations import compat
from tunerplugin.schedules import relay

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(compat.RELAY, reason="this TVM has Relay")


def test_refused_in_one_sentence() -> None:
    with pytest.raises(InputError) as refusal:
        relay.FuseMLP  # noqa: B018
    message = str(refusal.value)
    assert message.startswith("expected a TVM with Relay, got tvm-")
    assert message.endswith("use tunerplugin.schedules.FuseMLP, the pass for Relax")
    assert "\n" not in message
    with pytest.raises(InputError, match="expected a TVM with Relay"):
        from tunerplugin.schedules.relay import analyse as _  # noqa: F401


def test_names() -> None:
    assert tunerplugin.schedules.relay is relay
    assert set(relay.__all__) <= set(dir(relay))
    with pytest.raises(AttributeError, match="has no attribute 'Fuse'"):
        relay.Fuse  # noqa: B018


def test_importing_loads_no_tvm() -> None:
    assert tunerplugin.schedules.__name__ == "tunerplugin.schedules"
    program = "import sys, tunerplugin.schedules.relay; sys.exit('tvm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0
