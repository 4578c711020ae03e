"""The fused MLP through Relay beside plain ``relay.build``, on CPU, in one run.

Needs a TVM of the Relay era (``.ci/relay-env FOLDER``).  Square layers with bias and ReLU, float32,
parameters bound; both models are built with ``opt_level=3`` and no tuning records, and run by the
graph executor on all threads, in alternation, round by round.

Methods: ``unfused`` (``relay.build`` of the model), ``fused`` (of the model after ``FuseMLP``).
Metrics (median over rounds, ``low`` and ``high`` the range):

latency_ms      of one run, wall clock
speedup         unfused / fused in the same round, wall clock: above 1, fusion is faster
cpu_speedup     the same per CPU second, idle threads that spin included: on a machine shared with
                others the steadier figure, best with ``--threads 1``
max_error       largest absolute difference from float64
difference      largest absolute difference between the two
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Row, emit, note, paired_ratio, parser, positive, spread

from tunerplugin.errors import TunerError
from tunerplugin.measure import available_cores

Array = npt.NDArray[Any]
WIDTH, LAYERS, LOG2_BATCH, ROUNDS = 64, 4, 15, 21
QUICK_LOG2_BATCH, QUICK_ROUNDS = 12, 5


class Model:
    """A model that was built, and how long each of its runs took."""

    def __init__(self, mod: Any, target: Any, x: Array) -> None:
        import tvm
        from tvm import relay
        from tvm.contrib import graph_executor

        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(mod, target=target)
        self._executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        self._executor.set_input("x", tvm.nd.array(x))
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    def run(self) -> Array:
        """The result; the time is not kept."""
        self._executor.run()
        result: Array = self._executor.get_output(0).numpy()
        return result

    def measure(self) -> None:
        """One run more."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._executor.run()
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)


def network(batch: int, width: int, parameters: Sequence[tuple[Array, Array]]) -> Any:
    """The MLP as a Relay module whose parameters are literals."""
    import tvm
    from tvm import relay

    h = relay.var("x", shape=(batch, width))
    for weight, bias in parameters:
        h = relay.nn.relu(
            relay.nn.bias_add(relay.nn.dense(h, relay.const(weight)), relay.const(bias))
        )
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(h), h))


def reference(x: Array, parameters: Sequence[tuple[Array, Array]]) -> Array:
    """The result in float64."""
    h = x.astype(np.float64)
    for weight, bias in parameters:
        h = np.maximum(h @ weight.T.astype(np.float64) + bias, 0)
    return h


def compare(batch: int, width: int, layers: int, rounds: int, seed: int) -> list[Row]:
    """Build both, check both, run both in alternation."""
    import tvm

    from tunerplugin.measure import host_target
    from tunerplugin.schedules.relay import FuseMLP

    rng = np.random.default_rng(seed)
    scale = np.sqrt(2 / width)
    parameters = [
        (
            (rng.standard_normal((width, width)) * scale).astype(np.float32),
            rng.standard_normal(width).astype(np.float32),
        )
        for _ in range(layers)
    ]
    x = rng.standard_normal((batch, width)).astype(np.float32)
    target = tvm.target.Target(host_target(int(os.environ["TVM_NUM_THREADS"])))
    mod, fuse = network(batch, width, parameters), FuseMLP(target)
    models = {"unfused": Model(mod, target, x), "fused": Model(fuse(mod), target, x)}
    for line in fuse.report:
        note(str(line))
    results = {name: model.run() for name, model in models.items()}
    for turn in range(rounds):
        for name in sorted(models, reverse=turn % 2 == 0):
            models[name].measure()
    case = f"{width} x {layers}, batch {batch}"
    wanted = reference(x, parameters)
    rows = []
    for name, model in models.items():
        latency = spread([seconds * 1e3 for seconds in model.wall_s])
        rows.append(Row(case, name, "latency_ms", latency.value, "ms", latency.low, latency.high))
        error = float(np.abs(results[name] - wanted).max())
        rows.append(Row(case, name, "max_error", error, "", error, error))
    unfused, fused = models["unfused"], models["fused"]
    for metric, ratio in (
        ("speedup", paired_ratio(unfused.wall_s, fused.wall_s)),
        ("cpu_speedup", paired_ratio(unfused.cpu_s, fused.cpu_s)),
    ):
        rows.append(Row(case, "fused", metric, ratio.value, "x", ratio.low, ratio.high))
    apart = float(np.abs(results["fused"] - results["unfused"]).max())
    rows.append(Row(case, "fused", "difference", apart, "", apart, apart))
    return rows


def main() -> int:
    """The command line."""
    options = _options()
    # Read by TVM when it starts.
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    log2_batch = options.log2_batch or (QUICK_LOG2_BATCH if options.quick else LOG2_BATCH)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    try:
        rows = compare(1 << log2_batch, options.width, options.layers, rounds, options.seed)
    except TunerError as error:
        note(str(error))
        return 2
    emit(rows, options)
    return 0


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--width", type=positive, default=WIDTH, help=f"default: {WIDTH}")
    made.add_argument("--layers", type=positive, default=LAYERS, help=f"default: {LAYERS}")
    made.add_argument("--log2-batch", type=positive, help=f"default: {LOG2_BATCH}")
    made.add_argument("--rounds", type=positive, help=f"default: {ROUNDS}")
    made.add_argument("--threads", type=positive, default=available_cores())
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
