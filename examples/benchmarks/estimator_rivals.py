"""Cycles of matrix products by SCALE-Sim 3 or ZigZag 3, for ``estimator.py`` to run as a child.

It needs nothing of this project, so it runs in an environment of its own::

    python -m venv rivals
    rivals/bin/pip install scalesim "numpy<2.2" "pandas<3" zigzag-dse six

Reads ``{"tool": "scalesim" | "zigzag", "cases": [[m, n, k, rows, columns, dataflow], ...]}`` from
standard input and prints one number of cycles per line, ``failed`` for a product that the tool
gives up on, or ``missing`` when the tool is not installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Case = tuple[int, int, int, int, int, str]


def scalesim_cycles(case: Case) -> int:
    """The compute part alone, some 300 times faster than a run of the whole simulator.

    The demand matrix of the outputs has a row per cycle.
    """
    import numpy as np

    m, n, k, rows, columns, dataflow = case
    config = importlib.import_module("scalesim.scale_config").scale_config()
    config.array_rows, config.array_cols = rows, columns
    config.df, config.valid_conf_flag = dataflow, True
    name = f"systolic_compute_{dataflow}"
    array = getattr(importlib.import_module(f"scalesim.compute.{name}"), name)()
    a = np.arange(m * k).reshape(m, k)
    b = np.arange(k * n).reshape(k, n) + 10_000_000
    result = np.arange(m * n).reshape(m, n) + 20_000_000
    array.set_params(config_obj=config, ifmap_op_mat=a, filter_op_mat=b, ofmap_op_mat=result)
    array.create_ifmap_demand_mat()
    array.create_filter_demand_mat()
    array.create_ofmap_demand_mat()
    return int(array.ofmap_demand_matrix.shape[0])


def zigzag_cycles(case: Case) -> int:
    """The best temporal mapping by latency on a systolic array, the spatial mapping given."""
    import yaml

    m, n, k, rows, columns, dataflow = case
    layer = {
        "id": 0,
        "name": "gemm",
        "operator_type": "Gemm",
        "equation": "O[m][n]+=I[m][k]*W[k][n]",
        "loop_dims": ["M", "N", "K"],
        "loop_sizes": [m, n, k],
        "operand_precision": {"W": 16, "I": 16, "O": 32, "O_final": 16},
        "operand_source": {},
    }
    held = {"ws": ("K", rows), "os": ("M", rows)}[dataflow]
    mapping = [
        {
            "name": "default",
            "spatial_mapping": {"D1": [f"N, {columns}"], "D2": [f"{held[0]}, {held[1]}"]},
            "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
        }
    ]
    api = importlib.import_module("zigzag.api")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("accelerator.yaml", "mapping.yaml")]
        for file, document in zip(files, (_array(rows, columns, dataflow), mapping), strict=True):
            file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        _, latency, _ = api.get_hardware_performance_zigzag(
            [layer],
            str(files[0]),
            str(files[1]),
            opt="latency",
            dump_folder=f"{folder}/out",
            pickle_filename=f"{folder}/out/costs.pickle",
            loma_show_progress_bar=False,
        )
    return int(latency)


def _array(rows: int, columns: int, dataflow: str) -> dict[str, Any]:
    """A word per unit for the weight, one for the sum; a buffer feeds each operand's side."""
    weight = {"weight_register": _register("I2", 16)} if dataflow == "ws" else {}
    return {
        "name": "systolic",
        "memories": {
            **weight,
            "sum_register": _register("O", 32),
            "buffer_i": _buffer("I1", rows * 16),
            "buffer_w": _buffer("I2", columns * 16),
            "buffer_o": _buffer("O", columns * 32),
        },
        "operational_array": {
            "unit_energy": 1.0,
            "unit_area": 1.0,
            "dimensions": ["D1", "D2"],
            "sizes": [columns, rows],
            "systolic_dimensions": ["D1", "D2"],
        },
    }


def _register(operand: str, bits: int) -> dict[str, Any]:
    return _memory(operand, bits, bits, [])


def _buffer(operand: str, port_bits: int) -> dict[str, Any]:
    return _memory(operand, 10**12, port_bits, ["D1", "D2"])


def _memory(operand: str, size: int, port_bits: int, served: list[str]) -> dict[str, Any]:
    ports = {"r_port_1": ("read", ["tl"]), "w_port_1": ("write", ["fh"])}
    if operand == "O":
        ports |= {"r_port_2": ("read", ["th"]), "w_port_2": ("write", ["fl"])}
    return {
        "size": size,
        "r_cost": 1.0,
        "w_cost": 1.0,
        "area": 0.0,
        "latency": 1,
        "operands": [operand],
        "ports": [
            {
                "name": name,
                "type": kind,
                "bandwidth_min": port_bits,
                "bandwidth_max": port_bits,
                "allocation": [f"{operand}, {way}" for way in ways],
            }
            for name, (kind, ways) in ports.items()
        ],
        "served_dimensions": served,
    }


TOOLS: dict[str, Callable[[Case], int]] = {"scalesim": scalesim_cycles, "zigzag": zigzag_cycles}


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Both tools print; only the answers belong on stdout."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    tool = request["tool"]
    if importlib.util.find_spec(tool) is None:
        print("missing")
        return
    logging.disable(logging.WARNING)
    for case in request["cases"]:
        with _stdout_to_stderr():
            answer = _answer(TOOLS[tool], tuple(case))
        print(answer, flush=True)


def _answer(tool: Callable[[Case], int], case: Case) -> str:
    """ZigZag cannot print the mapping of a product that takes one cycle, and raises."""
    try:
        return str(tool(case))
    except ValueError as error:
        print(f"{case}: {error}", file=sys.stderr)
        return "failed"


if __name__ == "__main__":
    main()
