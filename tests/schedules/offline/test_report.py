"""The child process that compilers run in, and what makes a kernel unfit."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tunerplugin.schedules.offline.report import KernelUse, run_child

USE = KernelUse("pvc", "compiler 1", 128, 0, 8192, 16, 872, 16)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_input() -> None:
    done = run_child(python("print(input()[::-1])"), timeout_s=60, text="desserts\n")
    assert done.ok and done.output == "stressed\n" and done.errors == ""


def test_exit_code_and_last_words() -> None:
    done = run_child(python("import sys; sys.exit('no such device')"), timeout_s=60)
    assert not done.ok and done.explain() == "exit code 1: no such device"


def test_a_crash_is_told_of() -> None:
    done = run_child(python("import os; os.abort()"), timeout_s=60)
    assert not done.ok and done.explain().startswith("killed by SIGABRT")


def test_what_hangs_ends_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    done = run_child(python(code), timeout_s=3)
    assert done.timed_out and not done.ok
    assert done.explain().startswith("still running at the time limit")
    assert ends(int(pid.read_text()))


def test_grandchildren_do_not_outlive_a_child_that_ended(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid)"
    )
    done = run_child(python(code), timeout_s=60)
    assert done.ok
    assert ends(int(done.output))


def ends(pid: int) -> bool:
    """Whether the process is gone, or dead and not yet collected by its new parent."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_environment_is_replaced() -> None:
    done = run_child(
        python("import os; print(os.environ.get('HOME'), os.environ['ONLY'])"),
        timeout_s=60,
        environment={"ONLY": "this"},
    )
    assert done.output == "None this\n"


def test_missing_program() -> None:
    with pytest.raises(FileNotFoundError):
        run_child(["no-such-compiler"], timeout_s=1)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (USE, None),
        (replace(USE, spill_bytes=1664), "1664 bytes of registers spill on pvc"),
        (
            replace(USE, shared_memory_bytes=140000),
            "140000 bytes of shared memory; pvc has 131072",
        ),
    ],
)
def test_refusal(use: KernelUse, reason: str | None) -> None:
    assert use.refusal(shared_memory_limit_bytes=131072) == reason
