"""Words as numbers: stable, and magnitude and divisibility both visible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.predictor.encoding import (
    ENCODING_VERSION,
    NUMBER_FEATURES,
    WordTable,
    canonical,
    hash_text,
    number_features,
)

NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False)
)


@given(NUMBERS)
@settings(max_examples=200, deadline=None)
def test_features_have_fixed_length_and_are_finite_and_bounded(number: int | float) -> None:
    value = canonical(number)
    assert not isinstance(value, str)
    features = number_features(value)
    assert features.shape == (NUMBER_FEATURES,)
    assert np.isfinite(features).all()
    assert np.abs(features).max() <= 32


@given(st.integers(0, 5000), st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_different_integers_have_different_features(a: int, b: int) -> None:
    same = bool(np.array_equal(number_features(a), number_features(b)))
    assert same == (a == b)


@given(st.integers(1, 10**6), st.sampled_from([2, 3, 4, 5, 7, 8, 16]))
@settings(max_examples=200, deadline=None)
def test_divisibility_is_a_linear_function_of_the_features(number: int, modulus: int) -> None:
    """The feature that is set for 0 tells, for every integer, whether the modulus divides it."""
    zero, one = number_features(0), number_features(number)
    offset = NUMBER_FEATURES - sum(m for m in (2, 3, 4, 5, 7, 8, 16) if m >= modulus)
    assert zero[offset] > 0
    assert (one[offset] == zero[offset]) == (number % modulus == 0)


def test_magnitude_is_continuous_and_tells_small_fractions_apart() -> None:
    log = 5  # the feature log / 8
    assert number_features(1023)[log] == pytest.approx(10 / 8)
    assert number_features(0.999)[log] == pytest.approx(number_features(1)[log], abs=1e-3)
    assert number_features(1e-6)[log] < number_features(1e-5)[log] < 0
    assert number_features(-7)[log] == number_features(7)[log]
    assert not np.array_equal(number_features(-7), number_features(7))


def test_equal_values_of_different_type_share_one_encoding() -> None:
    assert canonical(4.0) == canonical(4) == 4
    assert isinstance(canonical(4.0), int) and isinstance(canonical(True), int)
    assert canonical(math.inf) == "inf" and canonical(math.nan) == "nan"
    first, second = WordTable(64), WordTable(64)
    first.rows([("a", 1), ("a", 1.0), ("a", True)])
    second.rows([("a", True), ("a", 1.0), ("a", 1)])
    assert len(first) == len(second) == 1
    assert np.array_equal(first.numbers, second.numbers)


def test_field_and_text_are_hashed_apart_and_never_to_the_empty_row() -> None:
    assert hash_text("field", "float32", 2048) != hash_text("text", "float32", 2048)
    assert all(min(hash_text("field", str(i), 7)) >= 1 for i in range(200))
    pairs = {hash_text("field", f"name{i}", 2048) for i in range(1000)}
    assert len(pairs) == 1000  # two buckets per name: no two of a thousand names collide in both


def test_hashes_are_fixed_for_ever() -> None:
    """They are part of what the weights mean: another hash needs another ENCODING_VERSION."""
    assert hash_text("field", "axis", 2048) == (443, 1276)
    assert ENCODING_VERSION == 1


def test_table_keeps_rows_when_it_grows_and_knows_bags() -> None:
    table = WordTable(64)
    rows = table.rows([("n", i) for i in range(1000)])
    assert rows.tolist() == list(range(1000))
    assert np.array_equal(table.numbers[777], number_features(777))
    assert table.rows([("n", 777)]).tolist() == [777]
    bag = table.bag((("n", 3), ("dtype", "int8")))
    assert table.bag((("n", 3), ("dtype", "int8"))) == bag
    assert table.bags[bag].tolist() == [3, 1000]
    assert not table.numbers[1000].any() and table.hashes[1000, 2:].all()
