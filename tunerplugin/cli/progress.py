"""The progress bar of a tuning run: best so far and the time that is left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol

from tqdm import tqdm

from . import render
from .exits import StopGuard


class Event(Protocol):
    """What ``tunerplugin.tune`` reports after each measurement (weighted sums, seconds)."""

    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def task(self) -> str: ...
    @property
    def best_s(self) -> float | None: ...
    @property
    def untuned_s(self) -> float | None: ...
    @property
    def elapsed_s(self) -> float: ...


class ProgressBar:
    """A ``progress`` callback: draws where stderr is a terminal, and keeps the last event."""

    def __init__(self, guard: StopGuard, quiet: bool) -> None:
        self.last: Event | None = None
        self._guard = guard
        self._quiet = quiet or not sys.stderr.isatty()
        self._bar: tqdm | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, event: Event) -> None:
        """Draw ``event``.  Raises ``KeyboardInterrupt`` when the user asked to stop."""
        self.last = event
        if not self._quiet:
            self._draw(event)
        self._guard.check()

    def best_so_far(self) -> str:
        """One line about the last event."""
        if self.last is None:
            return "no measurement finished yet"
        best, untuned = render.duration(self.last.best_s), render.duration(self.last.untuned_s)
        return (
            f"{self.last.done} of {self.last.total} trials measured, "
            f"best so far {best} (untuned {untuned})"
        )

    def _draw(self, event: Event) -> None:
        if self._bar is None:
            # What an earlier run measured does not count for the rate, or the ETA would lie.
            self._bar = tqdm(
                total=event.total,
                initial=max(event.done - 1, 0),
                file=sys.stderr,
                unit="trial",
                dynamic_ncols=True,
            )
        speedup = render.ratio(event.untuned_s, event.best_s)
        self._bar.set_postfix_str(
            f"best {render.duration(event.best_s)} ({speedup})", refresh=False
        )
        self._bar.update(event.done - self._bar.n)
