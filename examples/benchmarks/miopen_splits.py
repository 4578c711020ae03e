"""MIOpen's records as the benchmark reads them, and how they are split.

GPUs of one architecture were tuned on the same problems, and their databases are partly copies of
each other.  So what is held out is a problem, or a group of problems, on every GPU and date at
once; ``leaks`` says what a split shares all the same.

Splits:

a         problems: a tenth of them
b         groups: a tenth of the problems without batch, data type and direction, with twins
          (forward and backward, input and output exchanged) together
c         architectures: the scored GPU and all whose databases are copies of its own
c-device  the scored GPU alone; copies stay, so this is no transfer
d         years: 2019 for training; of the GPU in 2023, groups that 2019 does not have
"""

from __future__ import annotations

import hashlib
import lzma
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunerplugin.errors import InputError
from tunerplugin.sources.miopen import (
    ConvProblem,
    PerfRecord,
    RuledSpace,
    format_key,
    parse_device,
    read_records,
    space_of,
)

SPLITS = ("a", "b", "c", "c-device", "d")
HELD_OUT = 0.1
DTYPES = ("FP32", "FP16")
ALL = "all"
"""Instead of a database: records of every database are scored."""

#: what the file of these names was committed to MIOpen in (data/miopen/sources.json)
_YEARS = {"gfx803_36": 2019, "gfx1030_36": 2023, "gfx942130": 2024}
_YEAR = re.compile(r"_(20\d\d)[a-z]?")
#: architectures whose databases agree on .75 to .85 of the tuples: copies, mostly
_COPIES = (("gfx803", "gfx900"),)
#: database -> another one of the same architecture and date
SISTERS = {
    "gfx906_60_2019": "gfx906_64_2019",
    "gfx906_64_2019": "gfx906_60_2019",
    "gfx906_60_2023a": "gfx906_60_2023b",
    "gfx906_60_2023b": "gfx906_60_2023a",
}
_TRAINING_YEAR, _TESTED_YEAR = 2019, 2023


@dataclass(frozen=True)
class Split:
    """Records to train on and records to score, never of one case alone."""

    name: str
    train: tuple[PerfRecord, ...]
    test: tuple[PerfRecord, ...]


def problem_key(record: PerfRecord) -> str:
    """The problem, whatever the GPU, date and solver."""
    return format_key(record.problem)


def group_key(record: PerfRecord) -> tuple[int, ...]:
    """The problem without batch, data type, layout, bias, direction and the order of its sides.

    A backward problem names the gradient dy as its input, so its sizes are exchanged against those
    of its forward twin.
    """
    p = record.problem
    channels, heights, widths = sorted((p.c, p.k)), sorted((p.h, p.ho)), sorted((p.w, p.wo))
    window = (p.y, p.x, p.pad_h, p.pad_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w)
    return (*channels, *heights, *widths, *window, p.groups)


def architecture(record: PerfRecord) -> str:
    """The instruction set, under one name with those whose databases are copies."""
    isa = parse_device(record.device).isa
    return next(("/".join(kin) for kin in _COPIES if isa in kin), isa)


def year_of(source: str) -> int:
    """When a database was committed to MIOpen; 0: not known."""
    match = _YEAR.search(source)
    return int(match[1]) if match else _YEARS.get(source, 0)


def stable_share(key: Hashable, seed: int) -> float:
    """A number in [0, 1) that hangs on the key and the seed alone."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def make_split(name: str, records: Sequence[PerfRecord], scored: str, seed: int) -> Split:
    """Split the records; ``scored`` is the database whose records are scored, or ``ALL``.

    For a solver that it does not have, the next database of the GPU stands in.  Raises
    ``ValueError`` for an unknown split, or a left-out GPU that is not named.
    """
    if name in ("a", "b"):
        return _random(name, records, scored, seed)
    if name == "d":
        return _by_year(records, scored)
    if name not in SPLITS or scored == ALL:
        raise ValueError(f"expected a split among {SPLITS} and one GPU, got {name!r}, {scored!r}")
    is_scored = _scored(records, scored)
    test = [r for r in records if is_scored(r)]
    left_out = _shared_key(name)
    gone = {left_out(r) for r in test}
    return Split(name, tuple(r for r in records if left_out(r) not in gone), tuple(test))


def _shared_key(name: str) -> Callable[[PerfRecord], Hashable]:
    """What training and scored records of a split must not have in common."""
    keys: dict[str, Callable[[PerfRecord], Hashable]] = {
        "a": problem_key,
        "b": group_key,
        "c": architecture,
        "c-device": lambda record: record.device,
        "d": group_key,
    }
    return keys[name]


def _scored(records: Sequence[PerfRecord], scored: str) -> Callable[[PerfRecord], bool]:
    """Whether a record is of the database that is scored for its solver."""
    if scored == ALL:
        return lambda record: True
    device = parse_device(scored).name
    having = {(r.solver, r.source) for r in records if r.device == device}
    chosen = dict(sorted(having, reverse=True))  # the earliest database of each solver
    chosen |= {solver: source for solver, source in having if source == scored}
    return lambda record: chosen.get(record.solver) == record.source


def _random(name: str, records: Sequence[PerfRecord], scored: str, seed: int) -> Split:
    key = _shared_key(name)
    is_scored = _scored(records, scored)
    shares: dict[Hashable, bool] = {}
    train, test = [], []
    for record in records:
        k = key(record)
        if k not in shares:
            shares[k] = stable_share(k, seed) < HELD_OUT
        if not shares[k]:
            train.append(record)
        elif is_scored(record):
            test.append(record)
    return Split(name, tuple(train), tuple(test))


def _by_year(records: Sequence[PerfRecord], scored: str) -> Split:
    train = [r for r in records if year_of(r.source) == _TRAINING_YEAR]
    known = {group_key(r) for r in train}
    new = [r for r in later_records(records, scored) if group_key(r) not in known]
    return Split("d", tuple(train), tuple(new))


def later_records(records: Sequence[PerfRecord], scored: str) -> list[PerfRecord]:
    """What split d would score if nothing were known: the first database of 2023 of the GPU."""
    later = [r for r in records if year_of(r.source) == _TESTED_YEAR]
    if scored == ALL:
        return later
    device = parse_device(scored).name
    sources = sorted({r.source for r in later if r.device == device})
    chosen = scored if scored in sources else next(iter(sources), None)
    return [r for r in later if r.source == chosen]


def repeated(records: Sequence[PerfRecord], scored: str) -> tuple[int, int, int]:
    """Of the records of 2023: how many, with a problem of 2019, with a group of 2019."""
    later = later_records(records, scored)
    train = [r for r in records if year_of(r.source) == _TRAINING_YEAR]
    problems, groups = {r.problem for r in train}, {group_key(r) for r in train}
    same_problem = sum(r.problem in problems for r in later)
    return len(later), same_problem, sum(group_key(r) in groups for r in later)


def leaks(
    train: Iterable[PerfRecord], test: Iterable[PerfRecord], split: str
) -> frozenset[Hashable]:
    """What both sides share and must not, under the rules of that split."""
    key = _shared_key(split)
    return frozenset(key(r) for r in train) & frozenset(key(r) for r in test)


def holds(space: RuledSpace, values: Sequence[int]) -> bool:
    """Whether a complete tuple is legal: each value in its range, and every rule content.

    The same answer as ``space.contains``, which also walks (and remembers) all prefixes.
    """
    ranges = space.ranges
    if len(values) != len(ranges) or not all(v in r for v, r in zip(values, ranges, strict=True)):
        return False
    return all(rule.allows(tuple(values)) for rule in space.rules)


def read_examples(
    path: Path, solvers: Sequence[str], dtypes: Sequence[str]
) -> tuple[list[PerfRecord], Counter[str]]:
    """The records that can be scored, and the count of the others by reason.

    Without the column ``valid``, too.  Raises ``InputError`` when the file cannot be read.
    """
    skipped: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="miopen_") as folder:
        found = list(read_records(_completed(path, Path(folder)), skipped))
    by_problem: dict[tuple[str, ConvProblem], list[PerfRecord]] = defaultdict(list)
    for record in found:
        if record.solver not in solvers:
            skipped["solver not asked for"] += 1
        elif record.problem.dtype not in dtypes:
            skipped["data type not asked for"] += 1
        else:
            by_problem[record.solver, record.problem].append(record)
    kept = []
    for same in by_problem.values():  # a space is built once for each problem and GPU
        for record in sorted(same, key=lambda r: r.source):
            reason = _unusable(record)
            skipped[reason] += bool(reason)
            if not reason:
                kept.append(record)
    return kept, +skipped


def _unusable(record: PerfRecord) -> str:
    try:
        space = space_of(record.solver, record.problem, full=True, device=record.device)
    except InputError:
        return "problem that the solver cannot compute"
    return "" if holds(space, record.values) else "tuple that the rules refuse"


def _completed(path: Path, folder: Path) -> Path:
    """The table with its last column, which is not used, filled in where it is missing."""
    try:
        with open(path, "rb") as file:
            packed = file.read(6) == b"\xfd7zXZ\x00"
        with lzma.open(path, "rt") if packed else open(path, encoding="utf-8") as table:
            header = table.readline().rstrip("\r\n")
            if not header.endswith("\tparams"):
                return path
            copy = folder / "table.tsv"
            with open(copy, "w", encoding="utf-8") as whole:
                whole.write(f"{header}\tvalid\n")
                whole.writelines(line.rstrip("\r\n") + "\tunknown\n" for line in table)
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise InputError(
            f"expected a table of MIOpen's records (.tsv or .tsv.xz), got {path}: {error}"
        ) from error
    return copy
