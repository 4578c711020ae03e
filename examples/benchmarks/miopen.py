"""MIOpen's tuning parameters predicted for problems that were never searched.

The records are best tuples from AMD's performance databases.  Each solver and data type is a case
of each split (see ``miopen_splits``): what a method may learn from, and the records of one database
(``--device``, gfx906_60 of July 2019; for solvers that it lacks the GPU's next) that it is asked
about.  Scores are explained in ``miopen_scores``, methods where they are written:

majority                  the most common tuples
1-nn                      the tuples of the nearest problems
extratrees-chain          a forest for each field, greedy; -beam-10: beams over the same forests
extratrees-tuple          a forest for the whole tuple
ktn-lstm                  the shape of AMD's KernelTuningNet, greedy
ours                      tunerplugin.sources.miopen with a beam of 10; -beam-N: with one of N
label-noise               another database of the same architecture and date, where it has the same
                          problem; much of the two is one tuning run, copied
label-noise-retuned       the same, of the problems that were certainly tuned twice (the databases
                          disagree on another of the solvers asked for): how well one tuning run
                          predicts another

Methods see the legal tuples (the mask); rows named -unmasked are predicted without.  Methods with
one prediction have no top5 and top10.  Progress, counts and seconds go to stderr.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import miopen_ktn
import miopen_trees
from harness import Row, emit, note, parser, positive
from miopen_ours import Ours
from miopen_rivals import Majority, NearestNeighbour, Query, Rival, Specialised, Tuple, query_of
from miopen_scores import Answer, rows_of, score
from miopen_splits import (
    ALL,
    DTYPES,
    SISTERS,
    SPLITS,
    Split,
    group_key,
    holds,
    make_split,
    problem_key,
    read_examples,
    repeated,
    stable_share,
)

from tunerplugin.errors import InputError
from tunerplugin.sources.miopen import SOLVERS, ConvProblem, PerfRecord
from tunerplugin.sources.miopen.learning import EPOCHS

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "miopen"
FILE = "perf.tsv.xz"
SCORED = "gfx906_60_2019"
LIMIT, QUICK_LIMIT = 1000, 100
QUICK_SOLVERS = ("ConvAsmBwdWrW3x3", "ConvOclDirectFwd")
QUICK_SPLITS = ("a", "b")
METHODS = ("majority", "1-nn", "extratrees-chain", "extratrees-tuple", "ktn-lstm", "ours")
_UNMASKED = ("valid", "per_parameter", "top1")


@dataclass(frozen=True)
class Effort:
    """What training may cost: trees of a forest, updates of the LSTM, passes of ours."""

    trees: int
    updates: int
    epochs: int


FULL, QUICK = Effort(60, 1500, EPOCHS), Effort(10, 30, 1)


def makers(split: Split, effort: Effort, seed: int) -> dict[str, Callable[[], Rival]]:
    """How to make each method unfitted; ours is made, and trained, once for the split."""
    ours = Ours(split.train, effort.epochs, seed)
    return {
        "ours": lambda: ours,
        "majority": Majority,
        "1-nn": NearestNeighbour,
        "extratrees-chain": lambda: Specialised(lambda: miopen_trees.TreeChain(effort.trees, seed)),
        "extratrees-tuple": lambda: Specialised(
            lambda: miopen_trees.TupleForest(effort.trees, seed)
        ),
        "ktn-lstm": lambda: Specialised(lambda: miopen_ktn.KernelTuningNet(effort.updates, seed)),
    }


def missing_reason(method: str) -> str | None:
    """Why a method cannot run here; ``None`` when it can."""
    if method.startswith("extratrees"):
        return miopen_trees.missing_reason()
    return miopen_ktn.missing_reason() if method == "ktn-lstm" else None


@dataclass(frozen=True)
class Case:
    """A solver and data type of a split, with at most ``limit`` of the scored records."""

    name: str
    train: tuple[PerfRecord, ...]
    test: tuple[PerfRecord, ...]


def cases_of(split: Split, limit: int) -> Iterator[Case]:
    """Where there is something to learn from and something to score, largest solver first."""
    for solver in SOLVERS:
        for dtype in DTYPES:
            train, test = (
                [r for r in side if r.solver == solver and r.problem.dtype == dtype]
                for side in (split.train, split.test)
            )
            if train and test:
                chosen = sorted(test, key=lambda r: stable_share((problem_key(r), r.source), 0))
                name = f"{solver} {dtype} {split.name}"
                yield Case(name, tuple(train), tuple(chosen[:limit]))
            elif test:
                note(f"{solver} {dtype} {split.name}: {len(test)} records, none to learn from")


def rows_of_method(case: Case, method: str, rival: Rival, seed: int) -> list[Row]:
    """Fit, predict with and without the mask, score."""
    begin = time.monotonic()
    rival.fit(case.train)
    queries = [query_of(record) for record in case.test]
    rows = []
    for name, width in rival.variants.items():
        answers = _answers(case, queries, rival.predict(queries, width, masked=True))
        scores = score(answers, width, seed)
        rows += rows_of(case.name, name, scores)
        figures = ", ".join(f"{metric} {middle.value:.3f}" for metric, middle in scores.items())
        note(f"{case.name} {name}: {figures}; {time.monotonic() - begin:.1f} s")
        if name == method:
            answers = _answers(case, queries, rival.predict(queries, 1, masked=False))
            scores = score(answers, 1, seed)
            known = {metric: scores[metric] for metric in _UNMASKED}
            rows += rows_of(case.name, f"{name}-unmasked", known)
    return rows


def _answers(
    case: Case, queries: Sequence[Query], predicted: Sequence[Sequence[Tuple]]
) -> list[Answer]:
    return [
        Answer(
            problem_key(record),
            record.values,
            tuple(tuples),
            bool(tuples) and holds(query.space, tuples[0]),
        )
        for record, query, tuples in zip(case.test, queries, predicted, strict=True)
    ]


def label_noise(case: Case, records: Sequence[PerfRecord], seed: int) -> list[Row]:
    """The sister database as a method: on the problems that it has, and on those tuned again."""
    asked = {(SISTERS.get(r.source, ""), r.problem) for r in case.test}
    asked |= {(r.source, r.problem) for r in case.test}
    known: dict[tuple[str, ConvProblem], dict[str, Tuple]] = defaultdict(dict)
    for r in records:
        if (r.source, r.problem) in asked:
            known[r.source, r.problem][r.solver] = r.values
    every, retuned = [], []
    for r in case.test:
        own, sister = (known.get((s, r.problem), {}) for s in (r.source, SISTERS.get(r.source, "")))
        if r.solver in sister:
            answer = Answer(problem_key(r), r.values, (sister[r.solver],), True)
            every.append(answer)
            others = (own.keys() & sister.keys()) - {r.solver}
            if any(own[solver] != sister[solver] for solver in others):
                retuned.append(answer)
    rows = []
    for name, answers in (("label-noise", every), ("label-noise-retuned", retuned)):
        if answers:
            scores = score(answers, 1, seed)
            kept = {metric: scores[metric] for metric in ("top1", "per_parameter")}
            rows += rows_of(case.name, name, kept)
    return rows


def splits_of(records: Sequence[PerfRecord], options: argparse.Namespace) -> Iterator[Split]:
    """The splits asked for, or the outside file against everything."""
    if options.test:
        asked, skipped = read_examples(options.test, options.solvers, options.dtypes)
        note(f"{options.test}: {len(asked)} records scored; left out: {_listed(skipped)}")
        known, groups = {r.problem for r in records}, {group_key(r) for r in records}
        note(
            f"of these, {sum(r.problem in known for r in asked)} have a problem of the training "
            f"records, {sum(group_key(r) in groups for r in asked)} a group of theirs"
        )
        yield Split("test", tuple(records), tuple(asked))
        return
    sources = {r.source for r in records}
    if options.device not in sources | {ALL}:
        raise InputError(
            f"expected {ALL} or a database among {', '.join(sorted(sources))} as --device, "
            f"got {options.device!r}"
        )
    for name in options.splits:
        if options.device == ALL and name.startswith("c"):
            note(f"split {name}: left out, it needs one GPU (--device)")
            continue
        split = make_split(name, records, options.device, options.seed)
        note(f"split {name}: {len(split.train)} records to learn from, {len(split.test)} to score")
        if name == "d":
            later, same_problem, same_group = repeated(records, options.device)
            note(
                f"split d: of {later} records of 2023, {same_problem} repeat a problem of 2019 "
                f"and {same_group} a group; the others are scored"
            )
        yield split


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(counts.items())) or "none"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with what ``--quick`` means filled in; ends with code 2 on wrong ones."""
    made = parser(__doc__)
    made.add_argument("--data", type=Path, default=DATA, help=f"the folder of {FILE}")
    made.add_argument("--test", type=Path, help="score this table (.tsv, .tsv.xz) instead")
    made.add_argument("--device", default=SCORED, help=f"database that is scored, or {ALL}")
    made.add_argument("--splits", nargs="+", choices=SPLITS, help="default: each")
    made.add_argument("--solvers", nargs="+", choices=list(SOLVERS), help="default: each")
    made.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    made.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    made.add_argument("--limit", type=positive, help=f"records per case (default: {LIMIT})")
    made.add_argument("--threads", type=positive, default=1, help="of PyTorch (default: 1)")
    options = made.parse_args(arguments)
    options.solvers = options.solvers or (QUICK_SOLVERS if options.quick else tuple(SOLVERS))
    options.splits = options.splits or (QUICK_SPLITS if options.quick else SPLITS)
    options.limit = options.limit or (QUICK_LIMIT if options.quick else LIMIT)
    for path in [options.data / FILE, *filter(None, [options.test])]:
        if not path.is_file():
            made.error(f"expected a table of MIOpen's records at {path}, which is not there")
    return options


def runnable(methods: Sequence[str], threads: int) -> list[str]:
    """Those whose packages are here; the others are told of."""
    reasons = {method: missing_reason(method) for method in methods}
    for method, reason in reasons.items():
        if reason:
            note(f"without {method}: {reason}")
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(threads)
    return [method for method in methods if not reasons[method]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print."""
    options = parse(arguments)
    effort = QUICK if options.quick else FULL
    methods = runnable(options.methods, options.threads)
    try:
        records, skipped = read_examples(options.data / FILE, options.solvers, options.dtypes)
        note(f"{len(records)} records; left out: {_listed(skipped)}")
        splits = list(splits_of(records, options))
    except InputError as error:
        raise SystemExit(str(error)) from error
    rows = []
    for split in splits:
        made = makers(split, effort, options.seed)
        for case in cases_of(split, options.limit):
            sources = ", ".join(sorted({r.source for r in case.test}))
            note(f"{case.name}: {len(case.train)} records, {len(case.test)} scored of {sources}")
            for method in methods:
                rows += rows_of_method(case, method, made[method](), options.seed)
            rows += label_noise(case, records, options.seed)
    emit(rows, options)


if __name__ == "__main__":
    main()
