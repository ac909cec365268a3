"""What is read from files is checked in full before compiled code follows it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.core.checks import checked_csr
from visterm.core.errors import CorruptFileError, DataError


def parts(data=(1.0, 2.0, 3.0), indices=(0, 2, 1), indptr=(0, 2, 3), shape=(2, 3)):
    """The parts of a sound matrix of two rows, or of one with a fault."""
    return np.array(data, np.float32), np.array(indices), np.array(indptr), shape


def test_sound_parts_become_the_matrix_that_they_are():
    np.testing.assert_array_equal(checked_csr(*parts(), "a.npz").todense(), [[1, 0, 2], [0, 3, 0]])
    empty = checked_csr(*parts((), np.array([], np.int32), (0, 0, 0)), "a.npz")
    assert empty.shape == (2, 3)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"indices": (0, 2, 10**8)}, "a.npz, row 2: it has the index 100000000; expected 0 to 2, as there are"),
        ({"indices": (0, -(10**8), 1)}, "a.npz, row 1: it has the index -100000000; expected 0 to 2"),
        ({"indptr": (0, 3, 2)}, "a.npz, row 2: it ends before it begins"),
        ({"indptr": (0, 2, 9)}, "3 values, 3 indices and rows of 9 in all"),
        ({"indptr": (1, 2, 3)}, "'indptr' has 3 numbers from 1, 2, 3 on; expected 3 that begin with 0."),
        ({"indptr": (0, 3)}, "'indptr' has 2 numbers from 0, 3 on; expected 3"),
        ({"indptr": np.array([0, 2**63, 3], np.uint64)}, "row 2: it ends before it begins"),
        ({"indices": (0, 2)}, "3 values, 2 indices"),
        ({"indices": (0.0, 2.0, 1.0)}, "'indices' is float64 of shape (3,); expected one row of whole numbers."),
        ({"indices": (2, 2, 1)}, "a.npz, row 1: it has the index 2 twice"),
        ({"shape": (2, -3)}, "the shape is (2, -3)"),
        ({"shape": (2, 2**40)}, "at most 2,147,483,647 columns"),
        ({"shape": (2, 3, 1)}, "the shape is (2, 3, 1)"),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_the_row(fault, message):
    with pytest.raises(DataError) as refused:
        checked_csr(*parts(**fault), "a.npz")
    assert message in str(refused.value)


def test_the_reader_says_which_error_it_is_and_whether_an_index_may_come_twice():
    with pytest.raises(CorruptFileError):
        checked_csr(*parts(indices=(2, 2, 1)), "weights", error=CorruptFileError)
    added = checked_csr(*parts(indices=(2, 2, 1)), "a.npz", unique=False)
    np.testing.assert_array_equal(added.todense(), [[0, 0, 3], [0, 3, 0]])


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_any_matrix_is_taken_as_it_is_whatever_the_order_within_its_rows(seed):
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((7, 5), density=0.4, format="csr", rng=rng, dtype=np.float32)
    reordered = [rng.permutation(np.arange(*matrix.indptr[row : row + 2])) for row in range(7)]
    order = np.concatenate(reordered).astype(np.int64)
    taken = checked_csr(matrix.data[order], matrix.indices[order], matrix.indptr, matrix.shape, "a.npz")
    np.testing.assert_array_equal(taken.todense(), matrix.todense())
