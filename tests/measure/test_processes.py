"""Processes and files: nothing survives the parent, and workers load no more than they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tunerplugin.measure import MeasureTask

# No ``if __name__ == "__main__"``: users call a tuner from scripts without it.
SCRIPT = """
import sys
from pathlib import Path
from tunerplugin.measure import Measurer, MeasureTask, Request
folder = Path(sys.argv[1])
print("executed", flush=True)
good, hangs = (folder / "good.json").read_text(), (folder / "hangs.json").read_text()
measurer = Measurer(jobs=2, run_deadline_s=300)
task = MeasureTask("double", good, sys.argv[2])
for index, outcome in measurer.measure(task, [Request(0, good), Request(1, good)]):
    print(index, outcome.status.value, flush=True)
print("hanging", flush=True)
list(measurer.measure(task, [Request(0, hangs)]))
"""

WORKER_IMPORTS = """
import json, sys
from pathlib import Path
from tunerplugin.measure.worker import Server
module, target = Path(sys.argv[1], "good.json").read_text(), sys.argv[2]
server = Server("cpu")
task = {"module": module, "target": target, "seed": 0}
_, outputs = server.serve({"command": "reference", **task}, b"")
server.serve({"command": "task", **task}, outputs)
slot = {"slot": 0, "oldest_slot": 0, "keep": False}
server.serve({"command": "build", "module": module, **slot}, b"")
run = {"command": "run", "repeats": 1, "min_repeat_s": 1e-3}
reply, _ = server.serve({**run, **slot}, b"")
assert reply["status"] == "ok", reply
print(json.dumps([m for m in ("torch", "tvm.s_tir.tensor_intrin") if m in sys.modules]))
"""


def _write_kernels(folder: Path, kernel: Callable[[str], str]) -> None:
    (folder / "good.json").write_text(kernel("Double"))
    (folder / "hangs.json").write_text(kernel("Hangs"))


def _gone(process: psutil.Process, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_kill_9_of_an_unguarded_script_leaves_no_process_and_no_file(
    tmp_path: Path, kernel: Callable[[str], str], double: MeasureTask
) -> None:
    _write_kernels(tmp_path, kernel)
    (tmp_path / "script.py").write_text(SCRIPT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path), double.target],
        stdout=subprocess.PIPE,
        text=True,
        cwd=scratch,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert script.stdout is not None
    lines = [script.stdout.readline().strip() for _ in range(4)]
    assert lines[0] == "executed" and sorted(lines[1:3]) == ["0 ok", "1 ok"]
    assert lines[3] == "hanging"
    workers = psutil.Process(script.pid).children(recursive=True)
    assert len(workers) == 2
    time.sleep(0.5)
    script.send_signal(signal.SIGKILL)
    assert script.wait(10) == -signal.SIGKILL
    assert script.stdout.read() == "", "workers execute nothing of the script"
    script.stdout.close()
    assert all(_gone(worker, within_s=10) for worker in workers)
    assert list(scratch.iterdir()) == []


def test_a_worker_loads_neither_torch_nor_the_tensor_intrinsics(
    tmp_path: Path, kernel: Callable[[str], str], double: MeasureTask
) -> None:
    _write_kernels(tmp_path, kernel)
    command = [sys.executable, "-c", WORKER_IMPORTS, str(tmp_path), double.target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
