"""Ranks by counting are the ranks by sorting."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import metrics as reference
from visterm.kernels.topk import count_irrelevant_above, rank_in_rows


def drawn(seed, n, m, levels, dtype):
    """Scores of few levels, so that many are equal, and a pattern of what is relevant."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-levels, levels + 1, size=(n, m)).astype(dtype)
    return scores, rng.random((n, m)) < rng.random()


cases = given(
    st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 9), st.integers(0, 6), st.sampled_from(["f4", "f8"])
)


@cases
@settings(deadline=None, max_examples=60)
def test_ranks_and_mid_ranks_in_rows_are_those_of_a_sort(seed, n, m, levels, dtype):
    scores, relevant = drawn(seed, n, m, levels, dtype)
    pattern = sp.csr_array(relevant)
    ranks, mid_ranks = np.zeros(pattern.nnz, np.int64), np.zeros(pattern.nnz)
    rank_in_rows(scores, pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64), ranks, mid_ranks)
    expected, expected_mid = reference.ranks_in_rows(scores, relevant)
    np.testing.assert_array_equal(ranks, expected)
    np.testing.assert_array_equal(mid_ranks, expected_mid)


@cases
@settings(deadline=None, max_examples=60)
def test_counts_between_relevant_rows_are_those_of_a_sort_for_any_split_into_blocks(seed, n, m, levels, dtype):
    scores, relevant = drawn(seed, n, m, levels, dtype)
    left_out = np.random.default_rng(seed + 1).random((n, m)) < 0.2
    relevant &= ~left_out
    scores[left_out] = -np.inf
    tags, images = np.nonzero(relevant.T)
    values = scores[images, tags].astype(np.float64)
    order = np.lexsort((images, -values, tags))
    indptr = np.concatenate(([0], np.cumsum(relevant.sum(axis=0)))).astype(np.int64)
    n_above = np.zeros(tags.size, np.int64)
    cut = seed % (n + 1)
    for start, stop in ((cut, n), (0, cut)):
        count_irrelevant_above(scores[start:stop], start, indptr, values[order], images[order], n_above)
    np.testing.assert_array_equal(n_above, reference.irrelevant_above(scores, relevant))


def test_a_relevant_column_outside_the_scores_is_refused_and_not_read():
    with pytest.raises(IndexError, match="outside the scores"):
        rank_in_rows(np.zeros((1, 3), "f4"), np.array([0, 1]), np.array([3]), np.zeros(1, np.int64), np.zeros(1))
