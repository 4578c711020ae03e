"""A training step of a fused MLP (forward, backward-data, weight gradients) beside torch eager.

Both sides run the same module interface with the same parameters, through ``autograd``; the
optimiser is outside.  ``ours`` chooses its own way (activations computed again in backward);
``ours_stored`` keeps them from forward to backward.  Rounds are interleaved in one process, so that
a drift of the machine meets all alike; idle threads of OpenMP sleep (``OMP_WAIT_POLICY=passive``,
unless it is set), or torch's would take the cores from ours, and on a loaded machine from each
other.  Peak memory is the growth of the resident set's high-water
mark over one step (Linux), each method in a child process of its own.

Metrics (median over rounds, ``low`` and ``high`` the range; case ``all``: geometric mean):

step_s                    wall time of one step
gflops                    of the three matrix products of each layer, recomputation not counted
training_ratio_to_torch   torch's time / ours: above 1, ours is faster
memory_mib                growth of the peak resident set by a step
memory_ratio_to_torch     torch's growth / ours
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded

import torch
from fused_mlp import layer_widths, numbers
from harness import Row, emit, geometric_mean, note, paired_ratio, parser, positive, spread
from torch import nn

from tunerplugin.schedules.fused_mlp.description import MLP
from tunerplugin.schedules.fused_mlp.torch_kernels import make_plan, prepare_threads
from tunerplugin.schedules.fused_mlp.torch_module import FusedMLP

WIDTHS, LAYERS, LOG2_BATCH = (16, 32, 64, 128), (4, 11), 17
QUICK_WIDTHS, QUICK_LAYERS, QUICK_LOG2_BATCH = (32, 64), (4,), 13
ROUNDS, QUICK_ROUNDS = 9, 3
METHODS = ("ours", "ours_stored", "torch")
_KIB = 1024


@dataclass(frozen=True)
class Case:
    """An MLP of the paper's benchmark: square layers, ReLU, linear output."""

    width: int
    layers: int
    batch: int

    @property
    def name(self) -> str:
        """As it stands in the rows."""
        return f"{self.width}x{self.layers} batch {self.batch}"

    @property
    def flops(self) -> int:
        """Of one step; x needs no gradient, so the first layer has two products."""
        layer = 2 * self.batch * self.width**2
        return layer * (3 * self.layers - 1)


Step = Callable[[], None]


def torch_network(case: Case, seed: int) -> nn.Sequential:
    """The same network in torch's own modules, from its own generator."""
    generator = torch.Generator().manual_seed(seed)
    modules: list[nn.Module] = []
    for layer in range(case.layers):
        linear = nn.Linear(case.width, case.width)
        with torch.no_grad():
            linear.weight.normal_(0, (2 / case.width) ** 0.5, generator=generator)
            linear.bias.normal_(0, 0.1, generator=generator)
        modules += [linear] if layer + 1 == case.layers else [linear, nn.ReLU()]
    return nn.Sequential(*modules)


def module_of(case: Case, method: str, seed: int) -> nn.Module:
    """The network as a method runs it."""
    network = torch_network(case, seed)
    if method == "torch":
        return network
    knobs = make_plan(MLP.uniform(case.width, case.layers)).knobs
    return FusedMLP.from_sequential(network, replace(knobs, store=method == "ours_stored"))


def steps_of(case: Case, methods: Sequence[str], seed: int) -> dict[str, Step]:
    """A training step per method, all on the same data and initial weights, compiled and warm."""
    prepare_threads()
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(case.batch, case.width, generator=generator)
    dy = torch.randn(case.batch, case.width, generator=generator)

    def step_of(method: str) -> Step:
        module = module_of(case, method, seed)

        def step() -> None:
            module.zero_grad()
            module(x).backward(dy)

        return step

    made = {method: step_of(method) for method in methods}
    for step in made.values():
        step()
    return made


def seconds(step: Step) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def time_rows(case: Case, rounds: int, seed: int) -> list[Row]:
    """Times of all methods, interleaved; who is first changes every round."""
    steps = steps_of(case, METHODS, seed)
    samples: dict[str, list[float]] = {method: [] for method in METHODS}
    for turn in range(rounds):
        shift = turn % len(METHODS)
        for method in (*METHODS[shift:], *METHODS[:shift]):
            samples[method].append(seconds(steps[method]))
    rows: list[Row] = []
    for method in METHODS:
        taken = spread(samples[method])
        rows.append(Row(case.name, method, "step_s", taken.value, "s", taken.low, taken.high))
        speeds = spread([case.flops / s / 1e9 for s in samples[method]])
        rows.append(Row(case.name, method, "gflops", *_values(speeds, "GFLOP/s")))
        if method != "torch":
            ratio = paired_ratio(samples["torch"], samples[method])
            rows.append(Row(case.name, method, "training_ratio_to_torch", *_values(ratio, "x")))
    return rows


def _values(taken: Sequence[float], unit: str) -> tuple[float, str, float, float]:
    value, low, high = taken
    return value, unit, low, high


def peak_growth_mib(case: Case, method: str, seed: int) -> float:
    """Growth of the peak resident set by a step, in a child process.

    The first step, on one row, compiles and starts threads; only the second one counts.
    """
    command = [sys.executable, __file__, "--child", method, "--seed", str(seed)]
    command += ["--widths", str(case.width), "--layers", str(case.layers)]
    command += ["--log2-batch", str(case.batch.bit_length() - 1)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def child(case: Case, method: str, seed: int) -> None:
    """Print the growth in MiB."""
    steps_of(Case(case.width, case.layers, 1), [method], seed)
    x = torch.zeros(case.batch, case.width).normal_(generator=torch.Generator().manual_seed(seed))
    module = module_of(case, method, seed)
    dy = torch.ones(case.batch, case.width)
    # what compiling took before must not hide the step: what it freed goes back (glibc would serve
    # the step from it), and the high-water mark starts again here
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status_kib("VmRSS")
    module(x).backward(dy)
    print(json.dumps((_status_kib("VmHWM") - before) / _KIB))


def _status_kib(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


def memory_rows(case: Case, seed: int) -> list[Row]:
    """Peak memory of all methods."""
    found = {method: peak_growth_mib(case, method, seed) for method in METHODS}
    rows = [Row(case.name, m, "memory_mib", mib, "MiB", mib, mib) for m, mib in found.items()]
    for method in METHODS[:-1]:
        if not found[method]:  # a small step fits what the process had before
            continue
        ratio = found["torch"] / found[method]
        rows.append(Row(case.name, method, "memory_ratio_to_torch", ratio, "x", ratio, ratio))
    return rows


def training_rows(
    widths: Sequence[int], layers: Sequence[int], log2_batch: int, rounds: int, seed: int
) -> list[Row]:
    """All rows, for this script and for ``fused_mlp.py``."""
    rows: list[Row] = []
    for depth in layers:
        for width in widths:
            case = Case(width, depth, 1 << log2_batch)
            made = time_rows(case, rounds, seed) + memory_rows(case, seed)
            chosen = make_plan(MLP.uniform(width, depth)).knobs
            note(f"{case.name}: {chosen}")
            for row in made:
                if row.metric in {"training_ratio_to_torch", "memory_ratio_to_torch"}:
                    note(f"  {row.method} {row.metric} {row.value:.2f}")
            rows += made
    for method in METHODS[:-1]:
        for metric in ("training_ratio_to_torch", "memory_ratio_to_torch"):
            ratios = [r.value for r in rows if (r.method, r.metric) == (method, metric)]
            if ratios:
                mean = geometric_mean(ratios)
                rows.append(Row("all", method, metric, mean, "x", min(ratios), max(ratios)))
    return rows


def main() -> None:
    """Parse the options, run, print."""
    options_of = parser(__doc__)
    options_of.add_argument("--widths", type=layer_widths, help="comma-separated")
    options_of.add_argument("--layers", type=numbers, help="comma-separated")
    options_of.add_argument("--log2-batch", type=positive)
    options_of.add_argument("--rounds", type=positive)
    options_of.add_argument("--child", choices=METHODS, help=argparse.SUPPRESS)
    options = options_of.parse_args()
    quick = options.quick
    widths = options.widths or (QUICK_WIDTHS if quick else WIDTHS)
    layers = options.layers or (QUICK_LAYERS if quick else LAYERS)
    log2_batch = options.log2_batch or (QUICK_LOG2_BATCH if quick else LOG2_BATCH)
    if options.child:
        child(Case(widths[0], layers[0], 1 << log2_batch), options.child, options.seed)
        return
    rounds = options.rounds or (QUICK_ROUNDS if quick else ROUNDS)
    emit(training_rows(widths, layers, log2_batch, rounds, options.seed), options)


if __name__ == "__main__":
    main()
