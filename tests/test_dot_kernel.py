"""The dot product in vector registers: the sum in one fixed order, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from visterm.kernels.dot import add_at, dot, dot_at


def slow_dot(a, b):
    """Add each product to the running sum that it belongs to, one by one, and the sums pair by pair."""
    n = len(a)
    wide_end, vector_end = n - n % 32, n - n % 8
    sums, rest = np.zeros(32, np.float32), np.float32(0)
    for c in range(n):
        product = a[c] * b[c]
        if c < wide_end:
            sums[c % 32] += product
        elif c < vector_end:
            sums[c % 8] += product
        else:
            rest += product
    first, second, third, fourth = sums.reshape(4, 8)
    lanes = (first + second) + (third + fourth)
    pairs = lanes[:4] + lanes[4:]
    twos = pairs[:2] + pairs[2:]
    return twos[0] + twos[1] + rest


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 100, 107, 256])
def test_the_dot_product_is_the_slow_one_to_the_bit(n):
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    assert dot(a, b) == slow_dot(a, b)
    assert dot(a, b) == pytest.approx(float(a.astype(float) @ b), abs=1e-4)


def test_rows_that_start_anywhere_give_the_same_bits():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 100)).astype(np.float32)
    shifted = np.empty(107, np.float32)
    for start in range(8):
        shifted[start : start + 100] = a
        assert dot(shifted[start : start + 100], b) == dot(a, b)


def test_what_is_not_finite_shows():
    ones = np.ones(40, np.float32)
    for value in (np.nan, np.inf):
        a = ones.copy()
        a[33] = value
        assert not np.isfinite(dot(a, ones))


@njit
def rows_multiplied(a, i, b, j):
    """Multiply two rows through `dot_at`, which only compiled loops can call."""
    return dot_at(a, i * a.shape[1], b, j * a.shape[1], a.shape[1])


@njit
def row_added(a, i, b, j, factor):
    """Add a row through `add_at`."""
    add_at(a, i * a.shape[1], b, j * a.shape[1], a.shape[1], factor)


@pytest.mark.parametrize("width", [1, 7, 8, 33, 100, 101])
def test_rows_named_by_their_numbers_are_those_that_are_meant(width):
    rng = np.random.default_rng(width)
    a, b = rng.standard_normal((2, 5, width)).astype(np.float32)
    assert rows_multiplied(a, 3, b, 1) == dot(a[3], b[1])
    expected = a.copy()
    expected[2] += np.float32(0.3) * b[4]
    row_added(a, 2, b, 4, np.float32(0.3))
    assert np.array_equal(a, expected)
