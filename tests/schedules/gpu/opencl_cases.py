"""OpenCL kernels in tests: parameters, a float64 reference, a device or the reason to skip."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tunerplugin.errors import TargetError
from tunerplugin.schedules.fused_mlp import MLP, Activation, Residual
from tunerplugin.schedules.fused_mlp.activations import reference
from tunerplugin.schedules.fused_mlp.description import FUNCTIONS, DType
from tunerplugin.schedules.fused_mlp.gpu.xmx_source import EMULATE
from tunerplugin.schedules.fused_mlp.packing import numpy_dtype
from tunerplugin.schedules.fused_mlp.template import FusedKernel
from tunerplugin.schedules.offline.opencl import device_of, program_of, run

Array = npt.NDArray[Any]
Parameters = list[tuple[Array, Array | None]]

POCL, INTEL_CPU = "Portable Computing Language", "Intel"
# Kernels are unrolled: optimised, one of them can take a CPU's compiler a minute.
PLAIN_OPTIONS = ("-cl-opt-disable",)
EMULATION = ("-cl-std=CL3.0", *PLAIN_OPTIONS, EMULATE)


def require(platform: str) -> None:
    """Skip the test where a platform is absent."""
    if (reason := _missing(platform)) is not None:
        pytest.skip(reason)


@functools.cache
def _missing(platform: str) -> str | None:
    try:
        device_of(platform)
    except TargetError as error:
        return str(error)
    return None


def declared_shared_bytes(source: str) -> int:
    """Shared memory that OpenCL C declares."""
    sizes = {"float": 4, "half": 2, "ushort": 2, "int": 4}
    declared = re.findall(r"__local (\w+) \w+\[(\d+)\];", source)
    return sum(sizes[kind] * int(elements) for kind, elements in declared)


def every_function(width: int, dtype: DType) -> MLP:
    """All in one network: bias or not, residuals before and after, from the input and from afar."""
    functions = tuple(Activation(function) for function in FUNCTIONS if function != "exponential")
    layers = len(functions) + 1
    residuals: list[Residual | None] = [None] * layers
    residuals[1], residuals[4], residuals[5] = Residual(1), Residual(0), Residual(2, True)
    return MLP(
        (width,) * (layers + 1),
        (*functions, Activation("exponential")),
        tuple(layer % 3 != 1 for layer in range(layers)),
        dtype,
        tuple(residuals),
    )


@dataclass(frozen=True)
class Case:
    """Random parameters and input of an MLP, in its dtype."""

    mlp: MLP
    parameters: Parameters
    x: Array

    @classmethod
    def of(cls, mlp: MLP, rows: int, seed: int = 0) -> Case:
        """He-initialised weights, so that the size of the activations stays near 1."""
        rng = np.random.default_rng(seed)
        dtype = numpy_dtype(mlp.dtype)
        parameters: Parameters = []
        for (k, n), bias in zip(mlp.shapes, mlp.bias, strict=True):
            weight = (rng.standard_normal((k, n)) * np.sqrt(2 / k)).astype(dtype)
            drawn = rng.standard_normal(n).astype(np.float32) * np.float32(0.1)
            parameters.append((weight, drawn if bias else None))
        return cls(mlp, parameters, rng.standard_normal((rows, mlp.widths[0])).astype(dtype))

    def expected(self) -> Array:
        """The MLP in float64, every tensor rounded to its dtype as the description says."""
        dtype = numpy_dtype(self.mlp.dtype)
        tensors = [self.x.astype(np.float64)]
        for layer, (weight, bias) in enumerate(self.parameters):
            total = tensors[-1] @ weight.astype(np.float64) + (0.0 if bias is None else bias)
            residual = self.mlp.residuals[layer]
            if residual is not None and residual.before_activation:
                total = total + tensors[residual.source]
            value = reference(self.mlp.activations[layer], total)
            if residual is not None and not residual.before_activation:
                value = value + tensors[residual.source]
            tensors.append(value.astype(dtype).astype(np.float64))
        return tensors[-1]

    def computed(
        self, kernel: FusedKernel, target: Any, platform: str, options: tuple[str, ...]
    ) -> Array:
        """What the kernel computes, from an output that holds 7 everywhere."""
        program = replace(program_of(kernel, target), build_options=options)
        shape = (len(self.x), self.mlp.widths[-1])
        output = np.full(shape, 7, numpy_dtype(self.mlp.dtype))
        arguments = [self.x, *kernel.pack(self.parameters)]
        return run(program, arguments, output, platform, timeout_s=110).output.astype(np.float64)

    def check(
        self, kernel: FusedKernel, target: Any, platform: str, options: tuple[str, ...]
    ) -> None:
        """Compare; the tolerance is a few units in the last place of the dtype."""
        unit = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[self.mlp.dtype]
        expected = self.expected()
        np.testing.assert_allclose(
            self.computed(kernel, target, platform, options),
            expected,
            rtol=8 * unit,
            atol=4 * unit * float(np.abs(expected).max()),
        )
