"""The child process that builds and runs candidates: ``python -m tunerplugin.measure.worker``.

It serves one command after the other from its standard input until that closes.  Everything a
candidate can break breaks here: the parent kills and replaces this process at will.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Protocol

from ..outcome import Status
from .protocol import Message, ProtocolError, read_frame, write_frame

_PR_SET_PDEATHSIG = 1
_REASON_CHARS = 300
_LARGEST_FILE_BYTES = 256 << 20


class Serves(Protocol):
    """Builds and runs candidates, one command after the other."""

    def serve(self, message: Message, payload: bytes) -> tuple[Message, bytes]:
        """The reply to one command; every reply has a ``status``."""


def main(make_server: Callable[[str], Serves] | None = None) -> None:
    """Serve the parent named by ``argv``: device kind, parent process id.

    ``make_server`` gets the device kind; it imports tvm and does whatever no deadline should pay
    for (default: ``Server``).
    """
    device, parent = sys.argv[1], int(sys.argv[2])
    _die_with(parent)
    _limit_files()
    _volunteer_for_oom()
    requests, replies = _take_pipes()
    inbox: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, inbox), daemon=True).start()
    server = _start(make_server or Server, device, replies)
    while server is not None:
        message, payload = inbox.get()
        reply, data = server.serve(message, payload)
        reply["rss_bytes"] = _rss_bytes()
        write_frame(replies, reply, data)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere the closed pipe does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _limit_files() -> None:
    """No core dumps of crashed candidates, and no disk filled by one that prints for ever."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE_BYTES, hard))


def _volunteer_for_oom() -> None:
    """When memory runs out, Linux should end the greedy candidate and not its parent."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Keep both pipes for the protocol and give loaded code harmless standard streams."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, replies


def _listen(requests: IO[bytes], inbox: queue.SimpleQueue[tuple[Message, bytes]]) -> None:
    """Pass frames on; end the process, busy or not, as soon as the parent is gone."""
    while True:
        try:
            inbox.put(read_frame(requests))
        except (EOFError, OSError, ProtocolError):
            os._exit(0)


def _start(make_server: Callable[[str], Serves], device: str, replies: IO[bytes]) -> Serves | None:
    """Import tvm and compile something, so that no deadline ever pays for it."""
    try:
        server = make_server(device)
    except Exception as error:  # noqa: BLE001  isolation boundary: told to the parent
        write_frame(replies, {"error": one_line(error)})
        return None
    write_frame(replies, {"rss_bytes": _rss_bytes()})
    return server


class Server:
    """Holds the current task and the programs built for it.

    ``Server`` raises whatever the import of tvm raises, and ``RuntimeError`` for a device that
    does not exist.
    """

    def __init__(self, device: str) -> None:
        import_tvm_without_torch()
        from . import program

        self._program = program
        self._device = program.open_device(device)
        program.warm_up()
        self._reference: program.Reference | None = None
        self._target: Any = None
        self._built: dict[int, program.Program] = {}
        self._commands = {
            "reference": self._compute_reference,
            "task": self._take_task,
            "build": self._build,
            "run": self._run,
        }

    def serve(self, message: Message, payload: bytes) -> tuple[Message, bytes]:
        """Answer one command; an exception becomes ``{"status": ..., "reason": ...}``."""
        command = message["command"]
        try:
            return self._commands[command](message, payload)
        except self._program.CorruptedError as error:
            sys.stderr.write(f"ERROR: {error}\n")
            sys.stderr.flush()
            os.abort()
        except Exception as error:  # noqa: BLE001  isolation boundary: a candidate's own error
            status = Status.COMPILE_ERROR if command == "build" else Status.RUN_ERROR
            return {"status": status.value, "reason": one_line(error)}, b""

    def _compute_reference(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        reference = self._program.Reference(message["module"], message["seed"])
        target = self._program.load_target(message["target"])
        return {"status": Status.OK.value}, reference.compute(target)

    def _take_task(self, message: Message, payload: bytes) -> tuple[Message, bytes]:
        self._built.clear()
        self._target = self._program.load_target(message["target"])
        self._program.require_fit(self._target, self._device)
        self._reference = self._program.Reference(message["module"], message["seed"])
        self._reference.accept(payload)
        return {"status": Status.OK.value}, b""

    def _build(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        """Build into a slot; slots below ``oldest_slot`` belong to sessions that are over."""
        for slot in [s for s in self._built if s < message["oldest_slot"]]:
            del self._built[slot]
        module = self._program.load_module(message["module"])
        self._built[message["slot"]] = self._program.build(module, self._target)
        return {"status": Status.OK.value}, b""

    def _run(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        """Check, then time; ``keep`` leaves the program in its slot for another run."""
        slot = message["slot"]
        built = self._built[slot] if message["keep"] else self._built.pop(slot)
        if self._reference is None:
            raise RuntimeError("expected a task before a run")
        first_s, fault = self._program.check(built, self._reference, self._device)
        if fault is not None:
            return {"status": fault[0].value, "reason": fault[1]}, b""
        samples = self._program.time_samples(
            built, self._device, message["repeats"], message["min_repeat_s"], first_s
        )
        return {"status": Status.OK.value, "samples_s": samples}, b""


def import_tvm_without_torch() -> None:
    """Import tvm, which loads torch wherever it is installed, without it.

    Torch is two thirds of a worker's start-up, and nothing here exchanges tensors with it.  A
    third-party ``tvm.backends`` entry that needs torch is not loaded, with a warning of TVM's.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    importlib.import_module("tvm")
    if hidden:
        del sys.modules["torch"]


def one_line(error: BaseException) -> str:
    """Type and first line of an error, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:_REASON_CHARS]


def _rss_bytes() -> int:
    """Resident memory of this process (0 where the system does not say)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
