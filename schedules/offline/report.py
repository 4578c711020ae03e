"""What a compiled kernel uses, and the child process in which a compiler says so.

A vendor's compiler can end the process it runs in (LLVM's AMDGPU back end does so when a kernel
asks for too much shared memory), never return, or crash.  So it runs in a child with a time limit,
and what happens there comes back as a ``Finished``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TAIL_CHARACTERS = 400


@dataclass(frozen=True)
class KernelUse:
    """What one kernel takes from one device, as the device's own compiler reports it.

    ``registers``: of one sub-group on Intel (GRF, 32 or 64 bytes each), vector registers of one
    work-item on AMD (VGPRs with AGPRs).  ``spill_bytes``: memory for registers that did not fit, of
    one sub-group on Intel and of one work-item on AMD.  ``shared_memory_bytes``: of one work-group
    (SLM, LDS).  ``instructions`` and ``matrix_instructions`` (DPAS, MFMA, WMMA) are static counts
    in the program text, not executed ones.  ``occupancy``: the share of the device's hardware
    threads that can be resident at once, where registers and shared memory decide it and both are
    known.  ``compiler`` names the program and version that was asked.
    """

    device: str
    compiler: str
    registers: int
    spill_bytes: int
    shared_memory_bytes: int
    matrix_instructions: int
    instructions: int
    sub_group_size: int
    occupancy: float | None = None

    def refusal(self, shared_memory_limit_bytes: int) -> str | None:
        """Why this kernel should not be measured: it spills, or does not fit; else ``None``."""
        if self.shared_memory_bytes > shared_memory_limit_bytes:
            return (
                f"{self.shared_memory_bytes} bytes of shared memory; "
                f"{self.device} has {shared_memory_limit_bytes}"
            )
        if self.spill_bytes:
            return f"{self.spill_bytes} bytes of registers spill on {self.device}"
        return None


@dataclass(frozen=True)
class Finished:
    """How a child process ended.  ``returncode`` is negative for a signal."""

    returncode: int
    output: str
    errors: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.returncode == 0 and not self.timed_out

    def explain(self) -> str:
        """How it ended and what it said last, in one line."""
        if self.timed_out:
            how = "still running at the time limit"
        elif self.returncode < 0:
            number = -self.returncode
            known = number in set(signal.Signals)
            how = f"killed by {signal.Signals(number).name if known else f'signal {number}'}"
        else:
            how = f"exit code {self.returncode}"
        said = " ".join(f"{self.output}\n{self.errors}".split())[-_TAIL_CHARACTERS:]
        return f"{how}: {said}" if said else how


def run_child(
    command: Sequence[str],
    *,
    timeout_s: float,
    text: str = "",
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run ``command`` with ``text`` as its input; never longer than ``timeout_s``.

    At the limit the child goes, and whatever it started.  ``environment`` replaces the inherited
    one.  Raises ``FileNotFoundError`` when there is no such program.
    """
    # Files, not pipes: a grandchild that outlives the child would hold a pipe open.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as given,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
    ):
        given.write(text)
        given.seek(0)
        child = subprocess.Popen(
            list(command),
            stdin=given,
            stdout=output,
            stderr=errors,
            cwd=cwd,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
        timed_out = False
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end_group(child)
        output.seek(0)
        errors.seek(0)
        return Finished(child.returncode, output.read(), errors.read(), timed_out)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child's whole session: what it started must not outlive it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
