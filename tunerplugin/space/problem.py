"""The problem language: what is to be tuned, as an ordered list of (field, value) words."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass

Value = int | float | str
"""A word's value or a knob's value.  Booleans are written as 0 and 1; numbers are finite."""

Word = tuple[str, Value]
"""(field, value)."""


@dataclass(frozen=True)
class Problem:
    """An operator, its shapes and dtype, and the target's limits, as words.

    The order matters to the predictor; equal words make an equal problem with an equal key.
    Raises ``TypeError`` or ``ValueError`` for what is no word.
    """

    words: tuple[Word, ...]

    def __post_init__(self) -> None:
        for word in self.words:
            field, value = word
            if not isinstance(field, str) or not isinstance(value, (int, float, str)):
                raise TypeError(f"expected (str, int|float|str) words, got {word!r}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"expected finite numbers in words, got {word!r}")

    def get(self, field: str, default: Value | None = None) -> Value | None:
        """The value of the first word with that field."""
        return next((value for name, value in self.words if name == field), default)

    @property
    def key(self) -> str:
        """A stable hash (hex, 16 digits), the same in every process."""
        text = json.dumps([(f, _plain(v)) for f, v in self.words], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Value) -> Value:
    """One spelling for equal numbers: 1, 1.0 and True are written 1."""
    if isinstance(value, str):
        return value
    return int(value) if value == int(value) else value
