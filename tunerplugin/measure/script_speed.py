"""Make the import of TVM's tensor intrinsics fast.

TVMScript calls ``inspect.stack()`` and ``inspect.getouterframes()`` while it parses every
intrinsic, and those read source lines for every frame; nothing of that context is used.  The
import of ``tvm.s_tir.tensor_intrin`` takes minutes of CPU time for it on a slow core.  This is
the one place that knows.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_lock = threading.RLock()


def _frames(frame: FrameType | None) -> list[inspect.FrameInfo]:
    """The frame and its callers, innermost first, without source lines."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
        )
        frame = frame.f_back
    return found


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    return _frames(sys._getframe(1))


def _getouterframes(frame: FrameType, context: int = 1) -> list[inspect.FrameInfo]:
    return _frames(frame)


@contextlib.contextmanager
def fast_script_parsing() -> Iterator[None]:
    """Inside, ``inspect`` lists frames without their source lines; restored on every exit.

    For TVMScript modules of TVM itself only: error messages inside show no source context.
    """
    with _lock:
        saved = inspect.stack, inspect.getouterframes
        inspect.stack, inspect.getouterframes = _stack, _getouterframes
        try:
            yield
        finally:
            inspect.stack, inspect.getouterframes = saved


def preload_tensor_intrinsics() -> None:
    """Import TVM's tensor intrinsics quickly; a second call does nothing.

    Call it before anything that imports them the slow way (``TuneContext`` does).
    """
    from ..integrations.compat import load_tensor_intrinsics

    with fast_script_parsing():
        load_tensor_intrinsics()
