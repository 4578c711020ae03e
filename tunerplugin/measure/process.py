"""One worker process and the thread that talks to it.

The thread starts the process, writes a request, reads the reply and posts it into an inbox, so
the owner only ever waits on that inbox, with a deadline.  Linux kills the child when the *thread*
that started it ends; that thread lives as long as its worker does.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from .protocol import Message, ProtocolError, read_frame, write_frame

START_DEADLINE_S = 300.0

_JOIN_S = 5.0
_STDERR_TAIL_BYTES = 8192
_COMPLAINT = re.compile(r"ERROR|Error:|Assertion|terminate called|what\(\)")


class Worker:
    """One child process.  ``task`` and ``candidates`` are notes for the pool's owner."""

    def __init__(
        self, inbox: Inbox, device: str, environment: Mapping[str, str], program: str
    ) -> None:
        self.task: object = None
        self.task_rss_bytes = 0
        self.rss_bytes = 0
        self.candidates = 0
        self.command: str | None = "start"
        self.alive = True
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + START_DEADLINE_S
        self._inbox = inbox
        self._outbox: queue.SimpleQueue[tuple[Message, bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(
            target=self._talk, args=(device, dict(environment), program), daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Process id, once the process exists."""
        return self._process.pid if self._process else None

    def submit(self, message: Message, payload: bytes, deadline_s: float) -> None:
        """Hand over one request; its reply comes through the inbox."""
        self.command = message["command"]
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + deadline_s
        self._outbox.put((message, payload))

    def kill(self) -> None:
        """End the process and everything in its group, now."""
        self.alive = False
        self._outbox.put(None)
        with self._lock:
            process = self._process
            if process is None or process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)

    def join(self) -> None:
        """Wait until the process is gone."""
        self._thread.join(_JOIN_S)

    def _talk(self, device: str, environment: dict[str, str], program: str) -> None:
        with tempfile.TemporaryFile() as errors:
            try:
                self._spawn(device, environment, program, errors)
                self._converse()
                reason = ""
            except (OSError, EOFError, ProtocolError) as error:
                reason = str(error)
            self.kill()
            ended = self._wait()
            self._inbox.put((self, None, b"", _explain(ended, errors) if ended else reason))

    def _spawn(
        self, device: str, environment: dict[str, str], program: str, errors: IO[bytes]
    ) -> None:
        command = [sys.executable, "-m", program, device, str(os.getpid())]
        process = subprocess.Popen(  # noqa: S603  our own module, arguments are not a shell's
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
        if not self.alive:
            raise EOFError("stopped while starting")

    def _converse(self) -> None:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        while True:
            message, payload = read_frame(process.stdout)
            self._inbox.put((self, message, payload, ""))
            request = self._outbox.get()
            if request is None:
                return
            write_frame(process.stdin, *request)

    def _wait(self) -> int | None:
        process = self._process
        if process is None:
            return None
        with self._lock:
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return process.returncode


Inbox = queue.SimpleQueue[tuple[Worker, Message | None, bytes, str]]
"""Where workers post (worker, reply or ``None`` at its end, payload, how it ended)."""


def child_environment(threads: int) -> dict[str, str]:
    """The child's environment: this interpreter's import path, and bounded thread pools."""
    paths = [os.path.abspath(p) for p in sys.path]
    root = str(Path(__file__).resolve().parents[2])
    if root not in paths:
        paths.append(root)
    one_thread = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **os.environ,
        **dict.fromkeys(one_thread, "1"),
        "TVM_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
    }


def _explain(returncode: int, errors: IO[bytes]) -> str:
    """Say how a process ended, with what it complained about last."""
    if returncode < 0:
        number = -returncode
        known = number in set(signal.Signals)
        name = f" ({signal.Signals(number).name})" if known else ""
        how = f"killed by signal {number}{name}"
    else:
        how = f"exit code {returncode}"
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - _STDERR_TAIL_BYTES))
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines()]
    complaint = next((line for line in reversed(lines) if _COMPLAINT.search(line)), "")
    return f"{how}: {complaint[:200]}" if complaint else how
