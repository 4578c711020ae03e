"""A pool of long-lived worker processes with one inbox."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from enum import Enum

from ..errors import MeasureError
from .process import START_DEADLINE_S, Inbox, Worker, child_environment
from .protocol import Message

_START_ATTEMPTS = 3


class Ending(Enum):
    """How a request ended."""

    ANSWERED = "answered"
    DIED = "died"
    LATE = "late"


@dataclass(frozen=True)
class Reply:
    """The end of one request.  ``reason`` says how the process died, if it did."""

    worker: Worker
    command: str
    ending: Ending
    elapsed_s: float
    message: Message = field(default_factory=dict)
    payload: bytes = b""
    reason: str = ""


class Pool:
    """Up to ``size`` workers for one device; dead ones are replaced when asked to ``grow``.

    ``program`` is the module that a worker runs.
    """

    def __init__(self, size: int, device: str, program: str) -> None:
        self.size = size
        self._device, self._program = device, program
        self._environment = child_environment(size)
        self._inbox: Inbox = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._failed_starts = 0
        self._closed = False

    def grow(self, count: int) -> None:
        """Start workers until ``count`` of them (at most ``size``) exist."""
        if self._closed:
            raise MeasureError("expected an open measurer, got one that was closed; make a new one")
        while len(self._workers) < min(count, self.size):
            self._workers.append(
                Worker(self._inbox, self._device, self._environment, self._program)
            )

    def idle(self) -> list[Worker]:
        """Workers that wait for a request."""
        return [w for w in self._workers if w.command is None]

    def ready(self) -> Worker:
        """Wait until a worker is idle."""
        self.grow(1)
        while not (idle := self.idle()):
            self.wait()
            self.grow(1)
        return idle[0]

    def settle(self) -> list[Worker]:
        """Wait until no worker is starting up, and at least one is idle; return the idle ones."""
        self.grow(1)
        while any(w.command == "start" for w in self._workers):
            self.wait()
            self.grow(1)
        return self.idle()

    def fresh(self) -> Worker:
        """An idle worker that has seen no candidate yet, started if need be."""
        idle = self.settle()
        if not any(w.candidates == 0 for w in idle):
            self.discard(idle[0])
            self.grow(len(self._workers) + 1)
            idle = self.settle()
        return next(w for w in idle if w.candidates == 0)

    def discard(self, worker: Worker) -> None:
        """Kill a worker and forget it."""
        worker.kill()
        if worker in self._workers:
            self._workers.remove(worker)

    def discard_busy(self) -> None:
        """Kill whatever is at work (after an interrupt, its replies would come too late)."""
        for worker in [w for w in self._workers if w.command not in (None, "start")]:
            self.discard(worker)

    def call(self, worker: Worker, message: Message, payload: bytes, deadline_s: float) -> Reply:
        """One request to an idle worker while all others are idle."""
        worker.submit(message, payload, deadline_s)
        while True:
            reply = self.wait()
            if reply is not None:
                return reply

    def wait(self) -> Reply | None:
        """The next request that ends; ``None`` when a worker became ready or was lost instead.

        A worker that died or is late is killed and forgotten.  Raises ``MeasureError`` when
        workers cannot start.
        """
        busy = [w for w in self._workers if w.command is not None]
        first = min((w.deadline_s for w in busy), default=0.0)
        try:
            timeout = max(0.0, first - time.monotonic()) if busy else 0.0
            worker, message, payload, reason = self._inbox.get(timeout=timeout)
        except queue.Empty:
            return self._late(min(busy, key=lambda w: w.deadline_s)) if busy else None
        if worker not in self._workers:
            return None
        command, worker.command = worker.command, None
        elapsed_s = time.monotonic() - worker.started_s
        if command == "start":
            self._started(worker, message, reason)
            return None
        if message is not None:
            worker.rss_bytes = int(message.get("rss_bytes", 0))
            return Reply(worker, command or "", Ending.ANSWERED, elapsed_s, message, payload)
        self.discard(worker)
        if command is None:
            return None
        return Reply(worker, command, Ending.DIED, elapsed_s, reason=reason)

    def close(self) -> None:
        """Kill every worker and wait for their ends."""
        self._closed = True
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()

    def _late(self, worker: Worker) -> Reply:
        command = worker.command or ""
        self.discard(worker)
        if command == "start":
            raise MeasureError(
                f"expected a measurement worker within {START_DEADLINE_S:g} s, "
                "got none; check that `import tvm` works on this machine"
            )
        return Reply(worker, command, Ending.LATE, time.monotonic() - worker.started_s)

    def _started(self, worker: Worker, message: Message | None, reason: str) -> None:
        if message is not None and "error" not in message:
            self._failed_starts = 0
            return
        self.discard(worker)
        self._failed_starts += 1
        if message is not None or self._failed_starts >= _START_ATTEMPTS:
            cause = message["error"] if message is not None else reason
            raise MeasureError(f"expected a measurement worker to start, got: {cause}")
