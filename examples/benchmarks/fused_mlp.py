"""The fused MLP on CPU beside torch, TVM's default build, and its own kernel layer by layer.

Square layers with bias, ReLU and a linear output, float32.  All methods of a case run in turn,
round by round, each on all threads, and each is checked against float64 before.  TVM and torch live
in processes of their own (see ``fused_mlp_methods.py``).  The peak is that of a loop of
multiply-adds in registers, run in every round.

Methods: ``ours`` (one kernel), ``unfused`` (the same kernel, a call per layer), ``torch`` (eager),
``torch-chunked`` (1024 rows at a time), ``torch-compile``, ``tvm-default`` (on a sixteenth of the
batch).  torch's idle threads spin, which is its default, or sleep, whichever is faster for torch at
the start of a case (unless ``OMP_WAIT_POLICY`` is set): on a loaded machine threads that spin take
the cores from each other, and would make torch look a hundred times slower.

Metrics (median over rounds, ``low`` and ``high`` the range; case ``all``: geometric mean over the
cases, with their range):

gflops           of the matrix products, per wall second
share_of_peak    gflops / that of the peak loop in the same round
ratio_to_X       gflops / that of method X in the same round: above 1, faster than X
cpu_...          the same per CPU second, idle threads that spin included: on a machine shared with
                 others the steadier figure, best with ``--threads 1``

``unfused``'s ``ratio_to_torch`` is what the kernel itself brings, ``ours``' ``ratio_to_unfused``
what fusion adds.  With ``--training``, the rows of ``fused_mlp_training.py`` follow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import fused_mlp_methods as methods
from fused_mlp_methods import PEAK, TORCH_METHODS, TVM_METHODS, Case
from harness import (
    Row,
    Spread,
    emit,
    geometric_mean,
    names,
    note,
    paired_ratio,
    parser,
    positive,
    spread,
)

from tunerplugin.measure import available_cores
from tunerplugin.schedules.fused_mlp.description import MAX_WIDTH

WIDTHS, LAYERS, LOG2_BATCH = (16, 32, 64, 128), (4, 11), 17
SWEEP_WIDTH, SWEEP_LAYERS, SWEEP_LOG2 = 64, 4, range(11, 21)
SWEEP_METHODS = ("ours", "unfused", "torch", "torch-chunked")
ROUNDS, QUICK_ROUNDS = 15, 3
QUICK_WIDTHS, QUICK_LAYERS, QUICK_LOG2_BATCH = (16, 64), (4,), 13
#: rounds of a method that takes seconds
_SLOW_ROUNDS, _SLOW_S = 3, 2.0
#: until the idle threads of the process that just worked have gone to sleep
_SETTLE_S = 0.02
_WAIT_POLICY = "OMP_WAIT_POLICY"


class Server:
    """A process that runs the methods of one library; a context manager."""

    def __init__(
        self, kind: str, case: Case, chosen: Sequence[str], policy: dict[str, str] | None = None
    ) -> None:
        threads = str(case.threads)
        settings = {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, **(policy or {})}
        command = [sys.executable, methods.__file__, kind, methods.as_argument(case), *chosen]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings, "TVM_BIND_THREADS": "0"},
        )
        answer = self._answer()
        self.ready: list[str] = answer["ready"]
        for method, reason in answer["refused"].items():
            note(f"{case.width}x{case.layers}: {method} is left out: {reason}")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def seconds(self, method: str) -> tuple[float, float]:
        """Wall and CPU seconds of one call."""
        assert self._process.stdin is not None
        time.sleep(_SETTLE_S)
        self._process.stdin.write(f"{method}\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["wall_s"], answer["cpu_s"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the benchmark's child ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def torch_policy(case: Case, method: str, tries: int = 5) -> dict[str, str]:
    """The environment in which torch's threads wait so that ``method`` is fastest."""
    policies: list[dict[str, str]] = [{}]
    if _WAIT_POLICY not in os.environ:
        policies.append({_WAIT_POLICY: "passive"})
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("torch", case, [method], p)) for p in policies]
        if not all(server.ready for server in servers):
            return {}
        fastest = [
            min(taken)
            for taken in zip(
                *([server.seconds(method)[0] for server in servers] for _ in range(tries)),
                strict=True,
            )
        ]
    return policies[fastest.index(min(fastest))]


@dataclass(frozen=True)
class Sample:
    """Wall and CPU seconds of one call."""

    wall_s: float
    cpu_s: float


Samples = dict[str, list[Sample]]


def measure(case: Case, chosen: Sequence[str], rounds: int) -> Samples:
    """All methods in turn, round by round; who is first changes every round."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("tvm", case, _of(TVM_METHODS, chosen)))]
        if wanted := _of(TORCH_METHODS, chosen):
            policy = torch_policy(case, wanted[0])
            servers.append(stack.enter_context(Server("torch", case, wanted, policy)))
        runner = {method: server for server in servers for method in server.ready}
        samples: Samples = {method: [] for method in runner}
        order = list(runner)
        for turn in range(rounds):
            for method in (*order[turn % len(order) :], *order[: turn % len(order)]):
                taken = samples[method]
                if len(taken) >= _SLOW_ROUNDS and taken[0].wall_s > _SLOW_S:
                    continue
                taken.append(Sample(*runner[method].seconds(method)))
    return samples


def _of(known: Sequence[str], chosen: Sequence[str]) -> list[str]:
    return [method for method in chosen if method in known]


def rows_of(case: Case, samples: Samples) -> list[Row]:
    """The metrics of one case."""
    name = f"{case.width}x{case.layers} batch {case.batch}"
    rows: list[Row] = []

    def add(method: str, metric: str, taken: Spread, unit: str) -> None:
        rows.append(Row(name, method, metric, taken.value, unit, taken.low, taken.high))

    def speeds(method: str, clock: str = "wall_s") -> list[float]:
        flops = case.flops(method) / 1e9
        return [flops / getattr(sample, clock) for sample in samples[method]]

    for method in samples:
        add(method, "gflops", spread(speeds(method)), "GFLOP/s")
    for method in ("ours", "unfused"):
        if method not in samples:
            continue
        for metric, clock in (("share_of_peak", "wall_s"), ("cpu_share_of_peak", "cpu_s")):
            share = ratio(speeds(method, clock), speeds(PEAK, clock))
            add(method, metric, share, "share")
        for other in samples:
            if other in {method, PEAK, "ours"}:
                continue
            for prefix, clock in (("", "wall_s"), ("cpu_", "cpu_s")):
                faster = ratio(speeds(method, clock), speeds(other, clock))
                add(method, f"{prefix}ratio_to_{other}", faster, "x")
    return rows


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Spread:
    """Round by round, as far as both went: a slow method stops early."""
    count = min(len(numerator), len(denominator))
    return paired_ratio(numerator[:count], denominator[:count])


def means(rows: Sequence[Row]) -> list[Row]:
    """Geometric means of shares and ratios over the cases."""
    keys = dict.fromkeys((r.method, r.metric, r.unit) for r in rows if r.metric != "gflops")
    made = []
    for method, metric, unit in keys:
        values = [r.value for r in rows if (r.method, r.metric) == (method, metric)]
        low, high = min(values), max(values)
        made.append(Row("all", method, metric, geometric_mean(values), unit, low, high))
    return made


def explain(rows: Sequence[Row]) -> None:
    """What of the gain is the kernel's and what the fusion's, for people."""
    found = {(r.case, r.method, r.metric): r.value for r in rows}
    for case in dict.fromkeys(r.case for r in rows):
        total = found.get((case, "ours", "ratio_to_torch"))
        kernel = found.get((case, "unfused", "ratio_to_torch"))
        fusion = found.get((case, "ours", "ratio_to_unfused"))
        if total and kernel and fusion:
            share = found[case, "ours", "share_of_peak"]
            note(
                f"{case}: {share:.0%} of the peak; {total:.2f} x torch = {kernel:.2f} x by the "
                f"kernel, {fusion:.2f} x by fusion"
            )


def numbers(text: str) -> list[int]:
    """An argparse type: whole numbers of at least 1."""
    return [positive(part) for part in text.split(",")]


def layer_widths(text: str) -> list[int]:
    """An argparse type: widths that can be fused."""
    widths = numbers(text)
    if max(widths) > MAX_WIDTH:
        raise argparse.ArgumentTypeError(f"expected widths of 1 to {MAX_WIDTH}, got {text!r}")
    return widths


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    known = [*TVM_METHODS, *TORCH_METHODS]
    made.add_argument("--widths", type=layer_widths, help="comma-separated")
    made.add_argument("--layers", type=numbers, help="comma-separated")
    made.add_argument("--log2-batch", type=positive)
    made.add_argument("--rounds", type=positive)
    made.add_argument("--threads", type=positive, default=available_cores())
    made.add_argument("--methods", type=names(known), help="comma-separated; ours always runs")
    made.add_argument("--no-sweep", action="store_true", help="leave the batch sizes out")
    made.add_argument("--training", action="store_true", help="the training step too")
    return made.parse_args()


def main() -> None:
    """Parse the options, run, print."""
    options = _options()
    quick, seed, threads = options.quick, options.seed, options.threads
    widths = options.widths or (QUICK_WIDTHS if quick else WIDTHS)
    layers = options.layers or (QUICK_LAYERS if quick else LAYERS)
    batch = 1 << (options.log2_batch or (QUICK_LOG2_BATCH if quick else LOG2_BATCH))
    rounds = options.rounds or (QUICK_ROUNDS if quick else ROUNDS)
    chosen = options.methods or [*TVM_METHODS, *(TORCH_METHODS[:2] if quick else TORCH_METHODS)]
    chosen = list(dict.fromkeys(["ours", *chosen]))
    rows: list[Row] = []
    for depth in layers:
        for width in widths:
            case = Case(width, depth, batch, seed, threads)
            made = rows_of(case, measure(case, chosen, rounds))
            explain(made)
            rows += made
    averages = means(rows)
    explain(averages)
    rows += averages
    if not (quick or options.no_sweep):
        for exponent in SWEEP_LOG2:
            case = Case(SWEEP_WIDTH, SWEEP_LAYERS, 1 << exponent, seed, threads)
            swept = [method for method in SWEEP_METHODS if method in chosen]
            made = rows_of(case, measure(case, swept, rounds))
            explain(made)
            rows += [replace(row, case=f"sweep {row.case}") for row in made]
    if options.training:
        from fused_mlp_training import training_rows

        rows += training_rows(widths, layers, batch.bit_length() - 1, rounds, seed)
    emit(rows, options)


if __name__ == "__main__":
    main()
