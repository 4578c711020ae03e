"""Measure a collection of common operators on this CPU and train a predictor on them.

    python examples/pretrain_cpu.py WORK_DIR --trials 48 --out weights.safetensors

Takes about half a second per trial; stopped and started again it goes on where it was.  Then
``tunerplugin.tune(..., weights="weights.safetensors")`` starts from what was learnt, and
``tunerplugin.predict`` needs no measurement at all.  The weights in the package were made so.

A fifth of the operators is held out first, to say how well the predictor orders candidates of
operators that it never saw; the weights that are written are trained on all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tvm import te, topi

import tunerplugin
from tunerplugin.integrations.metaschedule.corpus import training_corpus
from tunerplugin.predictor import Example, Predictor, WeightsInfo
from tunerplugin.records import SQLiteStore
from tunerplugin.search import History

EPOCHS = 60


def dense(m: int, n: int, k: int, relu: bool) -> Any:
    """Matrix product with the weights as torch stores them, bias and optional ReLU."""
    x, w = te.placeholder((m, k), name="x"), te.placeholder((n, k), name="w")
    b = te.placeholder((n,), name="b")
    y = topi.add(topi.nn.dense(x, w), b)
    return te.create_prim_func([x, w, b, topi.nn.relu(y) if relu else y])


def matmul(m: int, n: int, k: int) -> Any:
    """Plain matrix product."""
    x, w = te.placeholder((m, k), name="x"), te.placeholder((k, n), name="w")
    return te.create_prim_func([x, w, topi.nn.matmul(x, w)])


def batch_matmul(b: int, m: int, n: int, k: int) -> Any:
    """Batched matrix product, second operand transposed."""
    x, w = te.placeholder((b, m, k), name="x"), te.placeholder((b, n, k), name="w")
    return te.create_prim_func([x, w, topi.nn.batch_matmul(x, w)])


def conv2d(c: int, k: int, size: int, kernel: int, stride: int) -> Any:
    """Convolution in NCHW with bias and ReLU."""
    x = te.placeholder((1, c, size, size), name="x")
    w = te.placeholder((k, c, kernel, kernel), name="w")
    b = te.placeholder((1, k, 1, 1), name="b")
    y = topi.nn.conv2d_nchw(x, w, stride, kernel // 2, 1)
    return te.create_prim_func([x, w, b, topi.nn.relu(topi.add(y, b))])


def depthwise(c: int, size: int, kernel: int, stride: int) -> Any:
    """Depthwise convolution in NCHW."""
    x = te.placeholder((1, c, size, size), name="x")
    w = te.placeholder((c, 1, kernel, kernel), name="w")
    return te.create_prim_func(
        [x, w, topi.nn.depthwise_conv2d_nchw(x, w, (stride, stride), kernel // 2, 1)]
    )


def softmax(m: int, n: int) -> Any:
    """Row softmax."""
    x = te.placeholder((m, n), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def layer_norm(m: int, n: int) -> Any:
    """Layer normalisation over the last axis."""
    x = te.placeholder((m, n), name="x")
    g, b = te.placeholder((n,), name="g"), te.placeholder((n,), name="b")
    return te.create_prim_func([x, g, b, topi.nn.layer_norm(x, g, b, [1], 1e-5)])


def max_pool(c: int, size: int) -> Any:
    """3x3 max pooling with stride 2."""
    x = te.placeholder((1, c, size, size), name="x")
    y = topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max")
    return te.create_prim_func([x, y])


OPERATORS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "dense": (
        dense,
        [(1, 512, 256, True), (16, 256, 512, False), (128, 768, 256, True), (64, 1000, 320, False)],
    ),
    "matmul": (matmul, [(64, 64, 64), (200, 160, 96), (384, 384, 384), (512, 128, 640)]),
    "batch_matmul": (batch_matmul, [(8, 64, 64, 32), (12, 96, 96, 64), (4, 197, 197, 64)]),
    "conv2d": (
        conv2d,
        [
            (3, 24, 96, 3, 2),
            (16, 32, 48, 3, 1),
            (32, 64, 28, 3, 2),
            (96, 96, 14, 3, 1),
            (48, 128, 28, 1, 1),
            (256, 64, 14, 1, 1),
            (8, 16, 64, 5, 1),
        ],
    ),
    "depthwise": (depthwise, [(24, 56, 3, 1), (96, 28, 3, 2), (144, 14, 5, 1)]),
    "softmax": (softmax, [(64, 128), (384, 384), (16, 1000)]),
    "layer_norm": (layer_norm, [(128, 256), (196, 384), (32, 1024)]),
    "max_pool": (max_pool, [(32, 56)]),
}


def workloads(only: str | None) -> Iterator[tuple[str, Any]]:
    """Every operator (or one kind of them) and shape, named."""
    for name, (make, shapes) in OPERATORS.items():
        for shape in shapes if only in (None, name) else ():
            yield f"{name}{shape}", make(*shape)


def spearman(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Rank correlation."""
    ranks = [np.argsort(np.argsort(x)) for x in (predicted, actual)]
    return float(np.corrcoef(*ranks)[0, 1])


def validate(tasks: list[History], every: list[list[Example]], seed: int) -> None:
    """Train without a fifth of the tasks and print how well those are ordered."""
    held = range(0, len(tasks), 5)
    predictor = Predictor(seed)
    predictor.fit([e for i, t in enumerate(every) if i not in held for e in t], epochs=EPOCHS)
    print("held-out task: rank correlation, speed of the first choice relative to the best")
    for i in held:
        task = tasks[i]
        timed = [(v, o.latency_s) for v, o in task.outcomes.items() if o.latency_s is not None]
        scores = predictor.rank(task.problem, task.space, [values for values, _ in timed])
        speed = np.array([1 / latency for _, latency in timed])
        operator = [value for field, value in task.problem.words if field == "block"][-1]
        chosen = speed[scores.argmax()] / speed.max()
        print(f"{operator}: {spearman(scores, speed):.2f}, {chosen:.2f}")


def main() -> None:
    """Measure, validate, train, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--trials", type=int, default=48, help="per operator")
    parser.add_argument("--out", type=Path, help="where to write the weights")
    parser.add_argument("--only", choices=OPERATORS, help="one kind of operator, for a first look")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, mod in workloads(args.only):
        database = tunerplugin.tune(mod, work_dir=args.work_dir, trials=args.trials, seed=args.seed)
        (task,) = database.coverage
        gain = (task.untuned_s or 0) / (task.best_s or 1)
        print(f"{name}: {task.status}, {task.trials} trials, {gain:.1f}x", flush=True)
    with SQLiteStore(args.work_dir / "records.sqlite", read_only=True) as store:
        corpus = training_corpus(store)
    tasks = list(corpus.histories.values())
    every = [task.examples() for task in tasks]
    validate(tasks, every, args.seed)
    if args.out is not None:
        predictor = Predictor(args.seed)
        predictor.fit([e for examples in every for e in examples], epochs=EPOCHS)
        count = sum(len(task.outcomes) for task in tasks)
        source = f"{count} measurements of {len(tasks)} operators by examples/pretrain_cpu.py"
        predictor.save(args.out, WeightsInfo(source, "Apache-2.0"))
        print(f"{args.out}: trained on {source}")


if __name__ == "__main__":
    main()
