"""The linear WARP: how its draws are made changes nothing that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from visterm.kernels.rows import sparse_rows
from visterm.kernels.warp import Draws, PairBatch, Pool, PositiveTags, draw_violators
from visterm.models.ranking.ranker import DOUBLING_EPOCHS
from visterm_research.kernels.violator_marks import draw_marked, mark_violators, score_own_tags
from visterm_research.models.ranking import warp_linear
from visterm_research.models.ranking.warp_linear import WarpLinear

SETTINGS = {"epochs": 4, "learning_rate": 0.05, "block": 50, "valid_share": 0, "random_state": 0}


@pytest.fixture(scope="module")
def planted():
    corpus = plant_corpus(n_train=120, n_test=1, n_tags=21, n_features=60, random_state=3)
    return sp.csr_array(corpus.X_train), corpus.Y_train


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_marks_and_scores_when_drawn_learn_the_same_bytes(planted, n_jobs, monkeypatch):
    X, Y = planted
    monkeypatch.setattr(warp_linear, "MARKS_FROM", 2.0)  # more draws than there are tags: never
    plain = WarpLinear(**SETTINGS).fit(X, Y)

    calls = []
    mark = warp_linear.mark_violators
    monkeypatch.setattr(warp_linear, "MARKS_FROM", 0.0)
    monkeypatch.setattr(warp_linear, "MARK_TAGS", 8)
    monkeypatch.setattr(warp_linear, "mark_violators", lambda *found: calls.append(found[3:5]) or mark(*found))
    model = WarpLinear(**SETTINGS, n_jobs=n_jobs).fit(X, Y)
    assert len(calls) == 3 * -(-Y.nnz // 50) * 3  # epochs from the second on, blocks, ranges of tags
    assert set(calls) == {(0, 8), (8, 16), (16, 21)}
    assert model.tag_rows_.tobytes() == plain.tag_rows_.tobytes()


@pytest.mark.parametrize(("n_features", "marks"), [(60_000, 2**26), (60, 50 * 21 - 1)])
def test_tags_are_scored_when_drawn_where_weights_or_marks_are_too_many(planted, n_features, marks, monkeypatch):
    X, Y = planted
    wide = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
    monkeypatch.setattr(warp_linear, "MARKS_FROM", 0.0)
    monkeypatch.setattr(warp_linear, "mark_violators", None)
    model = WarpLinear(**SETTINGS)
    with pytest.raises(TypeError, match="not callable"):  # these take marks
        model.fit(X, Y)
    monkeypatch.setattr(warp_linear, "MARKS", marks)
    assert model.fit(wide, Y).tag_rows_.shape == (Y.shape[1], n_features + 1)


def test_vectors_become_longer_with_the_open_schedule_and_a_further_pass_keeps_them_so():
    corpus = plant_corpus(n_train=600, n_test=100, n_tags=12, random_state=3)
    settings = {"schedule": "open", "max_norm": 0.3, "average": 1, "epochs": 20, "patience": 20, "learning_rate": 0.05}
    model = WarpLinear(**settings).fit(corpus.X_train, corpus.Y_train, valid=(corpus.X_test, corpus.Y_test))
    before = np.linalg.norm(model._resume()[0], axis=1).max()
    assert 0.31 < before <= 0.3 * (1 + (20 / DOUBLING_EPOCHS) ** 2) * 1.0001
    model.partial_fit(corpus.X_train[:50], corpus.Y_train[:50])
    assert np.linalg.norm(model._resume()[0], axis=1).max() == pytest.approx(before, rel=0.02)


@pytest.fixture
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


@pytest.mark.usefixtures("_wrapping_integers")
@pytest.mark.parametrize("margin", [1.0, 0.0])
@pytest.mark.parametrize("max_trials", [1, 3, 40])
def test_draws_by_marks_are_those_that_score_each_tag_when_it_is_drawn(max_trials, margin):
    rng = np.random.default_rng(2)
    n_tags = 37  # more than are marked together, and no multiple of that
    X = sp.random_array((30, 50), density=0.2, rng=rng, dtype=np.float32, format="csr")
    W = rng.normal(0, 1, (n_tags, 50)).astype(np.float32)
    own = [sorted(rng.permutation(n_tags)[: n_tags if i == 7 else 1 + i % 4].tolist()) for i in range(30)]
    W[1::2] = W[:-1:2]  # equal scores, and no margin: the order of the sums decides
    W[own[0][0]] = 9.0  # far ahead for image 0: none violates, and all draws are in vain
    X = sp.csr_array(sp.vstack([X, rng.random((30, 50), np.float32) + 1]))  # rows without gaps have another order
    own = own * 2
    images, tags = np.repeat(np.arange(60), [len(some) for some in own]), np.concatenate(own).astype(np.int64)
    found = np.empty((2, len(tags)), np.int64), np.empty((2, len(tags)), np.float32)
    pairs = PairBatch(np.arange(len(tags)), images, tags, np.arange(len(tags)), *found[0], *found[1])
    positives = PositiveTags(np.cumsum([0, *map(len, own)]), tags.astype(np.int32))
    drawn, marked = (
        tuple(
            pairs._replace(
                row_ids=pairs.images,
                **{name: getattr(pairs, name).copy() for name in ("violators", "trials", "gaps", "gains")},
            )
        )
        for _ in "ab"
    )
    rows, draws, n = (
        sparse_rows(X.data, X.indices, X.indptr),
        tuple(Draws(margin, max_trials, 5, 3)),
        len(pairs.row_ids),
    )
    pool = Pool(np.empty(0, np.int64), np.empty((n, 0), np.float32))
    draw_violators(drawn, 0, n, tuple(positives), rows, W, tuple(pool), draws)

    marks = np.ones((n, n_tags), bool)
    score_own_tags(marked, rows, W)
    for first, last in [(0, 5), (5, 5), (5, n_tags)]:
        mark_violators(marked, margin, rows, first, last, W, marks)
    for first, last in [(0, 9), (9, n)]:
        draw_marked(marked, first, last, tuple(positives), rows, W, marks, draws)

    drawn, marked = PairBatch(*drawn), PairBatch(*marked)
    np.testing.assert_array_equal(marked.violators, drawn.violators)
    np.testing.assert_array_equal(marked.trials, drawn.trials)
    found = drawn.violators >= 0
    assert 0 < found.sum() < n
    np.testing.assert_array_equal(marked.gaps[found], drawn.gaps[found])
