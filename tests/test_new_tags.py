"""Rows of new tags: the least squares that they solve, dense, sparse and without the square matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.models.ranking import training
from visterm.models.ranking.training import PENALTY, POSITIVE_WEIGHT, fit_new_tags


def drawn():
    rng = np.random.default_rng(3)
    U = np.maximum(rng.normal(size=(60, 6)), 0).astype(np.float32)
    positives = sp.csr_array((rng.random((60, 4)) < [0.3, 0.1, 1.0, 0.0]).astype(np.float32))
    return U, rng.normal(size=(5, 6)).astype(np.float32), positives


def test_rows_are_the_weighted_least_squares_that_a_loop_solves():
    U, V, positives = drawn()
    mean, rows = V.mean(axis=0, dtype=float), fit_new_tags(U, V, positives)
    penalty = PENALTY * np.square(U.astype(float)).sum() / 6
    for tag, has in enumerate(positives.toarray().T > 0):
        weights = np.where(has, POSITIVE_WEIGHT, 1.0)
        gains = np.where(has, (U @ V.T).max(axis=1) - U @ mean, 0.0)
        equations = np.vstack([U * np.sqrt(weights)[:, None], np.sqrt(penalty) * np.eye(6)])
        solution = np.linalg.lstsq(equations, np.append(gains * np.sqrt(weights), np.zeros(6)))[0]
        np.testing.assert_allclose(rows[tag], mean + solution, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows[3], mean, rtol=1e-6)  # no image has it


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_wide_rows_have_the_same_solution(form, monkeypatch):
    U, V, positives = drawn()
    direct = fit_new_tags(form(U), V, positives)
    monkeypatch.setattr(training, "DIRECT_WIDTH", 5)
    np.testing.assert_allclose(fit_new_tags(form(U), V, positives), direct, rtol=1e-3, atol=1e-4)


def test_a_new_tag_does_not_push_the_old_ones_off_images_that_lack_it():
    """Images of three groups have the tags of their group, and the new tag belongs to a sixth of one group."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 300)
    U = (np.eye(3)[groups] + rng.normal(0, 0.1, (300, 3))).astype(np.float32)
    has = (groups == 0) & (rng.random(300) < 1 / 6)
    V = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    row = fit_new_tags(U, V, sp.csr_array(has[:, None].astype(np.float32)))[0]
    scores = U @ np.vstack([V, row]).T
    is_first = scores[:, 6] >= scores[:, :6].max(axis=1)
    assert not is_first[groups > 0].any()
    assert (scores[groups == 0, 6] > scores[groups == 0][:, 2:6].max(axis=1)).mean() > 0.95
