"""Our cycles of matrix products beside SCALE-Sim's and ZigZag's, both run live.

Mode ``serial`` claims to equal SCALE-Sim 3 and mode ``drain-once`` to equal ZigZag 3, cycle for
cycle (the latter but for some outer products, see ``hw/estimate/systolic.py``).  This script runs
both tools on 14 matrix products of ResNet and BERT and on random ones, over arrays and dataflows.
The tools need old versions of numpy and pandas, so they run in a child
process, by another interpreter if need be::

    python -m venv rivals
    rivals/bin/pip install scalesim "numpy<2.2" "pandas<3" zigzag-dse six
    python examples/benchmarks/estimator.py --python rivals/bin/python

A row is one group of products: ``relative_error`` is the median of |ours - theirs| / theirs with
its range, ``equal`` the share of products with no difference at all, ``compared`` how many products
these are over, ``failed`` how many more the tool itself gave up on.  ``seconds`` is the time per
product of the tool, and of ours over all products of a group at once.  Random sizes are log-uniform
from 1 to 1024, rows and columns of the array powers of two from 8 to 128; products that SCALE-Sim
would need a gigabyte for are drawn again.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import Row, emit, note, parser, positive, spread

from tunerplugin.hw.estimate.systolic import gemm_cycles

RIVALS = Path(__file__).with_name("estimator_rivals.py")
#: (m, n, k): squares, ragged ones, a vector, BERT-base at 128 tokens, ResNet layers as im2col
GEMMS = (
    (32, 32, 32),
    (128, 128, 128),
    (256, 256, 256),
    (100, 70, 50),
    (1, 1024, 1024),
    (128, 128, 64),
    (128, 64, 128),
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (784, 64, 147),
    (784, 64, 576),
    (49, 512, 4608),
    (300, 129, 257),
)
#: of SCALE-Sim's demand matrix: cycles x columns
_MOST_ENTRIES = 20_000_000


class Case(NamedTuple):
    """A product (m, k) x (k, n) on an array."""

    m: int
    n: int
    k: int
    rows: int
    columns: int
    dataflow: str


class Tool(NamedTuple):
    """What a tool is called, which of our modes equals it, and which dataflows it is run with."""

    module: str
    mode: str
    dataflows: tuple[str, ...]


TOOLS = (
    Tool("scalesim", "serial", ("ws", "os", "is")),
    Tool("zigzag", "drain-once", ("ws", "os")),
)


def table_cases(tool: Tool, gemms: tuple[tuple[int, int, int], ...]) -> dict[str, list[Case]]:
    """Group name -> the products on 128 x 128 and 32 x 32 arrays."""
    return {
        f"table {dataflow} {side}x{side}": [Case(*gemm, side, side, dataflow) for gemm in gemms]
        for side, dataflow in product((128, 32), tool.dataflows)
    }


def random_cases(tool: Tool, count: int, seed: int) -> dict[str, list[Case]]:
    """``count`` random products, grouped by dataflow."""
    rng = random.Random(seed)
    groups: dict[str, list[Case]] = {f"random {dataflow}": [] for dataflow in tool.dataflows}
    for number, case in enumerate(_random_products(rng)):
        if number == count:
            return groups
        dataflow = tool.dataflows[number % len(tool.dataflows)]
        groups[f"random {dataflow}"].append(case._replace(dataflow=dataflow))
    return groups


def _random_products(rng: random.Random) -> Iterator[Case]:
    while True:
        m, n, k = (round(math.exp(rng.uniform(0, math.log(1024)))) for _ in range(3))
        rows, columns = (1 << rng.randint(3, 7) for _ in range(2))
        longest = max(ours([Case(m, n, k, rows, columns, d)], "serial")[0] for d in ("ws", "is"))
        if longest * columns <= _MOST_ENTRIES:
            yield Case(m, n, k, rows, columns, "ws")


def ours(cases: list[Case], mode: str) -> list[int]:
    """Our cycles; all cases have one dataflow."""
    m, n, k, rows, columns = (np.array(column) for column in list(zip(*cases, strict=True))[:5])
    dataflow = cases[0].dataflow
    cycles = gemm_cycles(m, n, k, rows=rows, columns=columns, dataflow=dataflow, mode=mode)
    return [int(value) for value in cycles]


def theirs(tool: Tool, cases: list[Case], python: str) -> list[int | None] | None:
    """The tool's cycles or where it gave up ``None``; ``None`` when it is not installed."""
    done = subprocess.run(
        [python, str(RIVALS)],
        input=json.dumps({"tool": tool.module, "cases": cases}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{tool.module} failed:\n{done.stderr[-2000:]}")
    lines = done.stdout.split()
    if lines == ["missing"]:
        return None
    return [None if line == "failed" else int(line) for line in lines]


def compare(tool: Tool, group: str, cases: list[Case], python: str) -> list[Row] | None:
    """The rows of one group."""
    note(f"{tool.module}: {group}, {len(cases)} products")
    start = time.perf_counter()
    reference = theirs(tool, cases, python)
    middle = time.perf_counter()
    if reference is None:
        return None
    cycles = ours(cases, tool.mode)
    end = time.perf_counter()
    errors = []
    for case, a, b in zip(cases, cycles, reference, strict=True):
        if b is None:
            note(f"  {tool.module} fails on {tuple(case)}")
            continue
        errors.append(abs(a - b) / b)
        if a != b:
            note(f"  differs: {tuple(case)}: ours {a}, {tool.module} {b}")
    rows = [_count(group, tool.mode, "compared", len(errors))]
    rows.append(_count(group, tool.module, "failed", len(cases) - len(errors)))
    if errors:
        value, low, high = spread(errors)
        rows.append(Row(group, tool.mode, "relative_error", value, "1", low, high))
        equal = errors.count(0.0) / len(errors)
        rows.append(Row(group, tool.mode, "equal", equal, "share", equal, equal))
    for method, seconds in ((tool.mode, end - middle), (tool.module, middle - start)):
        each = seconds / len(cases)
        rows.append(Row(group, method, "seconds", each, "s/product", each, each))
    return rows


def _count(group: str, method: str, metric: str, count: int) -> Row:
    return Row(group, method, metric, count, "products", count, count)


def main() -> None:
    """Compare and print."""
    made = parser(__doc__)
    made.add_argument(
        "--python", default=sys.executable, help="interpreter that has the tools (default: this)"
    )
    made.add_argument(
        "--random", type=positive, metavar="N", help="random products (default: 200, quick: 8)"
    )
    options = made.parse_args()
    gemms = GEMMS[:5] if options.quick else GEMMS
    count = options.random or (8 if options.quick else 200)
    rows: list[Row] = []
    for tool in TOOLS:
        groups = table_cases(tool, gemms) | random_cases(tool, count, options.seed)
        for group, cases in groups.items():
            found = compare(tool, group, cases, options.python) if cases else []
            if found is None:
                note(f"{tool.module}: not installed for {options.python}; see --help")
                break
            rows += found
    if not rows:
        sys.exit("expected scalesim or zigzag-dse to be installed, got neither; see --help")
    emit(rows, options)


if __name__ == "__main__":
    main()
