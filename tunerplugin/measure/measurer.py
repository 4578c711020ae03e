"""Measure candidates of a TVM task in isolated processes.

Builds go to all workers in parallel; then each candidate is checked and timed while every other
worker idles.  Start reading at ``Measurer.measure``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from ..errors import MeasureError
from ..outcome import Outcome
from .bench import Bench, Candidate, Limits, MeasureTask, Setting
from .host import available_cores
from .pool import Pool

_CHUNK_PER_JOB = 8
#: builds and runs TVM modules
WORKER = "tunerplugin.measure.worker"


@dataclass(frozen=True)
class Request:
    """One candidate: the ``save_json`` text of a scheduled IRModule, after postprocessing."""

    index: int
    module: str


class Measurer:
    """Builds, checks and times candidates in worker processes; a context manager.

    Args:
        jobs: build workers, and threads of a timed run (default: the cores this process may use).
        build_deadline_s: seconds for one build.
        run_deadline_s: seconds for checking and timing one candidate.  Start-up, import, warm-up,
            queueing and the reference run count towards neither deadline.
        repeats: samples per candidate; slow candidates get fewer.
        min_repeat_ms: least duration of one sample in milliseconds.
        device: device kind, ``"cpu"``, ``"cuda"``, ``"opencl"``, ...; device 0 is used.
        seed: seed of the inputs.
        worker: module that a worker process runs; it says in which form modules are sent.

    Workers start on first use.  They are new interpreters, neither forks nor ``multiprocessing``
    children, so a calling script needs no ``__main__`` guard.  They end with this process.
    """

    def __init__(
        self,
        *,
        jobs: int | None = None,
        build_deadline_s: float = 60.0,
        run_deadline_s: float = 30.0,
        repeats: int = 3,
        min_repeat_ms: float = 50.0,
        device: str = "cpu",
        seed: int = 0,
        worker: str = WORKER,
    ) -> None:
        jobs = available_cores() if jobs is None else jobs
        if min(jobs, repeats) < 1 or min(build_deadline_s, run_deadline_s, min_repeat_ms) <= 0:
            raise MeasureError(
                "expected jobs and repeats of at least 1, and deadlines and min_repeat_ms above "
                f"0, got jobs={jobs}, repeats={repeats}, build_deadline_s={build_deadline_s}, "
                f"run_deadline_s={run_deadline_s}, min_repeat_ms={min_repeat_ms}"
            )
        self._seed = seed
        self._jobs = jobs
        pool = Pool(jobs, device, worker)
        limits = Limits(build_deadline_s, run_deadline_s, repeats, min_repeat_ms / 1000.0)
        self._pool = pool
        self._bench = Bench(pool, limits)
        self._slots = itertools.count()
        self._close = weakref.finalize(self, pool.close)

    def __enter__(self) -> Measurer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers.  Harmless when repeated; a closed measurer cannot measure."""
        self._close()

    def start(self) -> None:
        """Let the workers start up while the caller does something else.

        Raises ``MeasureError`` when closed.
        """
        self._pool.grow(self._jobs)

    def measure(
        self, task: MeasureTask, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield (index, outcome) of every request, each as soon as it is known, in any order.

        Raises ``MeasureError`` when the device does not exist, workers cannot start, or the
        untuned module itself cannot be built and run.
        """
        candidates = [self._candidate(r.index, r.module) for r in requests]
        size = _CHUNK_PER_JOB * self._jobs
        for start in range(0, len(candidates), size):
            setting = Setting(task, self._seed)
            yield from self._measure_chunk(setting, candidates[start : start + size])

    def verify(self, task: MeasureTask, module: str, seeds: Sequence[int]) -> Outcome:
        """Compare a module with the reference on several seeds.

        Returns the first failure, or the outcome of the last seed.  Raises as ``measure`` does.
        """
        if not seeds:
            raise MeasureError("expected at least one seed to verify with, got none")
        for seed in seeds:
            setting = Setting(task, seed)
            candidate = self._candidate(0, module)
            with self._bench.session(setting, [candidate], workers=1):
                outcome = self._bench.one(setting, candidate)
            if not outcome.ok:
                break
        return outcome

    def time_pair(self, task: MeasureTask, modules: Sequence[str], rounds: int) -> list[Outcome]:
        """Measure modules in alternation in one worker, forwards and backwards in turn.

        Drift of the machine (clock, temperature, neighbours) then meets all of them alike.  Each
        outcome has one sample per round.  Raises as ``measure`` does.
        """
        if rounds < 1:
            raise MeasureError(f"expected at least one round, got {rounds}")
        setting = Setting(task, self._seed)
        candidates = [self._candidate(i, text) for i, text in enumerate(modules)]
        outcomes: list[list[Outcome]] = [[] for _ in modules]
        with self._bench.session(setting, candidates, workers=1):
            for turn in range(rounds):
                for candidate in candidates if turn % 2 == 0 else reversed(candidates):
                    done = outcomes[candidate.index]
                    if not done or done[-1].ok:
                        done.append(self._bench.one(setting, candidate, repeats=1, keep=True))
        return [_merge(done) for done in outcomes]

    def _candidate(self, index: int, module: str) -> Candidate:
        return Candidate(index, module, next(self._slots))

    def _measure_chunk(
        self, setting: Setting, chunk: Sequence[Candidate]
    ) -> Iterator[tuple[int, Outcome]]:
        """Build all, then run all; what a crash took down is built again; suspects come last."""
        pending = list(chunk)
        with self._bench.session(setting, chunk, workers=len(chunk)):
            while innocent := [c for c in pending if not c.crashes]:
                builds = self._bench.build_all(setting, innocent)
                for candidate, outcome in itertools.chain(builds, self._bench.run_all(innocent)):
                    pending.remove(candidate)
                    yield candidate.index, outcome
            for candidate in pending:
                yield candidate.index, self._bench.one(setting, candidate)


def _merge(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome from the rounds of one module: its failure, or all its samples."""
    last = outcomes[-1]
    samples = [sample for outcome in outcomes for sample in outcome.samples_s]
    return Outcome.from_samples(samples, last.wall_s) if last.ok else last
