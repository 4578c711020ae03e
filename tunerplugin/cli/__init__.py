"""The command line: ``tunerplugin demo | tune | predict | train | records | report | ...``.

stdout holds the result (``--format table`` or one JSON document with ``--format json``); progress,
warnings and errors go to stderr.  Exit codes: 0 done; 1 failed, also when nothing could be
measured; 2 bad input; 130 after Ctrl-C and 143 after SIGTERM, with everything measured kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import InputError, MeasureError, TunerError
from . import chips, demo, exits, mine, predict, records, report, train, tune
from .parser import Parser

VERBS = {
    "demo": demo,
    "tune": tune,
    "predict": predict,
    "train": train,
    "records": records,
    "report": report,
    "chips": chips,
    "mine": mine,
}


def build_parser() -> Parser:
    """The parser with every verb."""
    from .. import __version__

    parser = Parser(
        prog="tunerplugin",
        description="Tune models for Apache TVM: a sequence model proposes schedules, a "
        "constrained beam search decodes them, the best are measured.",
        epilog="Exit codes: 0 done, 1 failed or nothing measured, 2 bad input, "
        "130 Ctrl-C, 143 SIGTERM.",
    )
    parser.add_argument("--version", action="version", version=f"tunerplugin {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    for module in VERBS.values():
        verb = module.add_parser(verbs.add_parser)
        verb.set_defaults(run=module.run, parser=verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what it raises is a bug."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        args = _parse(arguments)
    except InputError as error:
        return _complain(error, debug)
    except SystemExit as request:  # --help and --version
        return int(request.code or 0)
    with exits.StopGuard() as guard, _messages(args):
        try:
            code: int = args.run(args, guard)
        except BaseException as error:
            if guard.stopped:
                print("tunerplugin: stopped; what was measured is kept", file=sys.stderr)
                return guard.exit_code
            if isinstance(error, TunerError):
                return _complain(error, debug, args.verb)
            if isinstance(error, BrokenPipeError):
                # The reader of stdout went away (`| head`); do not complain again at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                return exits.FAILED
            if isinstance(error, OSError) and not debug:  # disk full, file taken away, ...
                print(f"tunerplugin {args.verb}: failed: {error}", file=sys.stderr)
                return exits.FAILED
            raise
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = build_parser()
    args = parser.parse(arguments)
    if args.verb is None:
        parser.error(f"expected one of {', '.join(VERBS)}, got no verb")
    return args


def _complain(error: TunerError, debug: bool, verb: str | None = None) -> int:
    if debug:
        traceback.print_exception(error)
    where = f"tunerplugin {verb}: " if verb else ""
    sentence = " ".join(str(error).split())
    print(f"{where}{sentence}", file=sys.stderr)
    return exits.FAILED if isinstance(error, MeasureError) else exits.BAD_INPUT


@contextmanager
def _messages(args: argparse.Namespace) -> Iterator[None]:
    """Send the package's log and Python's warnings to stderr, at the level -v and -q ask for."""
    level = logging.WARNING
    if getattr(args, "verbose", False):
        level = logging.DEBUG
    elif getattr(args, "quiet", False):
        level = logging.ERROR
    logger = logging.getLogger("tunerplugin")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    with warnings.catch_warnings():
        # as one sentence: the file and line that Python adds are of no use here
        warnings.showwarning = lambda message, *_: logger.warning(" ".join(str(message).split()))
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
