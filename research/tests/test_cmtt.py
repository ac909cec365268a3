"""The translation table against its formulas, computed slowly and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.generative import cmtt_table
from visterm.core.errors import DataError, UserError
from visterm_research.models.generative.cmtt import Cmtt

forms = pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])


@pytest.fixture(scope="module")
def bags():
    """Small counts of visterms with tags: a visterm and a tag that no image has."""
    rng = np.random.default_rng(4)
    X, Y = rng.poisson(0.7, (20, 8)).astype(float), (rng.random((20, 4)) < 0.4).astype(float)
    X[:, 3], Y[:, 1] = 0, 0
    Y[Y.sum(axis=1) == 0, 2] = 1
    return X, Y, rng.poisson(0.7, (5, 8)).astype(float)


def test_cosines_of_uses_by_hand():
    X, Y = [[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 0], [0, 1]]
    model = Cmtt(rank=4).fit(X, Y)
    np.testing.assert_allclose(
        model.decision_function([[3, 1], [0, 2], [0, 0]]), [[0.75, 0.25], [0, 1], [0, 0]], rtol=1e-6
    )


@forms
@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize("normalize", ["tags", "visterms"])
@pytest.mark.parametrize("rank", [2, 5, 30])
def test_scores_are_those_of_the_table_of_all_cosines(rank, normalize, idf, form, bags):
    X, Y, new = bags
    model = Cmtt(rank=rank, normalize=normalize, idf=idf).fit(form(X), Y)
    table = cmtt_table(X, Y, rank, normalize, idf)
    shares = new / np.maximum(new.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(model.decision_function(form(new)), shares @ table.T, atol=1e-5)


def test_normalised_over_tags_the_scores_are_probabilities_and_as_printed_each_tag_has_its_visterms(bags):
    X, Y, new = bags
    known = new * (np.arange(8) != 3)
    np.testing.assert_allclose(Cmtt(rank=5).fit(X, Y).decision_function(known).sum(axis=1), 1, rtol=1e-5)
    over_visterms = Cmtt(rank=5, normalize="visterms").fit(sp.csr_array(X), Y).tag_rows_.sum(axis=1)
    np.testing.assert_allclose(over_visterms, [1, 0, 1, 1], rtol=1e-5)


def test_fewer_singular_values_let_tags_have_visterms_that_they_were_never_seen_with():
    X = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]] * 2)
    Y = np.array([[1, 0], [1, 0], [0, 1]] * 2)
    X[:3, 0] = 0
    Y[3, 0], Y[3, 1] = 0, 1
    exact, rough = (Cmtt(rank=rank).fit(sp.csr_array(X), Y).tag_rows_[0, 0] for rank in (10, 2))
    assert exact == 0 < rough


def test_image_rows_are_as_short_as_the_visterms_of_sparse_images(bags):
    X, Y, new = bags
    rows = Cmtt(rank=3).fit(sp.csr_array(X), Y).image_rows(sp.csr_array(new))
    assert sp.issparse(rows)
    assert rows.nnz == np.count_nonzero(new)
    assert Cmtt(rank=3).fit(X, Y).image_rows(new).shape == (5, 4)


def test_what_cannot_be_used_is_refused(bags):
    X, Y, _ = bags
    with pytest.raises(UserError, match="rank is 0; expected a whole number of 1 or more"):
        Cmtt(rank=0).fit(X, Y)
    with pytest.raises(UserError, match="normalize is 'words'; expected one of 'tags', 'visterms'"):
        Cmtt(normalize="words").fit(X, Y)
    with pytest.raises(DataError, match="the lowest is -1"):
        Cmtt().fit(-X.clip(0, 1), Y)
