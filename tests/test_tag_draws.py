"""Drawn tags: a fixed number of an image's own, and a fixed number of the background's, each as often as it should."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm.models.deep.sampled_tagger import SampledTagger
from visterm.models.deep.tag_draws import TagDraws

# Image 0 has two tags, 1 has four, 2 has none, 3 has one.
Y = sp.csr_array(np.array([[1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]], np.float32))
IMAGES = np.array([0, 1, 2, 3])


def draws(given=Y, *, positives=3, negatives=4, power=1.0, background="exact", subset_size=50):
    return TagDraws(
        given, positives=positives, negatives=negatives, power=power, background=background, subset_size=subset_size
    )


def many(source, images=IMAGES, n=2000):
    rng = np.random.default_rng(0)
    source.start_epoch(rng)
    drawn = [source.draw(images, rng) for _ in range(n)]
    return [np.stack(part) for part in zip(*drawn, strict=True)]


def test_positives_are_tags_of_the_image_without_replacement_where_there_are_enough():
    positives, has, _, _ = many(draws())
    assert has[0].tolist() == [[True] * 3, [True] * 3, [False] * 3, [True] * 3]
    assert set(np.unique(positives[:, 0])) == {0, 1}
    assert set(np.unique(positives[:, 3])) == {0}
    of_four = positives[:, 1]
    assert all(len(set(row)) == 3 for row in of_four.tolist())
    shares = np.bincount(of_four.ravel(), minlength=6) / of_four.size
    np.testing.assert_allclose(shares, [0.25, 0, 0.25, 0.25, 0.25, 0], atol=0.02)


@pytest.mark.parametrize(("power", "expected"), [(1.0, [3, 1, 1, 1, 1]), (0.0, [1] * 5), (2.0, [9, 1, 1, 1, 1])])
def test_negatives_follow_the_counts_to_a_power_and_tags_that_nobody_gave_are_never_drawn(power, expected):
    _, _, negatives, _ = many(draws(power=power), images=np.array([2]))
    shares = np.bincount(negatives.ravel(), minlength=6) / negatives.size
    np.testing.assert_allclose(shares, np.array([*expected, 0]) / np.sum(expected), atol=0.02)


@pytest.mark.parametrize("more_tags", [0, 200], ids=["few tags", "many tags"])
def test_a_negative_that_the_image_has_does_not_count(more_tags):
    given = sp.csr_array(sp.hstack([Y, sp.csr_array((Y.shape[0], more_tags), dtype=Y.dtype)]))
    _, _, negatives, counts = many(draws(given))
    own = Y.toarray() > 0
    for image in IMAGES:
        np.testing.assert_array_equal(counts[:, image], ~own[image][negatives[:, image]])


def test_the_subset_is_drawn_anew_each_epoch_and_negatives_come_from_it_alone():
    wide = sp.csr_array(np.eye(100, dtype=np.float32))
    source, rng = draws(wide, background="subset", subset_size=5), np.random.default_rng(0)
    seen = []
    for _ in range(2):
        source.start_epoch(rng)
        seen.append({tag for _ in range(50) for tag in source.draw(np.array([0, 1]), rng).negatives.ravel().tolist()})
    assert all(1 < len(tags) <= 5 for tags in seen)
    assert seen[0] != seen[1]


def test_adjacent_negatives_are_tags_of_the_next_image_of_the_batch():
    _, _, negatives, counts = many(draws(background="adjacent", negatives=3))
    assert set(negatives[:, 0][counts[:, 0]].tolist()) == {2, 3, 4}  # of image 1, but for tag 0 that image 0 has
    assert not counts[:, 1].any()  # image 2 has no tags
    assert set(negatives[:, 2].ravel().tolist()) == {0}  # of image 3
    assert set(negatives[:, 3][counts[:, 3]].tolist()) == {1}  # of image 0, which is next to the last


def test_half_of_the_negatives_are_tags_that_the_image_explicitly_has_not():
    denied = sp.csr_array(np.array([[1, -1, 0], [1, 0, 0], [0, 0, 1]], np.float32))
    _, _, negatives, counts = many(draws(denied), images=np.array([0, 1, 2]))
    assert (negatives[:, 0, :2] == 1).all()
    assert counts[:, 0, :2].all()
    assert set(negatives[:, 1][counts[:, 1]].tolist()) == {1, 2}


def test_equal_streams_draw_equal_tags_and_one_batch_depends_on_its_own_stream_alone():
    first = draws().draw(IMAGES, np.random.default_rng([1, 2]))
    source = draws()
    source.draw(IMAGES, np.random.default_rng(5))
    for a, b in zip(first, source.draw(IMAGES, np.random.default_rng([1, 2])), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("params", [{"background": "next"}, {"positives": 0}, {"power": -1}, {"alpha": -0.1}])
def test_settings_of_draws_that_cannot_be_are_refused(params):
    [(name, value)] = params.items()
    with refused(name, value=value):
        SampledTagger(**params).check_settings()
