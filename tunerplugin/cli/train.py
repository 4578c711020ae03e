"""``tunerplugin train SOURCE DATA --out W``: a predictor from what other tuners measured."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from ..errors import InputError
from . import exits, options, render
from .exits import StopGuard
from .parser import Parser

if TYPE_CHECKING:
    from ..predictor import OnStep
    from ..sources.trained import Trained


class Source(NamedTuple):
    """A tuner whose records train a predictor: the files it takes, and who reads and learns."""

    patterns: tuple[str, ...]  # file names in a folder that is given as DATA
    train: Callable[[list[Path], int, dict[str, int], OnStep], Trained]


def _miopen(files: list[Path], seed: int, settings: dict[str, int], on_step: OnStep) -> Trained:
    from ..sources import miopen

    skipped: Counter[str] = Counter()
    records = [record for file in files for record in miopen.read_records(file, skipped)]
    return miopen.train(records, seed, on_step=on_step, skipped=skipped, **settings)


def _hub(files: list[Path], seed: int, settings: dict[str, int], on_step: OnStep) -> Trained:
    from ..sources import kernel_tuner

    recordings = [kernel_tuner.read_cache(file) for file in files]
    return kernel_tuner.train(recordings, seed, on_step=on_step, **settings)


def _clblast(files: list[Path], seed: int, settings: dict[str, int], on_step: OnStep) -> Trained:
    from ..sources import clblast

    records = [record for file in files for record in clblast.read_clblast(file)]
    return clblast.train(records, seed, on_step=on_step, **settings)


SOURCES = {
    "miopen": Source(("*.tsv*", "*.db", "*.db.*", "*.udb", "*db.txt*"), _miopen),
    "hub": Source(("*/*.json.gz", "*.json.gz", "*.json"), _hub),
    "clblast": Source(("*.json",), _clblast),
}


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    verb = add(
        "train",
        parents=[options.common()],
        help="train predictor weights on another tuner's records",
        description="Train predictor weights on records of MIOpen (performance databases: text, "
        "SQLite, tables), of Kernel Tuner's benchmark hub (cache files in a folder per kernel) or "
        "of CLBlast (its best parameters as JSON).",
    )
    verb.add_argument("source", metavar="SOURCE", choices=list(SOURCES), help=", ".join(SOURCES))
    verb.add_argument(
        "data", metavar="DATA", type=Path, nargs="+", help="files, or folders of them"
    )
    verb.add_argument("--out", type=Path, required=True, metavar="W.safetensors", help="to write")
    verb.add_argument("--seed", type=options.at_least(0), default=0, help="default: 0")
    verb.add_argument("--epochs", type=options.at_least(1), help="passes over the records")
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Train and save; nothing is written when it is stopped."""
    source = SOURCES[args.source]
    files = _files(args.data, source.patterns)
    options.make_work_dir(args.out.resolve().parent, "--out")
    if args.out.is_dir():
        raise InputError(f"expected a file to write, got the folder {str(args.out)!r}; name a file")
    settings = {} if args.epochs is None else {"epochs": args.epochs}
    begin = time.monotonic()
    with render.stdout_to_stderr(), _Progress(guard, args.quiet) as progress:
        from ..predictor import WeightsInfo

        trained = source.train(files, args.seed, settings, progress)
        data = f"{trained.examples} {args.source} records of {len(files)} files, seed {args.seed}"
        trained.predictor.save(args.out, WeightsInfo(training_data=data))
    document: dict[str, Any] = {
        "verb": "train",
        "source": args.source,
        "status": "done",
        "examples": trained.examples,
        "left_out": dict(trained.left_out.most_common()),
        "loss": trained.loss,
        "seconds": time.monotonic() - begin,
        "out": str(args.out),
    }
    lines = [f"{count} left out: {why}" for why, count in trained.left_out.most_common()]
    lines.append(
        f"trained on {trained.examples} records in {document['seconds']:.0f} s, "
        f"loss {trained.loss:.3f}; wrote {args.out}"
    )
    render.emit(args.format, document, "\n".join(lines))
    return exits.DONE


def _files(given: Iterable[Path], patterns: tuple[str, ...]) -> list[Path]:
    """The files given, and those of a folder that look like records."""
    files: list[Path] = []
    for path in given:
        found = [path] if path.is_file() else sorted({f for p in patterns for f in path.glob(p)})
        if not found:
            raise InputError(
                f"expected a file, or a folder with {' or '.join(patterns)}, got {str(path)!r}; "
                "check the path"
            )
        files += found
    return files


class _Progress:
    """Draws where stderr is a terminal; raises ``KeyboardInterrupt`` when asked to stop."""

    def __init__(self, guard: StopGuard, quiet: bool) -> None:
        self._guard = guard
        self._hidden = quiet or not sys.stderr.isatty()
        self._bar: tqdm | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        self._guard.check()
        if not self._hidden:
            self._bar = self._bar or tqdm(total=total, unit="step", file=sys.stderr)
            self._bar.update(done + 1 - self._bar.n)
