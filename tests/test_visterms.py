"""The `visterms` encoder: what it learns, what a row is, and images of any shape."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from refusals import refused
from tiny_scenes import scene
from visterm.core.errors import DataError
from visterm.core.threads import one_blas_thread
from visterm.encoders.blocks import assign_words, learn_codebook, pixel_codes
from visterm.encoders.visterms import Visterms
from visterm.kernels.nearest import prepare_codebook


@pytest.fixture(scope="module")
def scenes():
    return [scene(("stripes", "dots")[i % 2], i) for i in range(24)]


@pytest.fixture(scope="module")
def fitted(scenes):
    return Visterms(colours=12, codebook=150, sample_blocks=3000).fit(scenes)


def test_rows_are_sparse_positive_and_of_length_one(fitted, scenes):
    rows = fitted.transform(scenes)
    assert rows.shape == (24, len(fitted.codebook_))
    assert rows.dtype == np.float32
    assert rows.data.min() > 0
    np.testing.assert_allclose(np.square(rows.toarray()).sum(axis=1), 1, atol=1e-5)


def test_new_images_lie_nearest_to_those_of_their_kind(fitted, scenes):
    new = [scene(("stripes", "dots")[i % 2], 100 + i) for i in range(10)]
    cosines = (fitted.transform(new) @ fitted.transform(scenes).T).toarray()
    nearest = np.argsort(-cosines, axis=1)[:, :5] % 2
    assert (np.round(nearest.mean(axis=1)) == np.arange(10) % 2).mean() >= 0.9


def test_each_scale_learns_words_of_its_own_from_the_blocks_that_there_are(fitted):
    # 150 words would be 50 a scale, but the largest has 5 × 3 blocks in each of 24 images, and a word needs ten.
    assert fitted.scale_words_.tolist() == [50, 50, 36]
    assert fitted.codebook_.shape == (136, 59 + 12)
    assert fitted.spread_.shape == (3,)


def test_scales_can_share_one_codebook_that_is_learned_from_the_blocks_of_all(scenes):
    settings = {"colours": 12, "codebook": 30, "neighbours": 1, "sample_blocks": 10**6}
    shared = Visterms(shared_words=True, **settings).fit(scenes)
    assert shared.scale_words_.tolist() == [30]
    assert shared.codebook_.shape == (30, 59 + 12)
    assert shared.spread_.shape == (1,)
    # all blocks are drawn: the words are what k-means makes of the blocks of all scales, and each has some
    cutter, points = shared._cutter(), []
    for image in scenes:
        codes = pixel_codes(image, shared._table())
        points += [cutter.points(codes, scale) for scale in range(3)]
    words, scores = assign_words(np.concatenate(points), prepare_codebook(shared.codebook_))
    assert set(words.tolist()) == set(range(30))
    squares = np.square(np.concatenate(points)).sum(axis=1) - 2 * scores
    np.testing.assert_allclose(shared.spread_, np.maximum(squares, 0).mean(), rtol=1e-4)
    apart = Visterms(**settings).fit(scenes)
    assert apart.scale_words_.tolist() == [10, 10, 10]
    assert apart.fingerprint != shared.fingerprint


def test_blocks_of_all_scales_count_for_the_words_that_are_shared():
    picture = np.zeros((48, 48, 3), np.uint8)
    picture[:, 24:] = 255
    encoder = made_by_hand([1, 1, 1], block=0.5, shared_words=True)
    encoder.set_params(scales=(1.0, 2.0))
    # 3 × 3 blocks of half the side: black, half of each, white in each row; and one of the whole picture, half of each.
    row = encoder.transform([picture]).toarray()[0]
    np.testing.assert_allclose(row, np.array([3, 4, 3]) / np.sqrt(9 + 16 + 9), rtol=1e-6)


def test_words_that_are_not_those_of_the_codebooks_are_refused(scenes):
    encoder = made_by_hand([1, 1, 1], block=0.5)
    encoder.set_params(scales=(1.0, 2.0))
    with pytest.raises(
        DataError, match=re.escape("scale_words_ is [3]; expected the words of 2 codebooks, 3 in total")
    ):
        encoder._check_learned()


def test_idf_is_minus_the_log_of_the_share_of_training_images_with_the_word(scenes):
    encoder = Visterms(colours=8, codebook=20, scales=(1.0,), neighbours=1, root_terms=False).fit(scenes)
    share = (encoder.transform(scenes).toarray() > 0).mean(axis=0)
    weighing = encoder.idf_ > 0
    assert weighing.any()
    np.testing.assert_allclose(encoder.idf_[weighing], -np.log(share[weighing]), rtol=1e-5)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_any_number_of_threads_learns_and_encodes_the_same_bytes(fitted, scenes, n_jobs):
    other = Visterms(colours=12, codebook=150, sample_blocks=3000, n_jobs=n_jobs, batch_size=5).fit(scenes)
    for name in ("colours_", "codebook_", "idf_", "spread_"):
        assert getattr(other, name).dtype == np.float32
        np.testing.assert_array_equal(getattr(other, name), getattr(fitted, name))
    rows, expected = other.transform(scenes), fitted.transform(scenes)
    np.testing.assert_array_equal(rows.data, expected.data)
    np.testing.assert_array_equal(rows.indices, expected.indices)
    assert other.fingerprint == fitted.fingerprint


def test_an_image_has_the_same_bytes_alone_as_in_company(fitted, scenes):
    rows = fitted.transform(scenes)
    for i in (0, 5, 23):
        np.testing.assert_array_equal(fitted.transform([scenes[i]]).toarray()[0], rows[[i]].toarray()[0])


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (3, 2), (900, 4), (5, 5), (1200, 1600)])
def test_images_of_any_shape_get_a_row(fitted, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    row = fitted.transform([pixels])
    assert row.shape == (1, len(fitted.codebook_))
    assert np.isfinite(row.data).all()


def test_a_single_image_can_be_learned_from_though_no_word_of_it_tells_anything(scenes):
    encoder = Visterms(colours=4, codebook=10).fit(scenes[:1])
    rows = encoder.transform(scenes[:2])  # every word is in all training images: idf 0
    assert rows.shape[0] == 2
    assert rows.nnz == 0


def test_an_image_of_one_colour_can_be_learned_from():
    encoder = Visterms().fit([np.full((20, 20, 3), 77, np.uint8)])
    assert len(encoder.colours_) == 1
    assert np.isfinite(encoder.codebook_).all()


def made_by_hand(idf, **settings):
    """Make an encoder of two colours and three flat words: black, half of each, white."""
    encoder = Visterms(scales=(1.0,), colour_space="rgb", root=False, neighbours=1, root_terms=False, **settings)
    encoder.set_params(texture_weight=2.0)
    encoder.colours_ = np.array([[0, 0, 0], [255, 255, 255]], np.float32)
    encoder.codebook_ = np.zeros((3, 61), np.float32)
    encoder.codebook_[:, 57] = 2  # flat, at the texture weight of 2
    encoder.codebook_[:, 59:] = [[1, 0], [0.5, 0.5], [0, 1]]
    encoder.scale_words_ = np.array([3])
    encoder.spread_ = np.array([0.1], np.float32)
    encoder.idf_ = np.array(idf, np.float32)
    encoder.fitted_ = True
    return encoder


def test_a_row_by_hand():
    encoder = made_by_hand([1, 2, 1], block=0.5)
    picture = np.zeros((16, 48, 3), np.uint8)
    picture[:, 24:] = 255
    # Two cells of 12 pixels a block: black, half of each, white.
    row = encoder.transform([picture])
    np.testing.assert_allclose(row.toarray(), [np.array([1, 2, 1]) / np.sqrt(6)], rtol=1e-6)


def test_a_row_of_a_pyramid_by_hand():
    encoder = made_by_hand([1, 1, 2, *range(1, 13)], block=0.25, overlap=0, levels=2, level_weights=(1, 3))
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:32, 32:] = 255
    # 4 x 4 blocks side by side. In all: 12 black, 4 white; in the quarters: 4 black, 4 white, 4 black, 4 black.
    whole = np.array([12 * 1, 0, 4 * 2])
    quarters = np.array([4 * 1, 0, 0, 0, 0, 4 * 6, 4 * 7, 0, 0, 4 * 10, 0, 0])
    expected = [np.sqrt(1 / 4) * whole / np.linalg.norm(whole), np.sqrt(3 / 4) * quarters / np.linalg.norm(quarters)]
    np.testing.assert_allclose(encoder.transform([picture]).toarray()[0], np.concatenate(expected), rtol=1e-6)


def test_pictures_of_the_same_blocks_at_other_places_differ_only_with_a_pyramid():
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, 32:] = 255
    both = [picture, np.ascontiguousarray(picture[:, ::-1])]
    flat = made_by_hand(np.ones(3), block=0.25, overlap=0).transform(both).toarray()
    np.testing.assert_allclose(flat[0], flat[1], rtol=1e-6)
    rows = made_by_hand(np.ones(3 * 21), block=0.25, overlap=0, levels=3).transform(both).toarray()
    assert rows[0] @ rows[0] == pytest.approx(1)
    assert rows[0] @ rows[1] == pytest.approx(1 / 4)  # what the whole picture weighs; no cell has a word in common


def test_the_first_level_of_a_pyramid_is_the_bag_without_one(scenes):
    settings = {"colours": 8, "codebook": 40, "sample_blocks": 2000, "n_jobs": 1}
    flat, pyramid = (Visterms(**settings, levels=levels).fit(scenes) for levels in (1, 2))
    n = len(flat.codebook_)
    assert pyramid.idf_.shape == (5 * n,)
    np.testing.assert_array_equal(pyramid.idf_[:n], flat.idf_)
    rows = pyramid.transform(scenes)
    assert rows.shape == (24, 5 * n)
    np.testing.assert_allclose(rows[:, :n].toarray(), flat.transform(scenes).toarray() * np.sqrt(1 / 2), rtol=1e-6)
    share = (rows.toarray() > 0).mean(axis=0)
    weighing = pyramid.idf_ > 0
    np.testing.assert_allclose(pyramid.idf_[weighing], -np.log(share[weighing]), rtol=1e-5)
    other = Visterms(**{**settings, "n_jobs": 2}, levels=2).fit(scenes)
    assert other.fingerprint == pyramid.fingerprint
    np.testing.assert_array_equal(other.transform(scenes).data, rows.data)


def test_another_spread_or_softness_counts_at_once(scenes):
    encoder = Visterms(colours=8, codebook=40, sample_blocks=2000).fit(scenes)
    before = encoder.transform(scenes[:1])
    encoder.spread_ = encoder.spread_ * np.float32(50)
    wider = encoder.transform(scenes[:1])
    assert not np.array_equal(wider.data, before.data)
    encoder.softness /= 50
    np.testing.assert_allclose(encoder.transform(scenes[:1]).toarray(), before.toarray(), rtol=1e-5)


@pytest.mark.parametrize(("overlap", "n_blocks"), [(0, 3 * 2), (0.5, 5 * 3), (2 / 3, 7 * 4), (0.667, 7 * 4)])
def test_blocks_overlap_by_as_much_as_asked(overlap, n_blocks):
    # 96 × 64 pixels and blocks of 32: 3 × 2 side by side, and with steps of 16 or 32/3 so many more in between.
    encoder = Visterms(block=1 / 3, scales=(1.0,), colours=2, codebook=4, overlap=overlap).fit([scene("dots", 0)] * 40)
    codes = pixel_codes(scene("dots", 0), np.zeros(32_768, np.uint8))
    assert encoder._cutter().count(codes, 0) == n_blocks
    assert len(encoder._cutter().points(codes, 0)) == n_blocks


def test_rows_that_were_stored_before_overlap_and_levels_could_be_chosen_keep_their_fingerprint():
    assert Visterms().fingerprint == "264bbc76b3c22d42"
    others = [Visterms(overlap=0.75), Visterms(levels=2), Visterms(levels=2, level_weights=(1, 1))]
    assert len({encoder.fingerprint for encoder in [Visterms(), *others]}) == 4


@pytest.mark.parametrize(
    "params",
    [
        {"block": 0},
        {"scales": (1, 3), "block": 0.4},
        {"scales": ()},
        {"scales": (1, -1)},
        {"colours": 300},
        {"codebook": 0},
        {"neighbours": 1.5},
        {"colour_space": "hsv"},
        {"overlap": 0.4},
        {"overlap": 1.0},
        {"levels": 0},
        {"levels": 7},
        {"levels": 2, "level_weights": (1,)},
        {"softness": float("inf")},
    ],
)
def test_a_parameter_that_cannot_be_used_is_named_with_what_can(scenes, params):
    name, value = list(params.items())[-1]
    with refused(name, value=value):
        Visterms(**params).fit(scenes[:2])


def test_k_means_comes_as_near_to_its_points_as_scikit_learn():
    points = make_blobs(3000, n_features=6, centers=40, random_state=0)[0].astype(np.float32)
    codebook = learn_codebook(points, 60, np.random.default_rng(0), iterations=30)
    words, _ = assign_words(points, prepare_codebook(codebook))
    ours = np.square(points - codebook[words]).sum()
    with one_blas_thread():
        theirs = KMeans(60, init="random", n_init=1, max_iter=30, random_state=0).fit(points).inertia_
    assert ours <= 1.1 * theirs


def test_k_means_gives_no_more_words_than_distinct_points():
    points = np.repeat(np.array([[0, 1], [2, 3], [4, 5]], np.float32), 20, axis=0)
    codebook = learn_codebook(points, 10, np.random.default_rng(0))
    assert sorted(codebook.tolist()) == [[0, 1], [2, 3], [4, 5]]
