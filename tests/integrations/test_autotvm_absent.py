"""``tunerplugin.autotvm`` under a TVM without AutoTVM; with it, ``tests/relay`` has the tests."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tunerplugin.errors import InputError


@pytest.mark.skipif(find_spec("tvm.autotvm") is not None, reason="this TVM has AutoTVM")
@pytest.mark.parametrize("name", ["Seq2SeqTuner", "measure_option"])
def test_any_use_says_so_in_one_sentence(name: str) -> None:
    from tunerplugin import autotvm

    with pytest.raises(InputError) as raised:
        getattr(autotvm, name)
    message = str(raised.value)
    assert message.startswith("expected a TVM with AutoTVM") and "\n" not in message
    assert name in message and name in dir(autotvm)


def test_a_name_that_is_none() -> None:
    from tunerplugin import autotvm

    with pytest.raises(AttributeError, match="no attribute 'Tuner'"):
        _ = autotvm.Tuner
