"""The argument parser: argparse whose errors read like all our errors."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..errors import InputError


class Parser(argparse.ArgumentParser):
    """Raises ``InputError`` (expected, got, what to do) where argparse prints usage and exits."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        missing = message.partition("the following arguments are required: ")[2]
        if missing:
            message = f"expected {missing}, got nothing"
        raise InputError(f"{self.prog}: {message}; see: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, wrong_choice(str(value), known))

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Like ``parse_args``; what nobody knows is named beside what the verb does know."""
        args, unknown = self.parse_known_args(argv)
        if unknown:
            verb: Parser = getattr(args, "parser", self)
            first = unknown[0]
            if first.startswith("-"):
                verb.error(wrong_choice(first.partition("=")[0], verb.option_names()))
            verb.error(f"expected no further argument, got {first!r}")
        return args

    def option_names(self) -> list[str]:
        """The long options of this parser, sorted."""
        names = (name for action in self._actions for name in action.option_strings)
        return sorted(name for name in names if name.startswith("--"))


def wrong_choice(got: str, known: Iterable[str]) -> str:
    """One sentence: what was expected, what was got, and the nearest known name."""
    known = list(known)
    near = difflib.get_close_matches(got, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"expected one of {', '.join(known)}, got {got!r}{hint}"
