"""Reading performance records, one at a time: text, SQLite and tab-separated databases.

Damaged or foreign lines are counted, never fatal.  Files may be compressed (xz, bzip2, gzip).
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from ...errors import InputError
from .devices import parse_device
from .problem import Conv3dError, ConvProblem, output_size, parse_key
from .solvers import SOLVERS


@dataclass(frozen=True, slots=True)
class PerfRecord:
    """The best tuple found for a problem on a device.

    ``source`` names the database, which may be dated (``gfx906_60_2019``); ``device`` is the device
    alone (``gfx906_60``).
    """

    device: str
    problem: ConvProblem
    solver: str
    values: tuple[int, ...]
    source: str = ""


_OPENERS: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
    (b"\x1f\x8b", gzip.open),
)
_SQLITE = b"SQLite format 3\x00"
_TABLE = b"set\tsolver\t"
_COLUMNS = (
    "set solver dir dtype layout C H W y x K Ho Wo N ph pw sh sw dh dw g params valid".split()
)
#: what a damaged compressed file or database raises
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, sqlite3.DatabaseError)


def read_records(
    path: Path, skipped: Counter[str] | None = None, device: str | None = None
) -> Iterator[PerfRecord]:
    """Stream the records of a database of any of the three formats, told apart by content.

    ``skipped`` counts what is left out, by reason: one for each line or item.  ``device`` is by
    default what the file (or, in a table, the row) is named after.  Raises ``InputError`` when the
    file cannot be read, at the first record or where the damage is.
    """
    counts: Counter[str] = Counter() if skipped is None else skipped
    try:
        with _open(path) as file:
            head = file.read(len(_SQLITE))
            file.seek(0)
            if head == _SQLITE:
                yield from _read_sqlite(file, device or _device_of(path), path, counts)
            elif head.startswith(_TABLE):
                yield from _read_table(file, counts, device)
            else:
                yield from _read_text(file, device or _device_of(path), path, counts)
    except _UNREADABLE as error:
        raise InputError(
            f"expected a readable MIOpen database, got {path}: {error}; fetch or unpack it again"
        ) from error


def _open(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        head = file.read(8)
    opener = next((opener for magic, opener in _OPENERS if head.startswith(magic)), open)
    opened: IO[bytes] = opener(path, "rb")
    return opened


def _source_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _device_of(path: Path) -> str:
    try:
        return parse_device(_source_of(path)).name
    except InputError as error:
        raise InputError(
            f"expected a database named after its device, such as gfx906_60.cd.pdb.txt, got "
            f"{path.name!r}; rename it (from Python: or pass device=)"
        ) from error


def _values(solver: str, text: str) -> tuple[int, ...] | str:
    """A tuple, or why there is none."""
    known = SOLVERS.get(solver)
    if known is None:
        return "unknown solver"
    try:
        values = tuple(map(int, text.split(",")))
    except (ValueError, AttributeError):
        return "malformed values"
    return values if len(values) == len(known.fields) else "wrong arity"


def _problem(make: Callable[..., ConvProblem], *arguments: Any) -> ConvProblem | str:
    """A problem, or why there is none."""
    try:
        return make(*arguments)
    except Conv3dError:
        return "3-D problem"
    except (InputError, TypeError, ValueError, ZeroDivisionError):
        return "malformed problem"


def _read_text(
    file: IO[bytes], device: str, path: Path, skipped: Counter[str]
) -> Iterator[PerfRecord]:
    source = _source_of(path)
    for raw in file:
        line = raw.decode("utf-8", "replace").strip()
        if not line:
            continue
        key, equals, contents = line.partition("=")
        problem = _problem(parse_key, key) if equals else "malformed line"
        if isinstance(problem, str):
            skipped[problem] += 1
            continue
        for item in contents.split(";"):
            solver, colon, text = item.partition(":")
            values = _values(solver, text) if colon else "malformed item"
            if isinstance(values, str):
                skipped[values] += 1
            else:
                yield PerfRecord(device, problem, solver, values, source)


def _read_table(file: IO[bytes], skipped: Counter[str], device: str | None) -> Iterator[PerfRecord]:
    columns = file.readline().decode("utf-8", "replace").rstrip("\r\n").split("\t")
    if columns != _COLUMNS:
        raise InputError(f"expected the columns {' '.join(_COLUMNS)}, got {' '.join(columns)}")
    for raw in file:
        row = raw.decode("utf-8", "replace").rstrip("\r\n").split("\t")
        if len(row) != len(_COLUMNS):
            skipped["malformed line"] += 1
            continue
        values = _values(row[1], row[21])
        problem = _problem(_table_problem, *row[2:21]) if isinstance(values, tuple) else values
        if isinstance(problem, str) or isinstance(values, str):
            skipped[str(problem)] += 1
            continue
        try:
            name = device or parse_device(row[0]).name
        except InputError:
            skipped["unknown device"] += 1
            continue
        yield PerfRecord(name, problem, row[1], values, row[0])


@lru_cache(maxsize=1 << 14)
def _table_problem(direction: str, dtype: str, layout: str, *numbers: str) -> ConvProblem:
    c, h, w, y, x, k, ho, wo, n, ph, pw, sh, sw, dh, dw, groups = map(int, numbers)
    sizes = (c, h, w, y, x, k, ho, wo, n, ph, pw, sh, sw, dh, dw)
    return ConvProblem(*sizes, 0, layout, dtype, direction, groups)


_QUERY = """
SELECT p.solver, p.params, c.spatial_dim, c.direction, c.data_type, c.layout, c.in_channels, c.in_h,
c.in_w, c.fil_h, c.fil_w, c.out_channels, c.batchsize, c.pad_h, c.pad_w, c.conv_stride_h,
c.conv_stride_w, c.dilation_h, c.dilation_w, c.bias, c.group_count
FROM perf_db AS p JOIN config AS c ON p.config = c.id ORDER BY p.id
"""


def _read_sqlite(
    file: IO[bytes], device: str, path: Path, skipped: Counter[str]
) -> Iterator[PerfRecord]:
    """Of a copy: SQLite cannot read compressed files, nor leave a file in use alone."""
    source = _source_of(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "perf.db"
        with open(copy, "wb") as plain:
            shutil.copyfileobj(file, plain)
        uri = f"{copy.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            for solver, params, *config in connection.execute(_QUERY):
                values = _values(solver, params)
                problem = _problem(_config_problem, *config)
                if isinstance(values, str) or isinstance(problem, str):
                    skipped[values if isinstance(values, str) else str(problem)] += 1
                else:
                    yield PerfRecord(device, problem, solver, values, source)


@lru_cache(maxsize=1 << 12)
def _config_problem(
    spatial_dim: int, direction: str, dtype: str, layout: str, *numbers: int
) -> ConvProblem:
    """A row of ``config``; output sizes, which it lacks, are computed."""
    if spatial_dim == 3:
        raise Conv3dError("expected a 2-D convolution")
    c, h, w, y, x, k, n, ph, pw, sh, sw, dh, dw, bias, groups = map(int, numbers)
    ho = output_size(h, y, ph, sh, dh, direction)
    wo = output_size(w, x, pw, sw, dw, direction)
    sizes = (c, h, w, y, x, k, ho, wo, n, ph, pw, sh, sw, dh, dw)
    return ConvProblem(*sizes, bias, layout, dtype, direction, groups)
