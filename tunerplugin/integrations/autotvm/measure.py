"""Isolated measurement for AutoTVM: a builder and a runner without RPC.

    tuner.tune(n_trial=64, measure_option=tunerplugin.autotvm.measure_option())

The builder applies the template in this process, which takes milliseconds; lowering, compiling and
running happen in worker processes with deadlines, so a candidate that hangs or crashes costs
itself only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.autotvm.measure.measure import Builder, MeasureResult, Runner

from ...errors import InputError
from ...measure import Measurer, MeasureTask, Request, available_cores
from ...outcome import Outcome, Status
from ..compat import target_config
from .outcomes import outcome_of, result_of
from .task import IllegalConfiguration, instantiate
from .worker import SCHEDULE, VERIFY

_WORKER = "tunerplugin.integrations.autotvm.worker"
_DEVICE_OF = {"llvm": "cpu", "c": "cpu"}


@dataclass(frozen=True)
class Instantiated:
    """What our builder hands to our runner: the text of [schedule, arguments]."""

    schedule: str
    wall_s: float


class TemplateBuilder(Builder):
    """Applies the template; ``n_parallel`` is how many candidates AutoTVM asks a tuner for."""

    def __init__(self, n_parallel: int) -> None:
        super().__init__(timeout=0, n_parallel=n_parallel)

    def build(self, measure_inputs: Sequence[Any]) -> list[Any]:
        """``Instantiated``, or the ``MeasureResult`` of what the template refuses."""
        return [self._instantiate(given) for given in measure_inputs]

    def _instantiate(self, given: Any) -> Any:
        started = time.monotonic()
        try:
            schedule, arguments = instantiate(given.task, given.config)
        except IllegalConfiguration as error:
            return result_of(Outcome(Status.ILLEGAL, (), str(error), time.monotonic() - started))
        text = tvm.ir.save_json([schedule, arguments])
        return Instantiated(str(text), time.monotonic() - started)


class IsolatedRunner(Runner):
    """Compiles and times candidates in worker processes.

    A candidate that would become the task's fastest is first checked against its unscheduled
    computation.  ``options`` are those of ``tunerplugin.measure.Measurer``.
    """

    def __init__(self, jobs: int, verify: bool, options: dict[str, Any]) -> None:
        super().__init__(timeout=0, n_parallel=jobs)
        self._jobs, self._verify, self._options = jobs, verify, options
        self._measurers: dict[str, Measurer] = {}
        self._fastest_s: dict[str, float] = {}

    def get_build_kwargs(self) -> dict[str, Any]:
        """Nothing: devices are asked by the workers."""
        return {}

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
        """One ``MeasureResult`` each.  Raises ``MeasureError`` when nothing can be measured."""
        results: dict[int, Any] = {}
        batches: dict[str, list[int]] = {}
        for index, (given, built) in enumerate(zip(measure_inputs, build_results, strict=True)):
            if isinstance(built, Instantiated):
                batches.setdefault(_key(given), []).append(index)
            elif not isinstance(built, MeasureResult) or outcome_of(built).ok:
                raise InputError(
                    f"expected builds of measure_option's own builder, got {built!r}: "
                    "use its builder and runner together"
                )
            else:
                results[index] = built
        for key, indices in batches.items():
            task = _measure_task(key, measure_inputs[indices[0]].target)
            texts = {index: build_results[index] for index in indices}
            for index, outcome in self._measure(task, measure_inputs[indices[0]].target, texts):
                results[index] = result_of(outcome)
        return [results[index] for index in range(len(measure_inputs))]

    def compare(self, measure_inputs: Sequence[Any], rounds: int) -> list[Outcome]:
        """Time configurations of one task in alternation, one sample each per round.

        Drift of the machine then meets all of them alike.  Raises ``IllegalConfiguration`` for
        what the template refuses.
        """
        first = measure_inputs[0]
        texts = []
        for given in measure_inputs:
            schedule, arguments = instantiate(given.task, given.config)
            text = str(tvm.ir.save_json([schedule, arguments]))
            texts.append(_request(Instantiated(text, 0.0), verify=False))
        task = _measure_task(_key(first), first.target)
        return self._measurer(first.target).time_pair(task, texts, rounds)

    def close(self) -> None:
        """End the worker processes; they also end with this object."""
        for measurer in self._measurers.values():
            measurer.close()
        self._measurers.clear()

    def _measure(
        self, task: MeasureTask, target: Any, built: dict[int, Instantiated]
    ) -> list[tuple[int, Outcome]]:
        measurer = self._measurer(target)
        requests = [Request(i, _request(b, verify=False)) for i, b in built.items()]
        outcomes = []
        for index, outcome in list(measurer.measure(task, requests)):
            if self._verify and self._leads(task, outcome):
                checked = [Request(index, _request(built[index], verify=True))]
                ((_, second),) = measurer.measure(task, checked)
                outcome = outcome if second.ok else second
            if self._leads(task, outcome) and outcome.latency_s is not None:
                self._fastest_s[task.key] = outcome.latency_s
            outcomes.append((index, outcome))
        return outcomes

    def _leads(self, task: MeasureTask, outcome: Outcome) -> bool:
        latency = outcome.latency_s
        return latency is not None and latency < self._fastest_s.get(task.key, float("inf"))

    def _measurer(self, target: Any) -> Measurer:
        kind = str(target.kind.name)
        device = _DEVICE_OF.get(kind, kind)
        if device not in self._measurers:
            self._measurers[device] = Measurer(
                jobs=self._jobs, device=device, worker=_WORKER, **self._options
            )
        return self._measurers[device]


def measure_option(
    *,
    jobs: int | None = None,
    verify: bool = True,
    build_deadline_s: float = 20.0,
    run_deadline_s: float = 20.0,
    repeats: int = 3,
    min_repeat_ms: float = 50.0,
    seed: int = 0,
) -> dict[str, Any]:
    """What AutoTVM's ``tune`` takes as ``measure_option``: our builder and runner, for any tuner.

    Args:
        jobs: build workers, threads of a timed run, and candidates per batch (default: the cores
            this process may use).
        verify: check the outputs of a candidate that would become the fastest (a wrong one fails
            with ``WRONG_ANSWER``).
        build_deadline_s: seconds for one build.
        run_deadline_s: seconds for running one candidate.
        repeats: samples per candidate.
        min_repeat_ms: least duration of one sample in milliseconds.
        seed: of the random inputs.

    Raises ``MeasureError`` for numbers that are not positive.
    """
    jobs = available_cores() if jobs is None else jobs
    options: dict[str, Any] = {
        "build_deadline_s": build_deadline_s,
        "run_deadline_s": run_deadline_s,
        "repeats": repeats,
        "min_repeat_ms": min_repeat_ms,
        "seed": seed,
    }
    Measurer(jobs=jobs, worker=_WORKER, **options).close()  # refuses bad numbers now
    return {"builder": TemplateBuilder(jobs), "runner": IsolatedRunner(jobs, verify, options)}


def _request(built: Instantiated, verify: bool) -> str:
    return json.dumps({SCHEDULE: built.schedule, VERIFY: verify})


def _key(given: Any) -> str:
    return f"{given.task.name} {given.task.args} on {given.target}"


def _measure_task(key: str, target: Any) -> MeasureTask:
    return MeasureTask(key, "", json.dumps(target_config(target)))
