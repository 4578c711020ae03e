"""What of the accelerators a TVM of the Relay era can have."""

from __future__ import annotations

import pytest

from tunerplugin import hw
from tunerplugin.errors import TargetError


def test_chips_are_known_but_are_no_targets() -> None:
    chip = hw.chip("tpu-v2")
    assert chip.tensor_rows == 128
    with pytest.raises(TargetError, match=r"targets take features \(0.25 or later\), got 0.16"):
        hw.register(chip)
