"""Exit codes and the handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

DONE = 0
FAILED = 1
BAD_INPUT = 2
SIGNAL_BASE = 128  # a process ended by signal n exits with 128 + n: 130 Ctrl-C, 143 SIGTERM


class StopGuard:
    """While entered: the first SIGINT or SIGTERM raises ``KeyboardInterrupt``, the second ends the
    process at once with its children.

    A callback from C++ may turn the exception into one of its own, or lose it.  So ``signum`` is
    what tells a stop from a failure, and ``check`` raises again at the next chance.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopGuard:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @property
    def stopped(self) -> bool:
        """Whether the user asked to stop."""
        return self.signum is not None

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM."""
        return SIGNAL_BASE + (self.signum or 0)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` when a stop was asked for and not carried out yet."""
        if self.stopped:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.stopped:
            _kill_children()
            os._exit(SIGNAL_BASE + signum)
        self.signum = signum
        raise KeyboardInterrupt


def _kill_children() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
