"""Data sets for comparisons: large dictionaries drawn from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.errors import UserError
from visterm.data.corpus import Corpus
from visterm_research.comparison.image_problems import holdout
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs, draw_visterms


def test_drawn_pairs_follow_zipfs_law() -> None:
    dictionary = draw_dictionary(1000, random_state=0)
    counts = np.asarray(draw_pairs(40_000, dictionary, random_state=1).sum(axis=0)).ravel()
    tenth, hundredth = counts[5:15].mean(), counts[80:125].mean()
    assert 5 < tenth / hundredth < 11  # below 10: a tag that an image draws twice counts once
    assert counts.max() == counts[:3].max()


def test_tags_of_a_drawn_image_are_mostly_of_one_field() -> None:
    dictionary = draw_dictionary(600, random_state=0)
    Y = draw_pairs(2000, dictionary, tags_an_image=4, random_state=1)
    field = dictionary.field[dictionary.family[Y.indices]]
    rows = np.repeat(np.arange(2000), np.diff(Y.indptr))
    fields = sp.csr_array((np.ones(field.size), (rows, field)), shape=(2000, field.max() + 1)).toarray()
    several = np.diff(Y.indptr) >= 3
    assert (fields.max(axis=1) / fields.sum(axis=1))[several].mean() > 0.8
    assert np.diff(Y.indptr).min() >= 1


def test_without_noise_all_tags_of_a_drawn_image_are_of_one_field() -> None:
    dictionary = draw_dictionary(600, random_state=0)
    for noise, alone in ((0.0, True), (0.5, False)):
        Y = draw_pairs(500, dictionary, tags_an_image=4, noise=noise, random_state=1)
        field = dictionary.field[dictionary.family[Y.indices]]
        first = np.repeat(field[Y.indptr[:-1]], np.diff(Y.indptr))
        assert (field == first).all() == alone


def test_drawn_dictionaries_are_the_same_from_the_same_seed_only() -> None:
    first, again, other = (draw_visterms(50, 30, n_features=80, random_state=seed) for seed in (1, 1, 2))
    assert (first.X != again.X).nnz == 0
    assert (first.Y != again.Y).nnz == 0
    assert (first.X != other.X).nnz > 0


def test_drawn_visterms_are_unit_rows_that_tell_of_tags() -> None:
    drawn = draw_visterms(1500, 24, n_features=300, random_state=0)
    np.testing.assert_allclose(drawn.X.power(2).sum(axis=1), 1, rtol=1e-5)
    cosines = (drawn.X[:750] @ drawn.X[750:].T).toarray()
    nearest = cosines.argmax(axis=1) + 750
    shared = drawn.Y[:750].multiply(drawn.Y[nearest]).sum(axis=1) > 0
    chance = drawn.Y[:750].multiply(drawn.Y[750:]).sum(axis=1) > 0
    assert shared.mean() > chance.mean() + 0.3


@pytest.mark.parametrize("settings", [{"n_images": 0}, {"tags_an_image": 0.5}])
def test_sizes_that_cannot_be_drawn_are_refused(settings: dict[str, float]) -> None:
    dictionary = draw_dictionary(20)
    with pytest.raises(UserError, match=next(iter(settings))):
        draw_pairs(**{"n_images": 10, "dictionary": dictionary, **settings})


@pytest.fixture
def corpus() -> Corpus:
    names = [f"{i}.jpg" for i in range(10)]
    return Corpus.of([Path(name) for name in names], names, [["sea"]] * 10)


def test_a_holdout_is_random_but_the_same_for_a_seed(corpus):
    train, held = holdout(corpus, 0.3, 1)
    assert len(train) == 7
    assert len(held) == 3
    assert sorted(train.names + held.names) == corpus.names
    assert train.names == sorted(train.names)
    assert holdout(corpus, 0.3, 1)[1].names == held.names
    assert len({tuple(holdout(corpus, 0.3, seed)[1].names) for seed in range(20)}) > 10


@pytest.mark.parametrize(("n", "share", "held"), [(10, 0, 0), (10, 0.01, 1), (1, 0.5, 0), (0, 0.5, 0), (2, 0.9, 1)])
def test_a_holdout_leaves_something_on_both_sides_where_it_can(corpus, n, share, held):
    first, second = holdout(corpus.subset(range(n)), share, 0)
    assert (len(first), len(second)) == (n - held, held)
