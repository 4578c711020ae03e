"""The child process of ``opencl``: builds and runs one program, or lists the devices.

A script that imports nothing of the package.  Its argument is a folder with ``request.json`` and
one file of raw bytes for each buffer; it leaves ``answer.json`` there, and the output's bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl


def _devices() -> list[tuple[Any, Any]]:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # no driver at all
        return []
    return [(platform, device) for platform in platforms for device in platform.get_devices()]


def _list() -> dict[str, Any]:
    return {
        "devices": [
            {
                "platform": platform.name,
                "version": platform.version,
                "name": device.name,
                "extensions": device.extensions.split(),
                "shared_memory_bytes": device.local_mem_size,
                "max_work_group": device.max_work_group_size,
            }
            for platform, device in _devices()
        ]
    }


def _run(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    device = next(d for p, d in _devices() if request["platform"] in p.name)
    context = cl.Context([device])
    profile = cl.command_queue_properties.PROFILING_ENABLE
    queue = cl.CommandQueue(context, properties=profile)
    kernel = cl.Kernel(
        cl.Program(context, request["source"]).build(options=request["options"]), request["entry"]
    )
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    arguments: dict[str, Any] = {}
    for name in request["parameters"]:
        if name in request["scalars"]:
            arguments[name] = np.int32(request["scalars"][name])
        else:
            values = np.fromfile(folder / name, np.uint8)
            arguments[name] = cl.Buffer(context, flags, hostbuf=values)
    seconds = []
    for _ in range(request["launches"]):
        event = kernel(
            queue, tuple(request["global"]), tuple(request["local"]), *arguments.values()
        )
        event.wait()
        seconds.append(1e-9 * (event.profile.end - event.profile.start))
    values = np.fromfile(folder / request["output"], np.uint8)
    cl.enqueue_copy(queue, values, arguments[request["output"]])
    queue.finish()
    values.tofile(folder / request["output"])
    return {"seconds": seconds}


def main(folder: Path) -> None:
    """Do what the request in ``folder`` says."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    answer = _list() if request["do"] == "list" else _run(request, folder)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
