"""The `kernel_pca` encoder: its kernels against slow twins, its components against scikit-learn, and new images."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import chi2_kernel, rbf_kernel

from reference import overlaps as slow
from tiny_scenes import scene
from visterm.core.errors import DataError, UserError
from visterm.encoders.visterms import Visterms
from visterm_research.encoders.histograms import Histograms
from visterm_research.encoders.kernel_pca import KernelPca, kernel_components
from visterm_research.kernels.landmarks import KERNELS, Landmarks, landmark_columns

COLOURS = {"colours": 12, "textons": 0, "scales": (1.0,), "levels": 2}
PLAIN = {"encoder": ("histograms", COLOURS), "normalise": False, "n_jobs": 1}


@pytest.fixture(scope="module")
def scenes():
    return [scene(("stripes", "dots")[i % 2], i) for i in range(24)]


@pytest.fixture(scope="module")
def histograms(scenes):
    return Histograms(**COLOURS, n_jobs=1).fit(scenes).transform(scenes)


def filled(shape, share, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < share, rng.random(shape), 0).astype(np.float32)


@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_kernels_are_those_of_their_definition_for_dense_and_sparse_rows(name, share):
    rows, others = filled((40, 30), share), filled((9, 30), share, seed=1)
    expected = slow.kernel(name, rows, others, 0.7)
    for kind in (np.asarray, sp.csr_array):
        columns = landmark_columns(name, kind(others))
        assert sp.issparse(columns) == (share < 0.1)
        landmarks = Landmarks(name, columns)
        np.testing.assert_allclose(landmarks.values(kind(rows), 0.7, 1), expected, atol=1e-5)


def test_chi2_and_rbf_are_those_of_scikit_learn():
    rows, others = filled((5, 30), 0.5), filled((9, 30), 0.5, seed=1)
    for name, theirs in (("chi2", chi2_kernel), ("rbf", rbf_kernel)):
        found = Landmarks(name, landmark_columns(name, others)).values(rows, 0.3, 1)
        np.testing.assert_allclose(found, theirs(rows, others, gamma=0.3), atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_signed_features_can_be_compared_by_products(name):
    rows = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    found = Landmarks(name, landmark_columns(name, rows)).values(rows, 0.1, 1)
    np.testing.assert_allclose(found, slow.kernel(name, rows, rows, 0.1), atol=1e-5)


@pytest.mark.parametrize("name", ["intersection", "hellinger", "chi2"])
def test_kernels_of_histograms_refuse_negative_features(name):
    with pytest.raises(
        DataError, match=r"does not allow negative features, but there is -1\. Choose the kernel 'linear' or 'rbf'"
    ):
        landmark_columns(name, np.array([[1, -1]], np.float32))


def equal_up_to_signs(a, b, **tolerance):
    signs = np.sign((a * b).sum(axis=0))
    np.testing.assert_allclose(a * signs, b, **tolerance)


def test_all_images_as_landmarks_give_the_components_of_scikit_learn(scenes, histograms):
    encoder = KernelPca(**PLAIN, dim=6).fit(scenes)
    theirs = KernelPCA(6, kernel=lambda x, y: np.minimum(x, y).sum()).fit(histograms)
    equal_up_to_signs(encoder.transform(scenes), theirs.transform(histograms), atol=1e-4)
    new = [scene("dots", 50 + i) for i in range(5)]
    rows = Histograms(**COLOURS).fit(scenes).transform(new)
    equal_up_to_signs(encoder.transform(new), theirs.transform(rows), atol=1e-4)
    np.testing.assert_allclose(encoder.variances_, theirs.eigenvalues_ / 24, rtol=1e-3)


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_dot_products_of_all_components_are_the_centred_kernel(scenes, histograms, kernel):
    encoder = KernelPca(**PLAIN, kernel=kernel).fit(scenes)
    rows = encoder.transform(scenes)
    K = slow.kernel(kernel, histograms, histograms, encoder.gamma_)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    np.testing.assert_allclose(rows @ rows.T, centred, atol=3e-4)


def test_gamma_is_one_over_the_mean_distance_unless_given(scenes, histograms):
    distances = np.square(histograms[:, None] - histograms[None]).sum(axis=2)
    mean = distances.sum() / (24 * 23)
    assert KernelPca(**PLAIN, kernel="rbf").fit(scenes).gamma_ == pytest.approx(1 / mean, rel=1e-4)
    assert KernelPca(**PLAIN, kernel="rbf", gamma=2.5).fit(scenes).gamma_ == 2.5
    assert KernelPca(**PLAIN).fit(scenes).gamma_ == 0


def test_of_few_landmarks_the_components_are_those_of_all_images_in_their_span():
    rng = np.random.default_rng(0)
    X = rng.random((60, 40)).astype(np.float32)
    K = slow.kernel("intersection", X, X[:25], 0).astype(np.float32)
    centre, weights, variances = kernel_components(K, 5)
    values, vectors = np.linalg.eigh(K[:25].astype(float))
    projected = K @ (vectors / np.sqrt(values)) @ vectors.T  # K_nm K_mm^(-1/2), the symmetric root
    projected -= projected.mean(axis=0)
    u, s, _ = np.linalg.svd(projected, full_matrices=False)
    equal_up_to_signs((K - centre) @ weights, (u * s)[:, :5], atol=1e-4)
    np.testing.assert_allclose(variances, s[:5] ** 2 / 60, rtol=1e-4)


def test_as_many_landmarks_as_images_are_exact_either_way():
    X = np.random.default_rng(1).random((30, 20)).astype(np.float32)
    K = slow.kernel("intersection", X, X, 0).astype(np.float32)
    exact = kernel_components(K, 4)
    twice = kernel_components(np.concatenate([K, K]), 4)  # each image twice: the same mean and variances
    np.testing.assert_allclose(twice.variances, exact.variances, rtol=1e-4)
    equal_up_to_signs((K - twice.centre) @ twice.weights, (K - exact.centre) @ exact.weights, atol=1e-4)


def test_more_landmarks_come_nearer_to_the_exact_rows(scenes):
    exact = KernelPca(**PLAIN, dim=4).fit(scenes).transform(scenes)

    def missing(landmarks):
        rows = KernelPca(**PLAIN, dim=4, landmarks=landmarks).fit(scenes).transform(scenes)
        return np.abs(rows @ rows.T - exact @ exact.T).max()

    assert missing(6) > missing(20) > missing(24) == 0


def test_whitened_numbers_have_a_variance_of_one_over_the_training_images(scenes):
    rows = KernelPca(**PLAIN, dim=5, whiten=True).fit(scenes).transform(scenes)
    np.testing.assert_allclose(rows.T @ rows / 24, np.eye(5), atol=1e-3)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-4)


def test_normalised_rows_have_a_length_of_one(scenes):
    plain = KernelPca(**PLAIN, dim=5).fit(scenes).transform(scenes)
    rows = KernelPca(**{**PLAIN, "normalise": True}, dim=5).fit(scenes).transform(scenes)
    np.testing.assert_allclose(rows, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=1e-5)


def test_landmarks_of_which_few_values_are_not_0_are_kept_sparse(scenes):
    inside = Visterms(colours=8, codebook=900, sample_blocks=9000, neighbours=1, n_jobs=1)
    encoder = KernelPca(encoder=inside, normalise=False, n_jobs=1).fit(scenes)
    assert sp.issparse(encoder.landmarks_)
    K = slow.kernel("intersection", *[inside.fit(scenes).transform(scenes).toarray()] * 2, 0)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    rows = encoder.transform(scenes)
    np.testing.assert_allclose(rows @ rows.T, centred, atol=1e-3)


@pytest.mark.parametrize("landmarks", [9, 100])
def test_any_number_of_threads_and_any_batch_learns_and_encodes_the_same_bytes(scenes, landmarks):
    params = {"encoder": ("histograms", COLOURS), "dim": 6, "landmarks": landmarks}
    one = KernelPca(**params, n_jobs=1).fit(scenes)
    other = KernelPca(**params, n_jobs=3, batch_size=5).fit(scenes)
    for name in ("landmarks_", "centre_", "components_", "variances_"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    np.testing.assert_array_equal(other.transform(scenes), one.transform(scenes))
    assert other.fingerprint == one.fingerprint


def test_new_images_lie_nearest_to_those_of_their_kind(scenes):
    inside = ("histograms", {"textons": 20, "colours": 0, "sigmas": (1.0,), "sample_pixels": 5000})
    encoder = KernelPca(encoder=inside, dim=8).fit(scenes)
    new = encoder.transform([scene(("stripes", "dots")[i % 2], 100 + i) for i in range(10)])
    nearest = np.argsort(-new @ encoder.transform(scenes).T, axis=1)[:, :5] % 2
    assert (np.round(nearest.mean(axis=1)) == np.arange(10) % 2).mean() >= 0.9


def test_images_that_are_all_alike_are_refused_with_advice():
    with pytest.raises(DataError, match=r"all have the same row.*at least 2 that differ"):
        KernelPca(**PLAIN).fit([np.full((20, 20, 3), 9, np.uint8)] * 3)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernel": "chi"}, "Unknown kernel 'chi'. Did you mean 'chi2'"),
        ({"dim": 0}, "dim is 0"),
        ({"landmarks": 1.5}, "landmarks is 1.5"),
        ({"gamma": -1}, "gamma is -1; expected a finite number above 0, or None"),
        ({"encoder": 7}, "An inner encoder is 7; expected a name such as 'visterms'"),
        ({"encoder": "ids"}, "'ids' knows images by number only"),
        ({"encoder": "visterm"}, "Unknown encoder 'visterm'. Did you mean 'visterms'"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named_with_what_can(scenes, params, message):
    with pytest.raises(UserError, match=message):
        KernelPca(**params).fit(scenes[:3])
