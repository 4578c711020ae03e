"""Options that verbs share, and the checks of their values."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InputError, TargetError
from ..models import LOADERS
from .parser import Parser

TARGET_EXAMPLES = 'llvm, nvidia/nvidia-a100 or \'{"kind": "llvm", "num-cores": 4}\''


def at_least(minimum: int) -> Callable[[str], int]:
    """An argparse type: a whole number that is not below ``minimum``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {minimum}, got {text!r}"
            )
        return value

    return convert


def common() -> Parser:
    """Options of every verb."""
    parent = Parser(add_help=False)
    parent.add_argument(
        "--format", choices=("table", "json"), default="table", help="what stdout holds"
    )
    loudness = parent.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="say more on stderr")
    loudness.add_argument("-q", "--quiet", action="store_true", help="only errors on stderr")
    parent.add_argument("--debug", action="store_true", help="show the traceback of any error")
    return parent


def compiling() -> Parser:
    """Options of every verb that compiles for a target."""
    parent = Parser(add_help=False)
    parent.add_argument(
        "--target", help=f"TVM target, such as {TARGET_EXAMPLES} (default: this machine)"
    )
    parent.add_argument("--seed", type=at_least(0), default=0, help="default: 0")
    parent.add_argument("--weights", type=Path, help="predictor weights (.safetensors)")
    return parent


def measuring(default_trials: int) -> Parser:
    """Options of every verb that measures."""
    parent = Parser(add_help=False)
    parent.add_argument(
        "--trials",
        type=at_least(1),
        default=default_trials,
        help=f"measurements in total, earlier runs included (default: {default_trials})",
    )
    parent.add_argument("--jobs", type=at_least(1), help="CPU threads to use (default: all cores)")
    return parent


def add_model(verb: argparse.ArgumentParser) -> None:
    """The model to work on."""
    verb.add_argument("model", metavar="MODEL", help=f"a file ending in {', '.join(LOADERS)}")


def check_weights(path: Path | None) -> None:
    """Refuse a weights file that is not there; what is in it is checked when it is loaded."""
    if path is not None and not path.is_file():
        raise InputError(
            f"expected a weights file (.safetensors), got {str(path)!r}, which is not a file; "
            "check the path, or leave --weights out to use those of the package"
        )


def make_work_dir(path: Path, option: str = "--work-dir") -> Path:
    """Create ``path`` if needed and make sure that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(
            f"expected a folder that can be written, got {str(path)!r} "
            f"({os.strerror(error.errno or 0)}); name another with {option}"
        ) from error
    return path


def parse_target(text: str | None, jobs: int | None = None) -> Any:
    """A ``tvm.target.Target`` from a name, a tag or a JSON object.

    ``None`` is this machine's CPU with ``jobs`` cores (``None``: all).  Raises ``TargetError``.
    """
    from tvm.target import Target

    if text is None:
        from ..measure import host_target

        return Target(host_target(jobs))

    try:
        config = json.loads(text) if text.lstrip().startswith("{") else text
        return Target(config)
    except (ValueError, TypeError, RuntimeError, KeyError, AttributeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise TargetError(
            f"expected a TVM target such as {TARGET_EXAMPLES}, got {text!r} ({reason[0]}); "
            "correct --target, or leave it out to use this machine"
        ) from error
