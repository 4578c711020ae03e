"""Fused MLP kernels for GPUs that need not be here: what their compilers say of them.

For each device and width (4 layers, float16): static counts of matrix instructions and of all
instructions, registers, spills and shared memory, from the device's own compiler run offline; and
the roofline's bound for a batch of 2^17, which is predicted, not measured.  Then the inference
cases of Table I of Yuan et al. (arXiv 2403.17607; seconds of 1000 iterations on a Max 1550): the
paper's measurement beside the bound at the paper's peaks.  No figure here was measured on a GPU by
us; ``low`` and ``high`` equal the value.

    python examples/benchmarks/fused_mlp_gpu.py [--quick] [--format json]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness import Row, emit, names, note, parser

from tunerplugin.errors import TunerError
from tunerplugin.schedules.fused_mlp import MLP, devices
from tunerplugin.schedules.fused_mlp.gpu import amd as amd_templates
from tunerplugin.schedules.fused_mlp.gpu import intel as intel_templates
from tunerplugin.schedules.fused_mlp.roofline import Plan, estimate
from tunerplugin.schedules.fused_mlp.template import FusedKernel
from tunerplugin.schedules.offline import amd, intel
from tunerplugin.schedules.offline.report import KernelUse

BATCH = 2**17
LAYERS = 4
WIDTHS = (16, 32, 64, 128)


@dataclass(frozen=True)
class Gpu:
    """How a device's kernels are built and read out, and its roofline."""

    build: Callable[[MLP], FusedKernel]
    use: Callable[[FusedKernel], KernelUse]
    roofline: devices.Device


def _intel(model: str, roofline: devices.Device) -> Gpu:
    template = {"pvc": intel_templates.XMX_PVC, "dg2": intel_templates.XMX_DG2}[model]
    target = intel_templates.target_config(intel.DEVICES[model])
    return Gpu(
        lambda mlp: template.build(mlp, None, target),
        lambda kernel: intel.use_of(kernel, model),
        roofline,
    )


def _amd(processor: str, roofline: devices.Device) -> Gpu:
    target = amd.rocm_target(processor)

    def use(kernel: FusedKernel) -> KernelUse:
        threads = None if kernel.launch is None else math.prod(kernel.launch.threads)
        return amd.use_of(kernel.func, processor, threads)

    return Gpu(lambda mlp: amd_templates.MATRIX.build(mlp, None, target), use, roofline)


GPUS = {
    "pvc": _intel("pvc", devices.PVC),
    "dg2": _intel("dg2", devices.DG2),
    "gfx90a": _amd("gfx90a", devices.GFX90A),
    "gfx942": _amd("gfx942", devices.GFX942),
    "gfx1100": _amd("gfx1100", devices.GFX1100),
    "gfx1201": _amd("gfx1201", devices.GFX1201),
}

# Table I, inference: widths, batch, seconds of SYCL on Max 1550 and of CUDA on H100.  "k hidden
# layers" are k + 1 products; inputs and outputs as section IV has them.
TABLE_1 = {
    "Benchmark": ((64,) * 13, 2**17, 0.083, 0.236),
    "Image": ((32, 64, 64, 1), 2304 * 3072, 2.041, 3.514),
    "NeRF": ((32, 64, 64, 64, 64, 4), 2**20, 0.302, 0.477),
    "PINN": ((3, 64, 64, 64, 64, 64, 3), 2**17, 0.088, 0.108),
}
ITERATIONS = 1000


def row(case: str, method: str, metric: str, value: float, unit: str) -> Row:
    """A figure without spread."""
    return Row(case, method, metric, value, unit, value, value)


def compiled(name: str, width: int) -> Iterator[Row]:
    """What the compiler says of one kernel, and its roofline."""
    gpu, case = GPUS[name], f"{name} width {width}"
    mlp = MLP.uniform(width, LAYERS, dtype="float16")
    kernel = gpu.build(mlp)
    use = gpu.use(kernel)
    yield row(case, "ours", "matrix_instructions", use.matrix_instructions, "")
    yield row(case, "ours", "instructions", use.instructions, "")
    yield row(case, "ours", "registers", use.registers, "")
    yield row(case, "ours", "spills", use.spill_bytes, "bytes")
    yield row(case, "ours", "shared_memory", use.shared_memory_bytes, "bytes")
    if use.occupancy is not None:
        yield row(case, "ours", "occupancy", use.occupancy, "")
    if kernel.launch is not None:
        staged = kernel.launch.shared_bytes > 0
        plan = Plan(mlp, BATCH, *_rows(kernel), staged=staged)
        bound = estimate(plan, gpu.roofline)
        yield row(case, "ours", "predicted_bound", bound.bound / 1e12, f"Tflop/s ({bound.limit})")


def _rows(kernel: FusedKernel) -> tuple[int, int]:
    """Rows of the batch per work-group and per sub-group."""
    assert kernel.launch is not None
    lanes = kernel.launch.sub_group or 1
    return kernel.launch.rows, kernel.launch.rows * lanes // math.prod(kernel.launch.threads)


def paper() -> Iterator[Row]:
    """Table I's inference beside the bound of our plan at the paper's peaks."""
    for case, (widths, batch, sycl_s, cuda_s) in TABLE_1.items():
        plan = Plan(MLP.of(widths, dtype="bfloat16"), batch)
        seconds = ITERATIONS * estimate(plan, devices.PVC).seconds
        case = f"Table I {case}, inference"
        yield row(case, "ours", "predicted_seconds", seconds, "s (bound, 1000 iterations)")
        yield row(case, "paper SYCL, Max 1550", "seconds", sycl_s, "s (published)")
        yield row(case, "paper CUDA, H100", "seconds", cuda_s, "s (published)")


def main() -> int:
    """Run it."""
    options = parser(__doc__)
    options.add_argument("--devices", type=names(GPUS), default=list(GPUS))
    chosen = options.parse_args()
    widths = (16, 64) if chosen.quick else WIDTHS
    rows: list[Row] = []
    for name in chosen.devices:
        for width in widths:
            note(f"{name}, width {width}")
            try:
                rows.extend(compiled(name, width))
            except TunerError as error:
                note(f"{name}: {error}")
    rows.extend(paper())
    emit(rows, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
