"""How many GPU candidates pass every postprocessor of TVM: constrained decoding against uniform.

For each target (no device is needed) and operator, ``ours`` takes what ``Tuner.ask`` yields with an
untrained predictor, and ``uniform`` samples the same design space without constraints: one of its
sketches, a perfect tile uniformly over all factorizations within the innermost bound, a choice and
a compute location uniformly over what exists.  TVM judges both.

Metrics (``low`` and ``high`` are the ends of 95% Wilson intervals for shares, else the value):

pass_share              share of emitted candidates that every postprocessor accepts
candidates_per_second   candidates emitted per second of decoding or sampling
legal_per_second        accepted candidates per second of both emitting and judging
setup_s                 seconds to generate the design space and to fit its constraints
shared_memory_equal     share of accepted candidates whose predicted shared memory (bytes of the
                        hungriest kernel) is exactly what TVM's ``verify_gpu_code`` counts
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpu_memory import verified_shared_bytes
from harness import Row, emit, names, note, parser, positive, wilson
from tvm.s_tir.meta_schedule.testing import te_workload

from tunerplugin.errors import EmptySpaceError
from tunerplugin.integrations.compat import normalize_mod
from tunerplugin.integrations.metaschedule.limits import complete_target
from tunerplugin.integrations.metaschedule.task import IllegalCandidate, TuningTask
from tunerplugin.measure import preload_tensor_intrinsics
from tunerplugin.predictor import Predictor
from tunerplugin.search import Tuner
from tunerplugin.space import Prefix
from tunerplugin.space.constraints import MemoryLimit
from tunerplugin.space.tiles import divisors

#: limits as vendors state them: CUDA C programming guide, CDNA2 ISA, the required minima of OpenCL
#: 1.2 (embedded: less) and Vulkan 1.3, Metal feature set tables (Apple 4 and later).  From sm_80 on
#: TVM adds sketches that copy asynchronously into several versions of a shared buffer; cuda-sm70 is
#: the space without them.
TARGETS: dict[str, dict[str, Any]] = {
    "cuda": {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
    },
    "cuda-sm70": {
        "kind": "cuda",
        "arch": "sm_70",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
    },
    "rocm": {
        "kind": "rocm",
        "mcpu": "gfx90a",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 65536,
    },
    "opencl": {
        "kind": "opencl",
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 16384,
    },
    "vulkan": {
        "kind": "vulkan",
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 16384,
    },
    "metal": {
        "kind": "metal",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 32768,
    },
}
#: TVM's own names of its MetaSchedule test workloads: convolutions (1-3 dimensions, depthwise,
#: dilated, grouped, transposed, capsule, with bias and batch norm), matrix products, norm, softmax
OPERATORS = "GMM C1D C2D C3D DEP DIL GRP T2D CAP CBR TBG SFM NRM".split()
SAMPLES, QUICK_SAMPLES = 200, 30
QUICK_TARGETS = ("cuda", "opencl")
QUICK_OPERATORS = ("GMM", "C2D", "DEP", "SFM")
#: candidates per ``ask``, as in a tuning run that measures in large batches
BATCH = 50


@dataclass
class Tally:
    """What became of one method's candidates."""

    emitted: int = 0
    passed: int = 0
    emit_s: float = 0.0
    judge_s: float = 0.0
    setup_s: float = 0.0
    shared_equal: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take in the counts of another operator."""
        for name in vars(self):
            if name != "reasons":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons.update(other.reasons)

    def rows(self, case: str, method: str) -> list[Row]:
        """The figures of this tally."""
        share = wilson(self.passed, self.emitted)
        rows = [Row(case, method, "pass_share", share.value, "share", share.low, share.high)]
        rates = {
            "candidates_per_second": self.emitted / self.emit_s,
            "legal_per_second": self.passed / (self.emit_s + self.judge_s),
        }
        rows += [Row(case, method, name, rate, "1/s", rate, rate) for name, rate in rates.items()]
        if self.setup_s:
            rows.append(Row(case, method, "setup_s", self.setup_s, "s", self.setup_s, self.setup_s))
        if self.passed:
            equal = wilson(self.shared_equal, self.passed)
            rows.append(
                Row(
                    case, method, "shared_memory_equal", equal.value, "share", equal.low, equal.high
                )
            )
        return rows


@lru_cache(maxsize=4096)
def factorizations(extent: int, ways: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered factorization, outermost first, with the last factor within its bound.

    ``max_innermost`` of 0 is no bound.
    """
    if ways == 1:
        return ((extent,),) if not max_innermost or extent <= max_innermost else ()
    return tuple(
        (outer, *rest)
        for outer in divisors(extent)
        for rest in factorizations(extent // outer, ways - 1, max_innermost)
    )


def uniform_candidate(task: TuningTask, rng: random.Random) -> Prefix:
    """One candidate of the task's design space, drawn without looking at any constraint."""
    index = rng.randrange(len(task.sketches))
    sketch = task.sketches[index]
    factors: dict[int, int] = {}
    for tile in sketch.facts.tiles:
        drawn = rng.choice(factorizations(tile.extent, tile.ways, tile.max_innermost))
        for level, factor in enumerate(drawn):
            factors[sketch.positions[tile.instruction, level]] = factor
    # tiles come first in the order of knobs; choices and locations follow
    values: Prefix = tuple(factors[position] for position in range(len(factors)))
    while (knob := sketch.knob(values)) is not None:
        values = (*values, rng.choice(knob.domain))
    return (index, *values)


def judge(task: TuningTask, candidates: Sequence[Prefix], tally: Tally) -> None:
    """Let TVM accept or refuse each candidate."""
    for values in candidates:
        tally.emitted += 1
        start = time.perf_counter()
        try:
            scheduled = task.schedule(values)
        except IllegalCandidate as error:
            tally.reasons[str(error).partition(":")[0]] += 1
            continue
        finally:
            tally.judge_s += time.perf_counter() - start
        tally.passed += 1
        counted = verified_shared_bytes(scheduled.schedule.mod, task.target)
        tally.shared_equal += predicted_shared_bytes(task, values) == counted


def predicted_shared_bytes(task: TuningTask, values: Prefix) -> int:
    """Bytes of shared memory of the hungriest kernel, as decoding reckons them."""
    limits = task.sketches[int(values[0])].constraints
    return max(
        (
            limit.bytes_used(values[1:])
            for limit in limits
            if isinstance(limit, MemoryLimit) and limit.name == "shared memory"
        ),
        default=0,
    )


def run_ours(task: TuningTask, n: int, seed: int) -> Tally:
    """What the tuner yields before TVM judges; fewer than ``n`` when the space is used up."""
    tally = Tally()
    tuner = Tuner(task.problem, task.space, Predictor(seed), seed=seed)
    candidates: list[Prefix] = []
    while len(candidates) < n:
        start = time.perf_counter()
        try:
            asked = tuner.ask(min(BATCH, n - len(candidates)))
        except EmptySpaceError:
            asked = []
        tally.emit_s += time.perf_counter() - start
        if not asked:
            break
        candidates += [candidate.values for candidate in asked]
    judge(task, candidates, tally)
    return tally


def run_uniform(task: TuningTask, n: int, seed: int) -> Tally:
    """The same space without constraints."""
    tally = Tally()
    rng = random.Random(seed)
    start = time.perf_counter()
    candidates = [uniform_candidate(task, rng) for _ in range(n)]
    tally.emit_s = time.perf_counter() - start
    judge(task, candidates, tally)
    return tally


METHODS: dict[str, Callable[[TuningTask, int, int], Tally]] = {
    "ours": run_ours,
    "uniform": run_uniform,
}


def run_target(kind: str, operators: Sequence[str], n: int, seed: int) -> list[Row]:
    """The rows of one target, the summary last."""
    target = complete_target(TARGETS[kind])
    totals = {method: Tally() for method in METHODS}
    rows: list[Row] = []
    for operator in operators:
        start = time.perf_counter()
        mod = normalize_mod(te_workload.create_te_workload(operator, 0))
        task = TuningTask(operator, mod, target)
        setup_s = time.perf_counter() - start
        for method, run in METHODS.items():
            tally = run(task, n, seed)
            tally.setup_s = setup_s if method == "ours" else 0.0
            refusals = ", ".join(f"{why} {count}" for why, count in tally.reasons.most_common(3))
            note(f"{kind}/{operator} {method}: {tally.passed} of {tally.emitted} {refusals}")
            rows += tally.rows(f"{kind}/{operator}", method)
            totals[method].add(tally)
    for method, total in totals.items():
        rows += total.rows(f"{kind}/all", method)
    return rows


def main() -> None:
    """Parse, run, print."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--samples", type=positive, help=f"each (default: {SAMPLES})")
    options_parser.add_argument("--targets", type=names(TARGETS), help=f"of {', '.join(TARGETS)}")
    options_parser.add_argument(
        "--operators", type=names(OPERATORS), help=f"of {', '.join(OPERATORS)}"
    )
    options = options_parser.parse_args()
    samples = options.samples or (QUICK_SAMPLES if options.quick else SAMPLES)
    targets = options.targets or (QUICK_TARGETS if options.quick else TARGETS)
    operators = options.operators or (QUICK_OPERATORS if options.quick else OPERATORS)
    preload_tensor_intrinsics()
    rows = [row for kind in targets for row in run_target(kind, operators, samples, options.seed)]
    emit(rows, options)


if __name__ == "__main__":
    main()
