"""The network of ``tunerplugin demo``, as torch and as TVM, and how the three builds are timed."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..models import Model, from_torch

Array = NDArray[np.float32]
INPUT_SHAPE = (1, 3, 96, 96)
CLASSES = 10
# Sums of up to 1152 products in another order than torch's: float32 rounding, with room.
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-4


class DemoNet(torch.nn.Module):
    """A small image classifier with each kind of layer that mobile networks have.

    Input (1, 3, 96, 96), output (1, 10), float32; about 0.3 M parameters, 60 M multiply-adds.
    """

    def __init__(self) -> None:
        super().__init__()
        conv = torch.nn.Conv2d
        self.stem = conv(3, 32, 3, stride=2, padding=1)
        self.depthwise = conv(32, 32, 3, padding=1, groups=32)
        self.pointwise = conv(32, 64, 1)
        self.pool = torch.nn.MaxPool2d(2)
        self.body = conv(64, 64, 3, padding=1)
        self.down = conv(64, 128, 3, stride=2, padding=1)
        self.hidden = torch.nn.Linear(128, 256)
        self.classes = torch.nn.Linear(256, CLASSES)

    def forward(self, image: Any) -> Any:
        """Class scores (1, 10) of ``image`` (1, 3, 96, 96)."""
        x = torch.relu(self.stem(image))
        x = torch.relu(self.depthwise(x))
        x = self.pool(torch.relu(self.pointwise(x)))
        x = torch.relu(x + self.body(x))
        x = torch.relu(self.down(x)).mean((2, 3))
        return self.classes(torch.relu(self.hidden(x)))


@dataclass(frozen=True)
class Timing:
    """Median and range of the rounds, in seconds, and the distance to torch's output."""

    name: str
    latency_s: float
    low_s: float
    high_s: float
    max_abs_error: float
    equal: bool


def build_net(seed: int) -> tuple[torch.nn.Module, Array, Model]:
    """The network with random weights, an input, and the same network as a TVM module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = DemoNet().eval()
    image = np.random.default_rng(seed).standard_normal(INPUT_SHAPE, dtype=np.float32)
    return net, image, from_torch(torch.export.export(net, (torch.from_numpy(image),)))


def runner(executable: Any, image: Array) -> Callable[[], Array]:
    """A function that runs a compiled network on ``image`` on the CPU."""
    import tvm

    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    argument = tvm.runtime.tensor(image)
    main = machine["main"]
    return lambda: np.asarray(main(argument).numpy(), dtype=np.float32)


def torch_runner(net: torch.nn.Module, image: Array) -> Callable[[], Array]:
    """A function that runs the network in torch eager mode."""
    argument = torch.from_numpy(image)

    def call() -> Array:
        with torch.inference_mode():
            return np.asarray(net(argument).numpy(), dtype=np.float32)

    return call


def time_interleaved(
    calls: Mapping[str, Callable[[], Array]], rounds: int, reference: str
) -> list[Timing]:
    """Time every function once a round, so that a busy machine slows all of them alike.

    Outputs are compared with those of ``reference``.
    """
    outputs = {name: call() for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # caches, and the other build's threads come to rest
            start = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - start)
    expected = outputs[reference]
    return [
        Timing(
            name,
            statistics.median(samples[name]),
            min(samples[name]),
            max(samples[name]),
            float(np.max(np.abs(output - expected))),
            bool(np.allclose(output, expected, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE)),
        )
        for name, output in outputs.items()
    ]


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Give torch and TVM ``count`` CPU threads each (``None``: all cores) for a while."""
    import tvm

    count = count or len(os.sched_getaffinity(0))
    configure = tvm.get_global_func("runtime.config_threadpool")
    torch_before = torch.get_num_threads()
    tvm_before = tvm.get_global_func("runtime.NumThreads")()
    try:
        torch.set_num_threads(count)
        configure(1, count)  # 1: prefer the fast cores
        yield
    finally:
        torch.set_num_threads(torch_before)
        configure(1, tvm_before)
