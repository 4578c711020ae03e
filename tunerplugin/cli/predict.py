"""``tunerplugin predict MODEL``: schedules from the predictor alone, nothing is measured.

With the word ``miopen`` for MODEL, see ``predict_miopen``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import models
from . import exits, options, predict_miopen, render
from .exits import StopGuard
from .parser import Parser


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    verb = add(
        "predict",
        parents=[options.compiling(), options.common()],
        help="choose schedules for a model, or a convolution's parameters in MIOpen, unmeasured",
        description="Choose a schedule for every task of a model with the predictor alone; "
        "works for targets that this machine does not have.  With the word miopen for MODEL: the "
        "parameters of a convolution in MIOpen's solvers.",
    )
    options.add_model(verb)
    verb.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write a MetaSchedule JSON database into DIR (miopen: a user database, a file)",
    )
    predict_miopen.add_arguments(verb)
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Predict; 0 when at least one task got a schedule."""
    if args.model == predict_miopen.WORD:
        return predict_miopen.run(args)
    predict_miopen.refuse(args)
    file = models.check_model_path(args.model)
    options.check_weights(args.weights)
    out = None if args.out is None else options.make_work_dir(args.out, "--out")
    with render.stdout_to_stderr():
        import tunerplugin

        target = options.parse_target(args.target)
        model = models.load_model(file)
        database = tunerplugin.predict(
            model.mod, target, seed=args.seed, params=model.params or None, weights=args.weights
        )
        if out is not None:
            database.save(out)
    predicted = sum(task.status == "predicted" for task in database.coverage)
    document: dict[str, Any] = {
        "verb": "predict",
        "model": str(file),
        "target": str(target),
        "status": "done" if predicted else "nothing_predicted",
        "tasks": render.coverage_rows(database.coverage),
        "out": None if out is None else str(out),
    }
    render.emit(args.format, document, render.coverage_table(database.coverage))
    if predicted:
        return exits.DONE
    print("tunerplugin: failed: expected a schedule for some task, got none", file=sys.stderr)
    return exits.FAILED
