"""The `bag_kernel` encoder: kernels of bags against slow twins, integrals and hand, and photos through to a search."""

from __future__ import annotations

import numpy as np
import pytest

from reference import bags as slow
from tiny_scenes import scene
from visterm.core.errors import DataError, TooLargeError, UnknownNameError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.progress import SILENT
from visterm.core.tables import ENCODERS
from visterm.encoders.visterms import Visterms
from visterm.tagging.tagger import Tagger
from visterm_research.encoders import bag_kernel, bags
from visterm_research.encoders.bag_kernel import BagKernel
from visterm_research.encoders.bags import Bags, BestMatches
from visterm_research.encoders.gaussian_mixtures import Mixtures, fit_mixtures, log_likelihoods, log_likelihoods_among
from visterm_research.models.linear.svm import Svm
from visterm_research.models.pamir.kernel_pamir import KernelPamir

SMALL = {"colours": 8, "max_side": 48, "n_jobs": 1}
KINDS = [
    {"kernel": "match"},
    {"kernel": "match", "minor": "linear", "normalise": False},
    {"kernel": "match", "minor": "polynomial", "degree": 3},
    {"kernel": "expected_likelihood"},
    {"kernel": "expected_likelihood", "gaussians": 2},
    {"kernel": "expected_likelihood", "covariance": "full"},
    {"kernel": "visterm", "codebook": 40, "sample_blocks": 2000},
]


@pytest.fixture(scope="module")
def scenes():
    return [scene(("stripes", "dots")[i % 2], i) for i in range(14)]


@pytest.fixture
def points():
    """Bags of 1 to 9 points, not below 0."""
    rng = np.random.default_rng(0)
    return [rng.random((n, 11)).astype(np.float32) for n in (4, 9, 1, 6, 7, 2, 5, 3)]


SETTINGS = {"gamma": 0.7, "degree": 3, "offset": 0.5}


@pytest.mark.parametrize("minor", ["rbf", "linear", "polynomial"])
def test_the_match_kernel_is_the_mean_of_best_matches_both_ways(minor, points, monkeypatch):
    monkeypatch.setattr(bags, "TILE_POINTS", 12)
    kept = Bags.of(points)
    assert len(kept.tiles()) > 3
    matches = BestMatches(kept, minor, **SETTINGS)
    expected = np.array([[slow.match(p, q, minor, **SETTINGS) for q in points] for p in points])
    K = matches.among(SILENT, 1)
    np.testing.assert_allclose(K, expected, rtol=1e-5)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(K, matches.among(SILENT, 3))
    other = np.random.default_rng(1).random((5, 11)).astype(np.float32)
    np.testing.assert_allclose(
        matches.values(other), [slow.match(other, p, minor, **SETTINGS) for p in points], rtol=1e-5
    )
    assert matches.with_itself(other) == pytest.approx(slow.match(other, other, minor, **SETTINGS), rel=1e-5)


def test_two_bags_are_matched_as_by_hand():
    p, q = np.array([[1, 0], [0, 1]], np.float32), np.array([[0.5, 0], [2, 1], [0, 0]], np.float32)
    matches = BestMatches(Bags.of([q]), "linear", gamma=1, degree=1, offset=0)
    # p's points find 2 and 1 (mean 1.5), q's find 0.5, 2 and 0 (mean 5/6)
    assert matches.values(p)[0] == pytest.approx(0.5 * (1.5 + 2.5 / 3))


def test_what_one_gaussian_has_in_common_with_another_is_as_by_hand():
    def gaussian(mean, variances):
        return Mixtures(np.zeros(1), np.array([mean], float), np.array([variances], float)[..., None], np.array([0, 1]))

    found = np.exp(log_likelihoods(gaussian([0, 1], [1, 0.5]), gaussian([1, 3], [3, 0.5]), 1))[0, 0]
    # N(-1; 0, 4) N(-2; 0, 1)
    expected = np.exp(-1 / 8) / np.sqrt(8 * np.pi) * np.exp(-2) / np.sqrt(2 * np.pi)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_expected_likelihood_of_mixtures_is_the_integral_of_their_product(covariance):
    rng = np.random.default_rng(2)
    turn = np.array([[1.0, 0.8], [0.0, 0.6]])
    drawn = [np.concatenate([rng.normal(c, 0.5, (20, 2)) for c in rng.normal(0, 1, (3, 2))]) @ turn for _ in range(3)]
    mixtures = fit_mixtures([d.astype(np.float32) for d in drawn], 3, covariance, 0.01, 5, 1)
    assert len(mixtures.weights) == 9
    axis = np.linspace(-8, 8, 801)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    densities = []
    for a, b in zip(mixtures.start[:-1], mixtures.start[1:], strict=True):
        spreads = mixtures.spreads[a:b]
        full = spreads if covariance == "full" else [np.diag(one[:, 0]) for one in spreads]
        densities.append(slow.density(grid, np.exp(mixtures.weights[a:b]), mixtures.means[a:b], full))
    expected = np.array([[np.sum(p * q) for q in densities] for p in densities]) * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(np.exp(log_likelihoods(mixtures, mixtures, 1)), expected, rtol=1e-6)
    np.testing.assert_allclose(np.exp(log_likelihoods_among(mixtures, 2, SILENT)), expected, rtol=1e-6)


def test_likelihoods_far_below_the_end_of_numbers_are_kept_as_logarithms():
    n = 120
    far = Mixtures(np.zeros(1), np.full((1, n), 5.0), np.full((1, n, 1), 0.005), np.array([0, 1]))
    near = Mixtures(np.zeros(1), np.zeros((1, n)), np.full((1, n, 1), 0.005), np.array([0, 1]))
    expected = -0.5 * n * (np.log(2 * np.pi * 0.01) + 25 / 0.01)
    assert log_likelihoods(far, near, 1)[0, 0] == pytest.approx(expected, rel=1e-9)


def test_one_gaussian_has_the_mean_and_variance_of_the_points_and_the_floor():
    bag = np.random.default_rng(3).random((30, 4)).astype(np.float32)
    found = fit_mixtures([bag, bag[:1]], 1, "diagonal", 0.25, 0, 1)
    np.testing.assert_allclose(found.means, [bag.mean(axis=0), bag[0]], rtol=1e-5)
    np.testing.assert_allclose(found.spreads[0, :, 0], bag.var(axis=0) + 0.25, rtol=1e-5)
    np.testing.assert_allclose(found.spreads[1, :, 0], 0.25)


@pytest.mark.parametrize("settings", KINDS, ids=lambda each: " ".join(map(str, each.values())))
def test_training_photos_have_a_symmetric_kernel_and_new_ones_the_same_function(settings, scenes, tmp_path):
    encoder = BagKernel(**SMALL, **settings).fit(scenes)
    K = encoder.transform(scenes)
    assert K.shape == (14, 14)
    np.testing.assert_array_equal(K, K.T)
    if encoder.normalise:
        np.testing.assert_allclose(K.diagonal(), 1, rtol=1e-5)
        assert K.max() <= 1 + 1e-5
    again = BagKernel(**{**SMALL, "n_jobs": 3, "batch_size": 3}, **settings).fit(scenes)
    assert again.fingerprint == encoder.fingerprint
    new = [scene("dots", 40), scene("stripes", 41), scenes[3]]
    rows = encoder.transform(new)
    np.testing.assert_array_equal(again.transform(new), rows)
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    np.testing.assert_array_equal(load_estimator(ENCODERS, tmp_path, "encoder").transform(new), rows)
    np.testing.assert_array_equal(rows[2], K[3])
    if settings["kernel"] != "visterm":
        encoder.marks_ = np.zeros_like(encoder.marks_)
        np.testing.assert_allclose(encoder.transform(scenes), K, rtol=1e-4, atol=1e-6)


def test_the_match_kernel_of_photos_is_that_of_their_blocks(scenes):
    encoder = BagKernel(**SMALL, gamma=0.3, scales=(1.0, 2.0)).fit(scenes[:3])
    kept = Bags(encoder.points_, encoder.start_)
    assert kept.points.shape[1] == 59 + 8
    expected = [[slow.match(kept.bag(i), kept.bag(j), "rbf", gamma=0.3) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(encoder.transform(scenes[:3]), expected, rtol=1e-4)


def test_without_a_gamma_it_is_three_over_the_mean_squared_distance_of_blocks(scenes):
    encoder = BagKernel(**SMALL).fit(scenes[:3])
    points = encoder.points_.astype(float)
    distances = np.square(points[:, None] - points).sum(axis=2)
    assert encoder.gamma_ == pytest.approx(3 / distances.mean(), rel=1e-4)


def test_normalising_divides_by_the_roots_of_what_photos_have_in_common_with_themselves(scenes):
    plain = BagKernel(**SMALL, minor="linear", normalise=False).fit(scenes)
    even = BagKernel(**SMALL, minor="linear").fit(scenes)
    own = np.sqrt(plain.kernel_.diagonal())
    np.testing.assert_allclose(even.transform(scenes), plain.kernel_ / np.outer(own, own), rtol=1e-5)
    new = [scene("dots", 40)]
    itself = plain._compare([plain._bag_of()(new[0])])[1]
    np.testing.assert_allclose(even.transform(new), plain.transform(new) / np.sqrt(itself) / own, rtol=1e-5)


def test_the_visterm_kernel_is_the_product_of_rows_of_visterms(scenes):
    words = {"codebook": 40, "sample_blocks": 2000, "neighbours": 1}
    X = Visterms(**SMALL, **words, scales=(1.0,)).fit(scenes).transform(scenes)
    K = BagKernel(**SMALL, **words, kernel="visterm").fit(scenes).transform(scenes)
    np.testing.assert_allclose(K, (X @ X.T).toarray(), rtol=1e-5, atol=1e-6)


def test_images_that_cannot_be_read_have_neither_row_nor_column(scenes, tmp_path):
    broken = tmp_path / "broken.jpeg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 cut off")
    images = [*scenes[:3], broken, *scenes[3:5]]
    found = BagKernel(**SMALL).fit(images, skip_unreadable=True).encode(images)
    assert found.rows.shape == (5, 5)
    assert found.kept.tolist() == [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(found.rows, found.rows.T)
    np.testing.assert_allclose(found.rows.diagonal(), 1, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["match", "expected_likelihood"])
def test_models_over_kernels_learn_from_its_rows(kernel, scenes):
    encoder = BagKernel(**SMALL, kernel=kernel).fit(scenes)
    X, Y = encoder.transform(scenes), np.eye(2)[np.arange(14) % 2]
    new = encoder.transform([scene(("stripes", "dots")[i % 2], 60 + i) for i in range(10)])
    for model in (KernelPamir(kernel="precomputed", epochs=30), Svm(kernel="precomputed")):
        best = model.fit(X, Y).annotate(new, 1).ids[:, 0]
        assert (best == np.arange(10) % 2).mean() >= 0.8


def test_a_tagger_fits_saves_and_searches_over_a_bag_kernel(small_library, tmp_path):
    tagger = Tagger(
        encoder="bag_kernel",
        encoder_params={"colours": 8, "max_side": 64},
        model="kernel_pamir",
        model_params={"kernel": "precomputed", "epochs": 5},
        n_jobs=1,
    )
    tagger.fit(small_library.images, small_library.tags_file)
    assert tagger.model.tag_rows_.shape[1] == len(tagger.encoder.own_) + 1
    tagger.save(tmp_path / "run")
    picture = sorted(small_library.images.rglob("*.*"))[0]
    before, after = (list(each.annotate([picture], k=3)) for each in (tagger, Tagger.load(tmp_path / "run")))
    assert before == after


def test_a_likelihood_beyond_float32_is_refused_with_what_helps(scenes):
    with pytest.raises(DataError, match=r"A likelihood is exp\(\d+\), beyond float32. Use normalise=True"):
        BagKernel(**SMALL, kernel="expected_likelihood", normalise=False, regularisation=1e-3).fit(scenes)


def test_what_cannot_be_is_refused_with_what_is_accepted(scenes, monkeypatch):
    for settings, error, message in (
        ({"kernel": "mach"}, UnknownNameError, r"kernel 'mach'.*Did you mean 'match'"),
        ({"minor": "rfb"}, UnknownNameError, r"minor kernel 'rfb'.*'rbf'"),
        ({"covariance": "diag"}, UnknownNameError, r"covariance 'diag'"),
        ({"gamma": 0}, UserError, "gamma is 0"),
        ({"degree": 0}, UserError, "degree is 0"),
        ({"gaussians": 0}, UserError, "gaussians is 0"),
        ({"offset": -1}, UserError, "offset is -1"),
        ({"regularisation": 0}, UserError, "regularisation is 0"),
        ({"block": 2}, UserError, "largest block"),
    ):
        with pytest.raises(error, match=message):
            BagKernel(**{**SMALL, **settings}).fit(scenes)
    monkeypatch.setattr(bag_kernel, "MAX_KERNEL_BYTES", 1000)
    with pytest.raises(TooLargeError, match=r"The kernel of 14 images .*Learn from fewer images"):
        BagKernel(**SMALL).fit(scenes)
