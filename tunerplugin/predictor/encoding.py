"""Words as numbers: how both languages enter the predictor (numpy only).

A word is (field, value).  Names and string values are hashed into a fixed number of buckets, two
per string, so that there is no vocabulary: a knob or extent that was never seen still has an
encoding.  Numbers become features that show magnitude *and* divisibility, because divisibility
decides which tilings exist.

Whoever changes what a word is encoded to must raise ``ENCODING_VERSION``: weights trained on
another encoding are refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..space import Problem, Value, Word

ENCODING_VERSION = 1

VALUE_FIELD = "\x00value"
"""The field under which a knob's value is encoded; no problem or knob word starts with NUL."""

_PRIME_CAPS = ((2, 10), (3, 4), (5, 3), (7, 2))
_MODULI = (2, 3, 4, 5, 7, 8, 16)
_POWER_STEPS = 6  # thermometer of the exponent of two: at least 2, 4, .., 64
_FREQUENCIES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # turns per doubling
_SMALL = 33  # the integers 0..32 each have a feature of their own
_MAX_LOG2 = 64.0

# Features that tell neighbours apart are scaled down, so that a model with few measurements
# generalises over magnitude first.
_WAVE_SCALE, _SMALL_SCALE, _RESIDUE_SCALE = 0.5, 0.3, 0.2

NUMBER_FEATURES = (
    7 + len(_PRIME_CAPS) + _POWER_STEPS + 2 * len(_FREQUENCIES) + _SMALL + sum(_MODULI)
)
"""Length of the feature vector of a number."""

HASHES = 2
"""Buckets per string."""

FloatVector = NDArray[np.float32]
IntArray = NDArray[np.int64]


@lru_cache(maxsize=1 << 16)
def hash_text(namespace: str, text: str, buckets: int) -> tuple[int, int]:
    """Two buckets in 1..buckets-1 for a string, the same in every process (0 means "no string")."""
    data = f"{namespace}\x00{text}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    return 1 + first % (buckets - 1), 1 + second % (buckets - 1)


def canonical(value: Value) -> Value:
    """One spelling per value: whole floats and booleans as int, non-finite floats as text.

    1, 1.0 and True are equal as dictionary keys, so they must be encoded alike or a cache would
    make the encoding depend on which came first.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)
        return int(value) if value.is_integer() else value
    return int(value)


def _log2_magnitude(size: int | float) -> float:
    """log2(1 + size) from 1 up and log2(size) + 1 below: continuous, and tells 1e-5 from 1e-6."""
    if size == 0:
        return 0.0
    log = math.log2(size + 1) if size >= 1 else math.log2(size) + 1.0
    return max(-_MAX_LOG2, min(_MAX_LOG2, log))


@lru_cache(maxsize=1 << 16)
def number_features(number: int | float) -> FloatVector:
    """Features of a finite number, shape (NUMBER_FEATURES,), read-only; expects ``canonical``."""
    size = abs(number)
    log = _log2_magnitude(size)
    whole = isinstance(number, int)
    integer = int(size) if whole else 0
    power = whole and integer > 0 and integer & (integer - 1) == 0
    head = [
        1.0,
        float(whole),
        float(number == 0),
        float(number < 0),
        float(power),
        log / 8,
        log * log / 128,
    ]
    exponents = [_exponent(integer, prime, cap) for prime, cap in _PRIME_CAPS]
    head += [e / cap for e, (_, cap) in zip(exponents, _PRIME_CAPS, strict=True)]
    head += [float(exponents[0] > i) for i in range(_POWER_STEPS)]
    for frequency in _FREQUENCIES:
        angle = 2 * math.pi * frequency * log
        head += [_WAVE_SCALE * math.sin(angle), _WAVE_SCALE * math.cos(angle)]
    features = np.zeros(NUMBER_FEATURES, dtype=np.float32)
    features[: len(head)] = head
    offset = len(head)
    if whole:
        if 0 <= number < _SMALL:
            features[offset + integer] = _SMALL_SCALE
        offset += _SMALL
        for modulus in _MODULI:
            features[offset + integer % modulus] = _RESIDUE_SCALE
            offset += modulus
    features.setflags(write=False)
    return features


def _exponent(integer: int, prime: int, cap: int) -> int:
    """How often ``prime`` divides ``integer`` (at most ``cap``; 0 for 0)."""
    count = 0
    while integer > 0 and count < cap and integer % prime == 0:
        integer //= prime
        count += 1
    return count


class WordTable:
    """Distinct words and bags of words, each encoded once and known by a row number.

    ``hashes`` has shape (rows, 4): two buckets of the field, two of a string value (0 for a
    number); ``numbers`` has shape (rows, NUMBER_FEATURES), all 0 for a string value.  A *bag* is a
    tuple of words (a knob's words, a candidate's description).
    """

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self._rows: dict[Word, int] = {}
        self._bags: dict[tuple[Word, ...], int] = {}
        self.bags: list[IntArray] = []
        self._hashes = np.zeros((256, 2 * HASHES), dtype=np.int64)
        self._numbers = np.zeros((256, NUMBER_FEATURES), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def hashes(self) -> IntArray:
        """Shape (rows, 4)."""
        return self._hashes[: len(self._rows)]

    @property
    def numbers(self) -> FloatVector:
        """Shape (rows, NUMBER_FEATURES)."""
        return self._numbers[: len(self._rows)]

    def row(self, word: Word) -> int:
        """The row of a word, encoding it when it is new."""
        found = self._rows.get(word)
        return found if found is not None else self._add(word)

    def rows(self, words: Iterable[Word]) -> IntArray:
        """The rows of several words."""
        return np.fromiter((self.row(word) for word in words), dtype=np.int64)

    def problem_rows(self, problem: Problem) -> IntArray:
        """The rows of a problem's words; a problem without words gets an empty one."""
        return self.rows(problem.words or (("", 0),))

    def value_rows(self, values: Sequence[Value]) -> IntArray:
        """The rows of knob values."""
        return np.fromiter((self.row((VALUE_FIELD, v)) for v in values), np.int64, len(values))

    def bag(self, words: tuple[Word, ...]) -> int:
        """The number of a bag; its rows are ``bags[number]``."""
        found = self._bags.get(words)
        if found is None:
            found = self._bags[words] = len(self.bags)
            self.bags.append(self.rows(words))
        return found

    def _add(self, word: Word) -> int:
        field, value = word[0], canonical(word[1])
        row = len(self._rows)
        if row == len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)])
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
        self._hashes[row, :HASHES] = hash_text("field", field, self.buckets)
        if isinstance(value, str):
            self._hashes[row, HASHES:] = hash_text("text", value, self.buckets)
        else:
            self._numbers[row] = number_features(value)
        self._rows[word] = row
        return row
