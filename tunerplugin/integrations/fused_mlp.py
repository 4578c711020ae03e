"""Tuning the knobs of a fused MLP's template: the shared loop, measured in isolated workers.

    tuned = tune_fused_mlp(MLP.uniform(64, layers=4), batch=1 << 15, trials=16, work_dir="work")
    mod = FuseMLP(target, knobs={tuned.mlp: tuned.knobs})(mod)

Candidate 0 is the template's default, so the winner is never slower than it.  Candidates differ in
how weights are packed, so each is built and run on packed weights of its own, and the winner's
result is compared with the default's on the same unpacked ones.  Candidates for GPUs are first
shown to the device's compiler (``schedules.offline``; it needs no device): what spills is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ..errors import MeasureError, ScheduleError
from ..measure import Measurer, MeasureTask, Request, device_name, host_target
from ..outcome import Outcome, Status
from ..predictor import Predictor
from ..records import STORE_NAME, MemoryStore, Record, RecordStore, SQLiteStore, TaskKey, Workload
from ..schedules.fused_mlp import MLP
from ..schedules.fused_mlp.dispatch import as_target, select
from ..schedules.fused_mlp.packing import numpy_dtype
from ..schedules.fused_mlp.template import ENTRY, FusedKernel, Template, knobs_of
from ..schedules.offline.refuse import refusal
from ..search import Candidate, Tuner, UniformScorer, run
from ..space import Prefix, Problem, Value
from .compat import compile_module, compiler_version, target_config, tensor

_METHOD, _DEFAULT = "ours", "untuned"
#: rows on which the winner is compared with the default
_CHECKED_ROWS = 67
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class TunedMLP:
    """The fastest knobs found; latencies in seconds, of the template's default and of these."""

    mlp: MLP
    batch: int
    knobs: Mapping[str, Value]
    default_s: float
    best_s: float
    outcomes: Mapping[Prefix, Outcome]


def tune_fused_mlp(
    mlp: MLP,
    batch: int,
    target: Any = None,
    *,
    trials: int = 32,
    work_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    jobs: int | None = None,
) -> TunedMLP:
    """Measure ``trials`` candidates in all (the default and those of earlier runs included).

    ``batch`` is a number of rows: what is measured has a size.  ``target`` defaults to this
    machine.  Records are kept in ``work_dir`` and a run goes on from them.  Raises
    ``ScheduleError`` for another batch and when no template takes the MLP on the target, and
    ``MeasureError`` when the default cannot be measured or the winner computes something else.
    """
    if not isinstance(batch, int) or batch < 1:
        raise ScheduleError(f"expected a batch of at least 1 to measure, got {batch!r}")
    target = as_target(host_target(jobs) if target is None else target)
    template = _template(mlp, target)
    store = _open(work_dir)
    with Measurer(jobs=jobs, device=_device(target), seed=seed) as measurer:
        session = _Session(mlp, batch, target, template, store, measurer, seed, jobs)
        return session.tune(trials)


def sound_knobs(
    mlp: MLP, target: Any, *, batch: int | None = None, tries: int = 16, seed: int = 0
) -> dict[str, Value]:
    """Knobs for a device that need not be here: the template's defaults, or else the first
    candidate that the device's own compiler builds without spills and within shared memory.

    Raises ``ScheduleError`` when no template takes the MLP on the target, or all ``tries`` are
    refused; it says why the last one was.
    """
    target = as_target(target)
    template = _template(mlp, target)
    space = template.space(mlp, target)
    default = template.build(mlp, batch, target)
    refused = refusal(default, target)
    if refused is None:
        return dict(default.knobs)
    problem = Problem((("op", f"fused_mlp.{template.name}"), ("target_kind", target.kind.name)))
    for candidate in Tuner(problem, space, UniformScorer(), seed=seed).ask(tries):
        knobs = knobs_of(space, candidate.values)
        refused = refusal(template.build(mlp, batch, target, **knobs), target)
        if refused is None:
            return knobs
    raise ScheduleError(
        f"expected a candidate of template {template.name} that {target.kind.name} can run well, "
        f"got {tries} refusals, the last: {refused}; use narrower layers or more tries"
    )


class _Session:
    """One MLP on one target, from the first measurement to the winner."""

    def __init__(
        self,
        mlp: MLP,
        batch: int,
        target: Any,
        template: Template,
        store: RecordStore,
        measurer: Measurer,
        seed: int,
        jobs: int | None,
    ) -> None:
        self._mlp, self._batch, self._target, self._template = mlp, batch, target, template
        self._store, self._measurer, self._seed = store, measurer, seed
        self._space = template.space(mlp, target)
        self._text = json.dumps(target_config(target), sort_keys=True)
        workload = hashlib.sha256(f"{template.name} {mlp!r} {batch}".encode()).hexdigest()[:16]
        name = device_name(jobs) if _device(target) == "cpu" else f"{_device(target)} 0"
        self._key = TaskKey(workload, self._text, name, compiler_version(), self._space.version)
        store.put_workload(Workload(workload, f"fused_mlp {mlp.widths}", repr((mlp, batch))))
        self._begin = time.monotonic()

    def tune(self, trials: int) -> TunedMLP:
        """Go on from what the store has, until there are ``trials``."""
        tuner = Tuner(self._problem(), self._space, Predictor(self._seed), seed=self._seed)
        default = self._default()
        for record in self._store.records(self._key):
            tuner.tell(record.values, record.outcome)
        if default not in tuner.history.outcomes:
            tuner.tell(default, self._measure([default], _DEFAULT)[default])
        base = tuner.history.outcomes[default].latency_s
        if base is None:
            raise MeasureError(
                f"expected the default schedule to run, got {tuner.history.outcomes[default]}"
            )
        tuner.learn()
        run(tuner, self._measure_all, trials)
        assert tuner.history.best is not None  # the default at least
        values, outcome = tuner.history.best
        knobs = knobs_of(self._space, values)
        if values != default:
            self._compare(knobs)
        assert outcome.latency_s is not None
        outcomes = dict(tuner.history.outcomes)
        return TunedMLP(self._mlp, self._batch, knobs, base, outcome.latency_s, outcomes)

    def _problem(self) -> Problem:
        mlp = self._mlp
        words: list[tuple[str, Value]] = [("op", f"fused_mlp.{self._template.name}")]
        words += [("batch", self._batch), ("layers", mlp.layers), ("dtype", mlp.dtype)]
        words += [("width", width) for width in mlp.widths]
        words += [("activation", item.function) for item in mlp.activations]
        words.append(("target_kind", self._target.kind.name))
        return Problem(tuple(words))

    def _default(self) -> Prefix:
        knobs = self._template.build(self._mlp, self._batch, self._target).knobs
        return tuple(knobs[name] for name in self._space.names)

    def _measure_all(self, candidates: Sequence[Candidate]) -> dict[Prefix, Outcome]:
        return self._measure([candidate.values for candidate in candidates], _METHOD)

    def _measure(self, candidates: Sequence[Prefix], method: str) -> dict[Prefix, Outcome]:
        """An outcome for each, written down as soon as it is known."""
        outcomes: dict[Prefix, Outcome] = {}
        for values in candidates:
            outcome = self._one(values)
            trial, elapsed = self._store.count(self._key, method), time.monotonic() - self._begin
            self._store.append(
                Record(self._key, values, outcome, method, self._seed, trial, elapsed)
            )
            outcomes[values] = outcome
        return outcomes

    def _one(self, values: Prefix) -> Outcome:
        begin = time.monotonic()
        try:
            kernel = self._build(knobs_of(self._space, values))
            reason = refusal(kernel, self._target)
        except ScheduleError as error:
            reason = str(error)
        if reason is not None:
            return Outcome(Status.ILLEGAL, (), reason, time.monotonic() - begin)
        text = tvm.ir.save_json(tvm.IRModule({ENTRY: kernel.func}))
        task = MeasureTask(f"fused_mlp {self._mlp.widths}", text, self._text)
        ((_, outcome),) = self._measurer.measure(task, [Request(0, text)])
        return outcome

    def _build(self, knobs: Mapping[str, Value], batch: int | None = None) -> FusedKernel:
        return self._template.build(self._mlp, batch or self._batch, self._target, **knobs)

    def _compare(self, knobs: Mapping[str, Value]) -> None:
        """Raise ``MeasureError`` where the winner and the default differ on a few rows."""
        wanted, got = (
            _result(self._build(chosen, _CHECKED_ROWS), self._target, self._seed)
            for chosen in ({}, knobs)
        )
        limit = _TOLERANCE[self._mlp.dtype]
        if not np.allclose(got, wanted, rtol=limit, atol=limit):
            worst = float(np.abs(got - wanted).max())
            raise MeasureError(
                f"expected the result of the default schedule, got one that differs by {worst:.3g} "
                f"with {dict(knobs)}: a bug of template {self._template.name}, please report it"
            )


def _result(kernel: FusedKernel, target: Any, seed: int) -> Any:
    """What a kernel computes from drawn numbers, (batch, widths[-1]) in float64."""
    mlp, rng = kernel.mlp, np.random.default_rng(seed)
    parameters = [
        (
            (rng.normal(size=shape) / np.sqrt(shape[0])).astype(numpy_dtype(mlp.dtype)),
            rng.normal(size=shape[1]).astype(np.float32) if bias else None,
        )
        for shape, bias in zip(mlp.shapes, mlp.bias, strict=True)
    ]
    rows = rng.normal(size=(_CHECKED_ROWS, mlp.widths[0])).astype(numpy_dtype(mlp.dtype))
    out = np.zeros((_CHECKED_ROWS, mlp.widths[-1]), dtype=numpy_dtype(mlp.dtype))
    device = tvm.device(_device(target))
    arguments = [tensor(a, device) for a in (rows, *kernel.pack(parameters), out)]
    compile_module(tvm.IRModule({ENTRY: kernel.func}), target)[ENTRY](*arguments)
    return arguments[-1].numpy().astype(np.float64)


def _template(mlp: MLP, target: Any) -> Template:
    template, reason = select(mlp, target)
    if template is None:
        raise ScheduleError(f"expected an MLP that can be fused on {target.kind.name}: {reason}")
    return template


def _device(target: Any) -> str:
    return "cpu" if target.kind.name == "llvm" else str(target.kind.name)


def _open(work_dir: str | os.PathLike[str] | None) -> RecordStore:
    if work_dir is None:
        return MemoryStore()
    folder = Path(work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return SQLiteStore(folder / STORE_NAME)
