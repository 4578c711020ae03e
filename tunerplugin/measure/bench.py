"""The mechanics of measuring: what happens to candidates on the pool's workers.

A candidate that takes its worker down is suspected, not condemned: memory may have been damaged
by an earlier candidate, or the process killed from outside.  It gets one more chance, alone in a
worker that has seen no other candidate.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import MeasureError
from ..outcome import Outcome, Status
from .pool import Ending, Pool, Reply
from .process import Worker
from .protocol import Message

_REFERENCE_DEADLINE_S = 900.0
_RECYCLE_CANDIDATES = 200
_RECYCLE_GROWTH_BYTES = 2 << 30
_KEPT_REFERENCES = 8
_FAULTS_FORGIVEN = 2


@dataclass(frozen=True)
class MeasureTask:
    """What is tuned, under a name for messages.

    ``module`` is the ``tvm.ir.save_json`` text of the untuned IRModule with its one PrimFunc (the
    reference), ``target`` the JSON text of the target's dictionary.
    """

    key: str
    module: str
    target: str


@dataclass(frozen=True)
class Setting:
    """A task with the seed of its inputs."""

    task: MeasureTask
    seed: int

    def message(self, command: str) -> Message:
        """The command that tells a worker about this setting."""
        task = self.task
        return {
            "command": command,
            "module": task.module,
            "target": task.target,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and how often and how long to time."""

    build_deadline_s: float
    run_deadline_s: float
    repeats: int
    min_repeat_s: float


@dataclass(eq=False)
class Candidate:
    """A module on its way to an outcome.  ``worker`` holds its build in ``slot``."""

    index: int
    module: str
    slot: int
    worker: Worker | None = None
    crashes: int = 0
    wall_s: float = 0.0

    @property
    def built(self) -> bool:
        """Whether a living worker holds the build."""
        return self.worker is not None and self.worker.alive

    def failed(self, status: Status, reason: str) -> Outcome:
        """A failure that cost what was spent so far."""
        return Outcome(status, (), reason, self.wall_s)


class Bench:
    """Drives a pool through references, builds and runs.  One ``session`` at a time."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._references: dict[Setting, bytes] = {}
        self._faults = 0
        self._in_session = False
        self._oldest_slot = 0

    @contextlib.contextmanager
    def session(
        self, setting: Setting, candidates: Sequence[Candidate], workers: int
    ) -> Iterator[None]:
        """Prepare the task; afterwards leave no request in flight."""
        if self._in_session:
            raise MeasureError(
                "expected one measurement at a time; exhaust or close the iterator of "
                "measure() before the next call"
            )
        self._in_session = True
        self._oldest_slot = min((c.slot for c in candidates), default=0)
        try:
            self._recycle()
            self._pool.grow(workers)
            self._reference(setting)
            yield
        finally:
            self._pool.discard_busy()
            self._in_session = False

    def build_all(
        self, setting: Setting, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Outcome]]:
        """Build on all workers at once; yields failures and leaves first-time crashes unbuilt."""
        waiting = deque(c for c in candidates if not c.built)
        running: dict[Worker, Candidate] = {}
        while waiting or running:
            self._pool.grow(len(waiting) + len(running))
            for worker in self._pool.idle():
                if waiting and worker not in running:
                    running[worker] = waiting.popleft()
                    self._submit(setting, worker, running[worker])
            reply = self._pool.wait()
            if reply is None:
                continue
            candidate = running.pop(reply.worker)
            if reply.command == "build":
                outcome = self._build_ended(candidate, reply)
                if outcome is not None:
                    yield candidate, outcome
            elif self._task_taken(setting, reply):
                running[reply.worker] = candidate
                self._submit(setting, reply.worker, candidate)
            else:
                waiting.append(candidate)
        self._pool.settle()

    def run_all(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, Outcome]]:
        """Check and time one candidate after the other, each on the worker that built it."""
        for candidate in candidates:
            if candidate.built and not candidate.crashes:
                outcome = self._run(candidate, self._limits.repeats, keep=False)
                if outcome is not None:
                    yield candidate, outcome

    def one(
        self, setting: Setting, candidate: Candidate, repeats: int | None = None, keep: bool = False
    ) -> Outcome:
        """Build (unless built) and run one candidate alone; after a crash, in a fresh worker.

        ``keep`` leaves the build in the worker for another run.
        """
        while True:
            outcome = None
            if not candidate.built:
                worker = self._pool.fresh() if candidate.crashes else self._pool.settle()[0]
                outcome = self._build_on(setting, worker, candidate)
            if outcome is None and candidate.built:
                outcome = self._run(candidate, repeats or self._limits.repeats, keep)
            if outcome is not None:
                return outcome

    def _recycle(self) -> None:
        """Replace workers that served long or grew much."""
        for worker in self._pool.idle():
            grown = worker.rss_bytes - worker.task_rss_bytes
            if worker.candidates >= _RECYCLE_CANDIDATES or grown > _RECYCLE_GROWTH_BYTES:
                self._pool.discard(worker)

    def _reference(self, setting: Setting) -> None:
        """Have the untuned module run once for this task and seed; a lost worker is forgiven."""
        if setting in self._references:
            return
        for _ in range(_FAULTS_FORGIVEN):
            worker = self._pool.ready()
            reply = self._pool.call(
                worker, setting.message("reference"), b"", _REFERENCE_DEADLINE_S
            )
            if _answered_ok(reply):
                if len(self._references) >= _KEPT_REFERENCES:
                    del self._references[next(iter(self._references))]
                self._references[setting] = reply.payload
                return
            if reply.ending is not Ending.DIED:
                break
        hint = "; does the target ask for instructions this CPU lacks (see host_target)?"
        raise MeasureError(
            f"expected the untuned module of task {setting.task.key} to build and run, got: "
            f"{_cause(reply)}{hint if 'SIGILL' in reply.reason else ''}"
        )

    def _submit(self, setting: Setting, worker: Worker, candidate: Candidate) -> None:
        """Send a build, or first the task if the worker does not hold it."""
        if worker.task != setting:
            worker.task = None
            payload = self._references[setting]
            worker.submit(setting.message("task"), payload, _REFERENCE_DEADLINE_S)
            return
        worker.candidates += 1
        message = {
            "command": "build",
            "slot": candidate.slot,
            "oldest_slot": self._oldest_slot,
            "module": candidate.module,
        }
        worker.submit(message, b"", self._limits.build_deadline_s)

    def _task_taken(self, setting: Setting, reply: Reply) -> bool:
        """Note that the worker holds the task; a few workers lost in a row are forgiven."""
        if _answered_ok(reply):
            reply.worker.task = setting
            reply.worker.task_rss_bytes = reply.worker.rss_bytes
            self._faults = 0
            return True
        self._faults += 1
        if self._faults > _FAULTS_FORGIVEN or reply.ending is not Ending.DIED:
            raise MeasureError(
                f"expected workers to load task {setting.task.key}, got: {_cause(reply)}"
            )
        return False

    def _build_on(self, setting: Setting, worker: Worker, candidate: Candidate) -> Outcome | None:
        """Build on one worker while the others idle; ``None`` when built or to be tried again."""
        self._submit(setting, worker, candidate)
        while True:
            reply = self._pool.wait()
            if reply is None:
                continue
            if reply.command == "build":
                return self._build_ended(candidate, reply)
            if not self._task_taken(setting, reply):
                return None
            self._submit(setting, worker, candidate)

    def _build_ended(self, candidate: Candidate, reply: Reply) -> Outcome | None:
        """The outcome that a build settles, if any."""
        candidate.wall_s += reply.elapsed_s
        if reply.ending is Ending.ANSWERED and _answered_ok(reply):
            candidate.worker = reply.worker
            return None
        crash = Status.COMPILE_CRASH
        return self._failure(candidate, reply, crash, self._limits.build_deadline_s)

    def _run(self, candidate: Candidate, repeats: int, keep: bool) -> Outcome | None:
        """Run a built candidate; ``None`` after its first crash."""
        worker = candidate.worker
        assert worker is not None
        message = {
            "command": "run",
            "slot": candidate.slot,
            "keep": keep,
            "repeats": repeats,
            "min_repeat_s": self._limits.min_repeat_s,
        }
        reply = self._pool.call(worker, message, b"", self._limits.run_deadline_s)
        candidate.wall_s += reply.elapsed_s
        if _answered_ok(reply):
            return Outcome.from_samples(reply.message["samples_s"], candidate.wall_s)
        return self._failure(candidate, reply, Status.RUN_ERROR, self._limits.run_deadline_s)

    def _failure(
        self, candidate: Candidate, reply: Reply, crash: Status, deadline_s: float
    ) -> Outcome | None:
        """The failed outcome; ``None`` for the first crash of a candidate."""
        if reply.ending is Ending.LATE:
            reason = f"{reply.command} took longer than {deadline_s:g} s"
            return candidate.failed(Status.TIMEOUT, reason)
        if reply.ending is Ending.ANSWERED:
            return candidate.failed(Status(reply.message["status"]), reply.message["reason"])
        candidate.crashes += 1
        return candidate.failed(crash, reply.reason) if candidate.crashes > 1 else None


def _answered_ok(reply: Reply) -> bool:
    return reply.ending is Ending.ANSWERED and reply.message["status"] == Status.OK.value


def _cause(reply: Reply) -> str:
    if reply.ending is Ending.LATE:
        return f"no answer in {_REFERENCE_DEADLINE_S:g} s"
    return reply.reason if reply.ending is Ending.DIED else str(reply.message["reason"])
