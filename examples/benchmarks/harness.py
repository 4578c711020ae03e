"""What every benchmark script here shares: options, rows, statistics, output.

A script makes ``Row`` objects and hands them to ``emit``.  With ``--format json`` the output is a
list: first a header (machine, versions, command, date), then one object per row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from tunerplugin.measure import available_cores, device_name

#: 97.5% quantile of the normal distribution: intervals cover 95%
_Z95 = 1.959964
#: what the header names -> the packages that may bring it
_PACKAGES = {
    "tvm": ("apache-tvm", "hhb-tvm"),
    "torch": ("torch",),
    "numpy": ("numpy",),
    "tunerplugin": ("tunerplugin",),
}


@dataclass(frozen=True)
class Row:
    """One figure: ``value`` in ``unit`` with its spread ``[low, high]``.

    What the spread is (range over seeds, quartiles, a confidence interval) each script says.
    """

    case: str
    method: str
    metric: str
    value: float
    unit: str
    low: float
    high: float


class Spread(NamedTuple):
    """A median with the range of the samples around it."""

    value: float
    low: float
    high: float


def spread(samples: Sequence[float]) -> Spread:
    """Median, least and greatest of at least one sample."""
    return Spread(statistics.median(samples), min(samples), max(samples))


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that treats twice as fast and half as fast as opposites; ratios are above 0."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def wilson(successes: int, n: int) -> Spread:
    """Share of successes with its 95% interval (Wilson, J. Am. Stat. Assoc. 22, 1927).

    Unlike the normal approximation it stays within [0, 1] and is honest at 0 and ``n``.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"expected 0 <= successes <= n and n > 0, got {successes} of {n}")
    share = successes / n
    centre = share + _Z95**2 / (2 * n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + _Z95**2 / (4 * n * n))
    scale = 1 + _Z95**2 / n
    # rounding may move an end past the share where the interval touches 0 or 1
    return Spread(share, min(share, (centre - half) / scale), max(share, (centre + half) / scale))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Spread:
    """Median and range of the ratios of samples that were taken side by side."""
    return spread([a / b for a, b in zip(numerator, denominator, strict=True)])


def alternate(first: Callable[[], float], second: Callable[[], float], rounds: int) -> Spread:
    """Run two methods in alternation; the median and range of first / second.

    Each call returns what it measured (seconds, say).  Who goes first changes every round, so that
    a drift of the machine meets both alike.
    """
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2 == 0:
            a = first()
            b = second()
        else:
            b = second()
            a = first()
        pairs.append((a, b))
    return paired_ratio([a for a, _ in pairs], [b for _, b in pairs])


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all scripts take."""
    made = argparse.ArgumentParser(
        description=(description or "").split("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="a small run, for a first look")
    made.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    made.add_argument("--format", choices=("table", "json"), default="table")
    made.add_argument("--out", type=_writable, help="write there instead of to stdout")
    return made


def _writable(text: str) -> Path:
    """An argparse type: a file that can be written, so that no run ends without its rows."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"expected a file that can be written, got {text!r}: {reason}"
        raise argparse.ArgumentTypeError(message) from error
    return path


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """An argparse type: a comma-separated choice of ``known``, in the order given."""
    allowed = list(known)

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in chosen if name not in allowed]
        if unknown or not chosen:
            got = ", ".join(unknown) or "nothing"
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(allowed)}, got {got}")
        return chosen

    return parse


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def header() -> dict[str, Any]:
    """Where, with what and how the rows were made."""
    return {
        "machine": device_name(),
        "cores": available_cores(),
        "load_1min": round(os.getloadavg()[0], 2),
        "versions": {name: _version(*packages) for name, packages in _PACKAGES.items()},
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(*packages: str) -> str:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "checkout" if packages == ("tunerplugin",) else "not installed"


def emit(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Print the rows, or write them to ``--out``, as ``--format`` says."""
    text = as_json(rows) if options.format == "json" else as_table(rows)
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")


def as_json(rows: Sequence[Row]) -> str:
    """A JSON list: the header, then the rows."""
    return json.dumps([header(), *(asdict(row) for row in rows)], indent=1) + "\n"


def as_table(rows: Sequence[Row]) -> str:
    """The header as ``#`` lines, then aligned columns."""
    lines = [f"# {key}: {_plain(value)}" for key, value in header().items()]
    titles = ("case", "method", "metric", "value", "unit", "low", "high")
    cells = [titles] + [
        (r.case, r.method, r.metric, _number(r.value), r.unit, _number(r.low), _number(r.high))
        for r in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    numeric = {3, 5, 6}
    for line in cells:
        padded = [
            text.rjust(width) if i in numeric else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return str(value)


def note(text: str) -> None:
    """Progress for people, on stderr."""
    print(text, file=sys.stderr, flush=True)
