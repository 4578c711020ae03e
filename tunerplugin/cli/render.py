"""Everything the verbs show on stdout: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


class Coverage(Protocol):
    """One task of a module, as ``database.coverage`` tells it (times in seconds)."""

    @property
    def name(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def untuned_s(self) -> float | None: ...
    @property
    def best_s(self) -> float | None: ...
    @property
    def trials(self) -> int: ...


def duration(seconds: float | None) -> str:
    """``0.00123`` -> ``1.23 ms``; ``None`` -> ``-``."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ratio(before_s: float | None, after_s: float | None) -> str:
    """How many times faster ``after_s`` is, ``-`` where one is unknown."""
    return f"{before_s / after_s:.2f}x" if before_s and after_s else "-"


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns padded with spaces, numbers to the right; no trailing spaces."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [
        all(_is_number(cell) for cell in column) and bool(rows)
        for column in zip(*cells, strict=True)
    ] or [False] * len(headers)

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), *(line(row) for row in cells)])


def _is_number(cell: str) -> bool:
    return cell == "-" or cell[:1].isdigit()


def coverage_table(coverage: Sequence[Coverage]) -> str:
    """One row a task; below it the sum over what was measured, and why tasks were left out."""
    rows = [
        (
            task.name,
            task.operator,
            f"{task.weight:g}",
            task.status,
            duration(task.untuned_s),
            duration(task.best_s),
            ratio(task.untuned_s, task.best_s),
            task.trials,
        )
        for task in coverage
    ]
    headers = ("task", "operator", "count", "status", "untuned", "best", "speedup", "trials")
    lines = [table(headers, rows)]
    untuned_s, best_s = totals(coverage)
    if best_s is not None:
        lines.append(
            f"all measured tasks, weighted: {duration(untuned_s)} untuned, {duration(best_s)} best"
            f" ({ratio(untuned_s, best_s)})"
        )
    lines += [f"{task.status}: {task.name}: {task.reason}" for task in coverage if task.reason]
    return "\n".join(lines)


def totals(coverage: Sequence[Coverage]) -> tuple[float | None, float | None]:
    """Weighted sums of untuned and best seconds over the tasks where both are known."""
    pairs = [
        (task.weight * task.untuned_s, task.weight * task.best_s)
        for task in coverage
        if task.untuned_s is not None and task.best_s is not None
    ]
    if not pairs:
        return None, None
    return sum(untuned for untuned, _ in pairs), sum(best for _, best in pairs)


def coverage_rows(coverage: Sequence[Coverage]) -> list[dict[str, Any]]:
    """The coverage as JSON rows."""
    names = ("name", "operator", "weight", "status", "reason", "untuned_s", "best_s", "trials")
    return [{name: getattr(task, name) for name in names} for task in coverage]


def result_document(coverage: Sequence[Coverage]) -> dict[str, Any]:
    """The part of a JSON document that every verb with a database has."""
    untuned_s, best_s = totals(coverage)
    return {
        "untuned_s": untuned_s,
        "best_s": best_s,
        "speedup_over_untuned": untuned_s / best_s if untuned_s and best_s else None,
        "tasks": coverage_rows(coverage),
    }


def emit(form: str, document: Mapping[str, Any], text: str) -> None:
    """Print the result: ``document`` for ``--format json``, ``text`` for ``--format table``."""
    if form == "json":
        text = json.dumps(document, indent=2, allow_nan=False)
    print(text, flush=True)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """While compiling and measuring, whatever TVM or a child process prints goes to stderr.

    So stdout holds the result and nothing else.
    """
    sys.stdout.flush()
    keep = os.dup(1)
    python_stdout = sys.stdout
    try:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        yield
    finally:
        sys.stdout = python_stdout
        os.dup2(keep, 1)
        os.close(keep)
