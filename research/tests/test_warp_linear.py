"""The linear WARP: how its draws are made changes nothing that it learns."""

from __future__ import annotations

import pytest
import scipy.sparse as sp

from planted import plant_corpus
from visterm.models.ranking import negatives
from visterm_research.models.ranking.warp_linear import WarpLinear

SETTINGS = {"epochs": 4, "learning_rate": 0.05, "block": 50, "valid_share": 0, "random_state": 0}


@pytest.fixture(scope="module")
def planted():
    corpus = plant_corpus(n_train=120, n_test=1, n_tags=21, n_features=60, random_state=3)
    return sp.csr_array(corpus.X_train), corpus.Y_train


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_marks_and_scores_when_drawn_learn_the_same_bytes(planted, n_jobs, monkeypatch):
    X, Y = planted
    monkeypatch.setattr(negatives, "MARKS_FROM", 2.0)  # more draws than there are tags: never
    plain = WarpLinear(**SETTINGS).fit(X, Y)

    calls = []
    mark = negatives.mark_violators
    monkeypatch.setattr(negatives, "MARKS_FROM", 0.0)
    monkeypatch.setattr(negatives, "MARK_TAGS", 8)
    monkeypatch.setattr(negatives, "mark_violators", lambda *found: calls.append(found[3:5]) or mark(*found))
    model = WarpLinear(**SETTINGS, n_jobs=n_jobs).fit(X, Y)
    assert len(calls) == 3 * -(-Y.nnz // 50) * 3  # epochs from the second on, blocks, ranges of tags
    assert set(calls) == {(0, 8), (8, 16), (16, 21)}
    assert model.tag_rows_.tobytes() == plain.tag_rows_.tobytes()


@pytest.mark.parametrize(("n_features", "marks"), [(60_000, 2**26), (60, 50 * 21 - 1)])
def test_tags_are_scored_when_drawn_where_weights_or_marks_are_too_many(planted, n_features, marks, monkeypatch):
    X, Y = planted
    wide = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
    monkeypatch.setattr(negatives, "MARKS_FROM", 0.0)
    monkeypatch.setattr(negatives, "mark_violators", None)
    model = WarpLinear(**SETTINGS)
    with pytest.raises(TypeError, match="not callable"):  # these take marks
        model.fit(X, Y)
    monkeypatch.setattr(negatives, "MARKS", marks)
    assert model.fit(wide, Y).tag_rows_.shape == (Y.shape[1], n_features + 1)
