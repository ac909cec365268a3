"""Products of rows whose bytes do not depend on the rows around them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.products import column_means, product


@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_a_row_of_a_product_has_the_same_bytes_wherever_it_stands(n_columns):
    rng = np.random.default_rng(0)
    for _ in range(50):
        A = rng.standard_normal((30, int(rng.integers(2, 20)))).astype(np.float32)
        B = rng.standard_normal((A.shape[1], n_columns)).astype(np.float32)
        order = rng.permutation(30)
        np.testing.assert_array_equal(product(A[order], B), product(A, B)[order])


def test_a_product_with_one_column_is_the_usual_one():
    assert product(np.array([[1, 2], [3, 4]], np.float32), np.array([[10], [1]], np.float32)).tolist() == [[12], [34]]


def test_sparse_matrices_are_multiplied_as_they_are():
    A, B = sp.csr_array(np.array([[1.0, 2.0]])), np.array([[10.0], [1.0]])
    assert product(A, B).tolist() == [[12.0]]
    assert product(A, sp.csr_array(B)).toarray().tolist() == [[12.0]]


def test_the_share_of_rows_that_have_a_tag_is_1_where_all_have_it():
    for n in range(1, 2001):
        ones = np.ones((n, 1), np.float32)
        assert column_means(sp.csr_array(ones)).tolist() == column_means(ones).tolist() == [1.0]
    np.testing.assert_array_equal(column_means(np.array([[1, 0], [1, 2]], np.float32)), [1, 1])
