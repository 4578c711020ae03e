"""The fast import of tensor intrinsics: it works, it restores what it replaced, it is needed.

What is counted is how often ``inspect`` reads source context, not seconds.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

from tunerplugin.measure import fast_script_parsing

# Hiding torch only makes the children start faster.
COUNT = """
import inspect, json, sys
sys.modules["torch"] = None
import tvm
from tunerplugin.measure import preload_tensor_intrinsics

class Enough(BaseException):
    pass

reads, limit = 0, int(sys.argv[2])
original = inspect.getframeinfo
def counted(*args, **kwargs):
    global reads
    reads += 1
    if reads > limit:
        raise Enough
    return original(*args, **kwargs)
inspect.getframeinfo = counted
before = inspect.stack, inspect.getouterframes
registered = False
try:
    if sys.argv[1] == "fast":
        preload_tensor_intrinsics()
        preload_tensor_intrinsics()
    else:
        import tvm.s_tir.tensor_intrin
    from tvm.s_tir import TensorIntrin
    registered = TensorIntrin.get("dot_16x4_vnni") is not None
except Enough:
    pass
restored = before == (inspect.stack, inspect.getouterframes)
print(json.dumps({"reads": reads, "registered": registered, "restored": restored}))
"""


def _count(way: str, limit: int) -> dict[str, object]:
    command = [sys.executable, "-c", COUNT, way, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_the_preload_registers_the_intrinsics_and_reads_hardly_any_source() -> None:
    assert _count("fast", 100) == {"reads": 0, "registered": True, "restored": True}


def test_the_plain_import_still_reads_source_for_every_frame() -> None:
    assert _count("plain", 1000)["reads"] == 1001, "TVM repaired it: remove script_speed"


def test_inspect_is_restored_after_an_error_and_frames_are_right_inside() -> None:
    before = inspect.stack, inspect.getouterframes
    with pytest.raises(ZeroDivisionError), fast_script_parsing():
        frames = inspect.stack()
        assert frames[0].function == inspect.currentframe().f_code.co_name  # type: ignore[union-attr]
        assert frames[0].code_context is None
        assert [f.function for f in inspect.getouterframes(frames[1].frame)] == [
            f.function for f in frames[1:]
        ]
        raise ZeroDivisionError
    assert (inspect.stack, inspect.getouterframes) == before
