"""The progress bar, and what Ctrl-C and SIGTERM do."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tunerplugin.cli.exits import StopGuard
from tunerplugin.cli.progress import ProgressBar


@dataclass(frozen=True)
class Event:
    done: int
    total: int = 8
    task: str = "conv"
    best_s: float | None = 1e-3
    untuned_s: float | None = 4e-3
    elapsed_s: float = 1.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(StopGuard(), quiet=False) as bar:
        bar(Event(1))
    assert capsys.readouterr().err == ""
    assert bar.best_so_far() == "1 of 8 trials measured, best so far 1 ms (untuned 4 ms)"


def test_draws_best_and_count_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar(StopGuard(), quiet=False) as bar:
        bar(Event(5, best_s=None))
        bar(Event(6))
        time.sleep(0.15)
        bar(Event(8))
    drawn = terminal.getvalue()
    assert "8/8" in drawn
    assert "best 1 ms (4.00x)" in drawn


def test_quiet_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar(StopGuard(), quiet=True) as bar:
        bar(Event(1))
    assert terminal.getvalue() == ""


def test_nothing_measured_yet() -> None:
    assert ProgressBar(StopGuard(), quiet=True).best_so_far() == "no measurement finished yet"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_guard_raises_once_and_restores(signum: int, code: int) -> None:
    before = signal.getsignal(signum)
    guard = StopGuard()
    with pytest.raises(KeyboardInterrupt), guard:
        os.kill(os.getpid(), signum)
        time.sleep(5)
    assert guard.stopped
    assert guard.exit_code == code
    assert signal.getsignal(signum) == before


def test_lost_interrupt_is_raised_again_at_the_next_event() -> None:
    guard = StopGuard()
    with guard:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            pass  # as a callback from C++ would lose it
        with pytest.raises(KeyboardInterrupt):
            ProgressBar(guard, quiet=True)(Event(1))


def test_second_interrupt_is_immediate_and_takes_the_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; from tunerplugin.cli.exits import StopGuard\n"
        "with StopGuard():\n"
        "    child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "    try:\n"
        "        print(child.pid, flush=True)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt: print('first', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    process.stdout.close()
    for _ in range(100):
        if not _alive(child):
            return
        time.sleep(0.05)
    raise AssertionError("the child outlived a second Ctrl-C")


def _alive(pid: int) -> bool:
    """Whether a process runs (one that only waits to be reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
