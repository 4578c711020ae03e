"""Measure AutoTVM's CPU templates on this machine and train a predictor on them (Relay-era TVM).

    python examples/pretrain_autotvm.py tuning.log --trials 48 --out weights.safetensors

Stopped and started again it goes on where it was; the log is AutoTVM's own.  Then
``tunerplugin.autotvm.Seq2SeqTuner(task, weights="weights.safetensors")`` starts from what was
learnt.  The weights in the package are of 562 measurements on one thread, in 40 epochs.

Half of the trials of a task are uniform, so that the predictor sees what is slow, and half are
proposed by a tuner that learns from them, so that it sees what is fast.
"""

from __future__ import annotations

import argparse
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay  # noqa: F401  (relay: loads the templates)

from tunerplugin.autotvm import Seq2SeqTuner, measure_option
from tunerplugin.integrations.autotvm.history import examples_of
from tunerplugin.measure import available_cores, host_target
from tunerplugin.predictor import Example, Predictor, WeightsInfo
from tunerplugin.search.uniform import UniformScorer

EPOCHS = 60
#: (rows, columns, depth)
DENSE = [
    (1, 1000, 512),
    (16, 512, 256),
    (32, 768, 768),
    (64, 64, 64),
    (96, 320, 160),
    (128, 128, 512),
    (192, 384, 192),
    (384, 256, 128),
    (512, 64, 256),
    (512, 512, 512),
]
#: (batch, rows, columns, depth)
BATCH_MATMUL = [(4, 64, 64, 64), (8, 128, 128, 32), (12, 96, 64, 96), (2, 256, 64, 128)]
#: (channels in, channels out, height and width, kernel, stride)
CONV2D = [
    (3, 32, 112, 3, 2),
    (16, 32, 56, 3, 1),
    (32, 32, 28, 3, 1),
    (32, 64, 56, 1, 1),
    (48, 96, 28, 3, 2),
    (64, 128, 28, 1, 1),
    (96, 48, 14, 3, 1),
    (128, 128, 14, 3, 1),
    (128, 256, 14, 1, 1),
    (256, 256, 7, 3, 1),
    (24, 72, 40, 5, 1),
    (64, 64, 20, 3, 1),
]
#: (channels, height and width, kernel, stride)
DEPTHWISE = [(32, 56, 3, 1), (64, 28, 3, 2), (96, 28, 5, 1), (144, 14, 3, 1), (256, 7, 3, 1)]


def workloads(only: str | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Template (every one, or ``only``) and arguments of every task.

    The templates take turns, so that a run can be stopped.
    """
    dense = [(tensor(m, k), tensor(n, k), None, "float32") for m, n, k in DENSE]
    templates = {
        "conv2d_NCHWc.x86": [
            convolution(tensor(1, c, size, size), tensor(f, c, kernel, kernel), stride)
            for c, f, size, kernel, stride in CONV2D
        ],
        "dense_pack.x86": dense,
        "dense_nopack.x86": dense,
        "depthwise_conv2d_NCHWc.x86": [
            convolution(tensor(1, c, size, size), tensor(c, 1, kernel, kernel), stride)
            for c, size, kernel, stride in DEPTHWISE
        ],
        "batch_matmul.x86": [
            (tensor(b, m, k), tensor(b, n, k), (b, m, n), "float32", 0, 1)
            for b, m, n, k in BATCH_MATMUL
        ],
    }
    for row in itertools.zip_longest(*templates.values()):
        for name, arguments in zip(templates, row, strict=True):
            if arguments is not None and only in (None, name):
                yield name, arguments


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    """A float32 tensor in a task's arguments."""
    return ("TENSOR", shape, "float32")


def convolution(data: Any, weight: Any, stride: int) -> tuple[Any, ...]:
    """Arguments of a convolution in NCHW, padded so that stride 1 keeps the size."""
    pad = weight[1][2] // 2
    padding = (pad, pad, pad, pad)
    return (data, weight, (stride, stride), padding, (1, 1), "NCHW", "NCHW", "float32")


def measure(task: Any, log: Path, trials: int, seed: int, threads: int) -> None:
    """Up to ``trials`` measurements of a task, those in the log included."""
    done = [(i, r) for i, r in records(log) if i.task.workload == task.workload]
    option = measure_option(
        verify=False, jobs=threads, build_deadline_s=8.0, repeats=5, min_repeat_ms=10.0
    )
    for predictor, until in ((UniformScorer(), trials // 2), (Predictor(seed), trials)):
        tuner = Seq2SeqTuner(task, seed=seed, predictor=predictor)
        tuner.load_history(done)
        new: list[Any] = []
        tuner.tune(
            max(0, until - len(done)),
            option,
            callbacks=[
                autotvm.callback.log_to_file(str(log)),
                lambda _, inputs, results, new=new: new.extend(zip(inputs, results, strict=True)),
            ],
        )
        done += new
    option["runner"].close()


def records(log: Path) -> list[Any]:
    """The log's records, none of a log that is still to be made."""
    return list(autotvm.record.load_from_file(str(log))) if log.is_file() else []


def train(examples: list[Example], seed: int) -> Predictor:
    """A predictor trained on the examples."""
    predictor = Predictor(seed)
    predictor.fit(examples, epochs=EPOCHS)
    return predictor


def main() -> None:
    """Measure, train, write."""
    options_parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options_parser.add_argument("log", type=Path, help="AutoTVM log to add to")
    options_parser.add_argument("--trials", type=int, default=48, help="per task, in all")
    options_parser.add_argument("--only", help="one template, e.g. dense_nopack.x86")
    options_parser.add_argument("--threads", type=int, default=available_cores())
    options_parser.add_argument("--seed", type=int, default=0)
    options_parser.add_argument("--out", type=Path, help="where to write weights")
    options = options_parser.parse_args()
    logging.getLogger("autotvm").setLevel(logging.WARNING)
    target = tvm.target.Target(host_target(options.threads))
    chosen = list(workloads(options.only))
    if not chosen:
        known = ", ".join(sorted({name for name, _ in workloads(None)}))
        options_parser.error(f"expected --only among {known}, got {options.only!r}")
    for name, arguments in chosen:
        print(f"{name} {arguments}", flush=True)
        task = autotvm.task.create(name, arguments, target)
        measure(task, options.log, options.trials, options.seed, options.threads)
    if options.out is not None:
        examples = examples_of(records(options.log))
        print(f"training on {len(examples)} measurements", flush=True)
        trained_on = f"{len(examples)} measurements of AutoTVM's x86 templates"
        train(examples, options.seed).save(options.out, WeightsInfo(trained_on, "Apache-2.0"))


if __name__ == "__main__":
    main()
