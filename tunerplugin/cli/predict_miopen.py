"""``tunerplugin predict miopen KEY``: a convolution's parameters in MIOpen, without measuring."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, WeightsError
from . import exits, options, render

if TYPE_CHECKING:
    from ..predictor import Predictor
    from ..sources.miopen import ConvProblem

WORD = "miopen"
"""What stands for MODEL."""

EXAMPLE = "256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """Declare what only this form of the verb takes."""
    group = verb.add_argument_group(
        f"with {WORD} as MODEL",
        "Ranks follow the probability of a tuple and its agreement with the other likely ones.",
    )
    group.add_argument("key", metavar="KEY", nargs="?", help=f"the convolution, such as {EXAMPLE}")
    group.add_argument("--device", help="the GPU as MIOpen's databases name it, such as gfx906_60")
    group.add_argument("--solver", help="MIOpen's solver (default: each that can compute it)")
    group.add_argument("--top", type=options.at_least(1), help="tuples per solver (default: 1)")


def refuse(args: argparse.Namespace) -> None:
    """Complain about what only this form takes, given with a model file."""
    for name in ("key", "device", "solver", "top"):
        value = getattr(args, name)
        if value is not None:
            raise InputError(
                f"expected {name} with {WORD} as MODEL only, got {value!r} with {args.model!r}; "
                f"write: tunerplugin predict {WORD} KEY --device DEVICE"
            )


def run(args: argparse.Namespace) -> int:
    """Predict; ``--out`` writes the first tuple of each solver into a user database."""
    if args.key is None or args.device is None:
        raise InputError(
            f"expected a convolution and --device, got key {args.key!r} and device "
            f"{args.device!r}; write: tunerplugin predict {WORD} {EXAMPLE} --device gfx906_60"
        )
    if args.target is not None:
        raise InputError(f"expected --device, got --target {args.target!r}; leave --target out")
    options.check_weights(args.weights)
    from ..sources import miopen

    problem = miopen.parse_key(args.key)
    miopen.check_sizes(problem)
    rows, left_out = _candidates(problem, args)
    if args.out is not None:
        first = [(problem, r["solver"], [*r["values"].values()]) for r in rows if r["rank"] == 1]
        miopen.write_user_db(Path(args.out), first)
    document = {
        "verb": "predict",
        "problem": args.key,
        "device": args.device,
        "status": "done",
        "candidates": rows,
        "no_legal_tuple": left_out,
        "out": None if args.out is None else str(args.out),
    }
    render.emit(args.format, document, _table(rows))
    if left_out and not args.quiet:
        print(f"no tuple is legal for: {', '.join(left_out)}", file=sys.stderr)
    return exits.DONE


def _candidates(
    problem: ConvProblem, args: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows for the solver named, or for each that can compute it; and those that no tuple fits."""
    from ..sources import miopen

    named = args.solver is not None
    solvers = [args.solver] if named else miopen.solvers_for(problem, args.device)
    spaces = {s: miopen.space_of(s, problem, True, args.device) for s in solvers}
    left_out = [solver for solver, space in spaces.items() if not space.allows(())]
    if len(left_out) == len(solvers):
        tried = f"no tuple is legal for {', '.join(left_out)}" if solvers else "none can"
        raise InputError(
            f"expected a convolution that a solver known here computes on {args.device}, got "
            f"{args.key!r}: {tried}; name another convolution{' or solver' if named else ''}"
        )
    chooser = miopen.Chooser(_predictor(args.weights, args.seed))
    rows: list[dict[str, Any]] = []
    for solver in (s for s in solvers if s not in left_out):
        found = chooser.choose(problem, solver, args.device, args.top or 1)
        for rank, candidate in enumerate(found, 1):
            values = dict(zip(spaces[solver].names, candidate.values, strict=True))
            share = math.exp(candidate.log_probability)
            rows.append({"solver": solver, "rank": rank, "probability": share, "values": values})
    return rows, left_out


def _predictor(weights: Path | None, seed: int) -> Predictor:
    from ..predictor import Predictor, load_packaged

    if weights is not None:
        predictor = Predictor.load(weights, seed)
        if not predictor.tables:
            raise WeightsError(
                f"expected weights trained on MIOpen's records, got {str(weights)!r}, trained on "
                f"{predictor.info.training_data!r}; make some with tunerplugin train miopen"
            )
        return predictor
    packaged = load_packaged(WORD, seed)
    if packaged is None:
        raise WeightsError(
            "expected weights for MIOpen in the package, got none: install it again, or give "
            "--weights (tunerplugin train miopen)"
        )
    return packaged


def _table(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        values = ", ".join(f"{name} {value}" for name, value in row["values"].items())
        tuple_ = ",".join(str(value) for value in row["values"].values())
        cells.append((row["solver"], row["rank"], f"{row['probability']:.3f}", tuple_, values))
    return render.table(("solver", "rank", "probability", "tuple", "values"), cells)
