"""Start values of many rows: drawn in parts, the same for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.models.ranking import embedding_ranking
from visterm.models.ranking.wsabie import Wsabie


def start(n_rows, **settings):
    """Return the start values, which stay where there is nothing to rank."""
    one_tag = sp.csr_array(np.ones((n_rows, 1)))
    return Wsabie(dim=20, epochs=1, valid_share=0, row_length=1.0, **settings).fit(None, one_tag).image_map_


@pytest.fixture
def _small_parts(monkeypatch):
    monkeypatch.setattr(embedding_ranking, "START_ROWS", 64)


@pytest.mark.usefixtures("_small_parts")
def test_parts_are_the_same_for_any_number_of_threads_and_not_alike():
    rows = start(1000, n_jobs=1, init_scale=0.3, max_norm=100)
    np.testing.assert_array_equal(start(1000, n_jobs=3, init_scale=0.3, max_norm=100), rows)
    assert rows.std() == pytest.approx(0.3, rel=0.02)
    assert rows.mean() == pytest.approx(0, abs=0.01)
    assert len(np.unique(rows)) > 0.99 * rows.size
    assert not np.array_equal(start(1000, n_jobs=1, init_scale=0.3, max_norm=100, random_state=1), rows)


@pytest.mark.usefixtures("_small_parts")
def test_every_part_is_within_the_norm_limit():
    norms = np.linalg.norm(start(200, init_scale=1.0, max_norm=0.5), axis=1)
    np.testing.assert_allclose(norms, 0.5, rtol=1e-5)
