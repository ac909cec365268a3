"""The kernels behind kernels of histograms: what rows have in common."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference import overlaps as slow_overlaps
from visterm_research.kernels.overlaps import (
    TILE_FEATURES,
    TILE_LANDMARKS,
    Overlap,
    add_dense_overlaps,
    add_sparse_overlaps,
)


def filled(shape, share, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < share, rng.random(shape), 0).astype(np.float32)


@pytest.mark.parametrize("kind", list(Overlap))
@pytest.mark.parametrize(("n_features", "n_landmarks"), [(1, 1), (TILE_FEATURES + 5, 7), (3, TILE_LANDMARKS + 2)])
def test_overlaps_with_dense_and_sparse_landmarks_equal_those_of_their_slow_twin(kind, n_features, n_landmarks):
    rows, landmarks = sp.csr_array(filled((4, n_features), 0.6)), filled((n_features, n_landmarks), 0.7, seed=1)
    dense, sparse = (np.zeros((4, n_landmarks), np.float32) for _ in range(2))
    ours = rows.indptr, rows.indices, rows.data
    columns = sp.csr_array(landmarks)
    for first, last in ((0, 3), (3, 4)):
        add_dense_overlaps(kind, *ours, landmarks, first, last, dense)
        add_sparse_overlaps(kind, *ours, columns.indptr, columns.indices, columns.data, first, last, sparse)
    np.testing.assert_allclose(dense, slow_overlaps.overlaps(kind, rows.toarray(), landmarks.T), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(sparse, dense)


def test_only_the_rows_requested_are_changed():
    rows, landmarks = sp.csr_array(filled((3, 5), 1.0)), filled((5, 2), 1.0)
    sums = np.zeros((3, 2), np.float32)
    add_dense_overlaps(Overlap.PRODUCT, rows.indptr, rows.indices, rows.data, landmarks, 1, 2, sums)
    assert (sums[1] > 0).all()
    assert not sums[[0, 2]].any()
