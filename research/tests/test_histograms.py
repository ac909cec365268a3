"""The `histograms` encoder: filters, textons and pyramids against slow twins and SciPy, and what a row holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from reference import histograms as slow
from tiny_scenes import scene
from visterm.core.errors import UserError
from visterm.encoders.blocks import learn_palette
from visterm_research.encoders.histograms import Histograms
from visterm_research.encoders.textons import ELONGATION, FilterBank, TextonFinder, learn_textons, squeezed

SMALL = {"colours": 10, "textons": 24, "orientations": 4, "sigmas": (1.0,), "sample_pixels": 6000}


@pytest.fixture(scope="module")
def scenes():
    return [scene(("stripes", "dots")[i % 2], i) for i in range(20)]


@pytest.fixture(scope="module")
def fitted(scenes):
    return Histograms(**SMALL, n_jobs=1).fit(scenes)


@pytest.fixture(scope="module")
def gray():
    return np.random.default_rng(0).integers(0, 256, (47, 60)).astype(np.uint8)


def test_responses_without_elongation_are_those_of_scipy(gray):
    laplacian, gaussian = FilterBank(1, (2.0,)).respond(gray)[-2:]
    expected = ndimage.gaussian_filter(gray.astype(float), 2, mode="reflect", truncate=6)
    np.testing.assert_allclose(gaussian, expected, atol=0.05)
    expected = 4 * ndimage.gaussian_laplace(gray.astype(float), 2, mode="reflect", truncate=6)
    np.testing.assert_allclose(laplacian, expected, atol=0.15)


def test_the_first_orientation_takes_the_derivative_from_left_to_right(gray):
    edge, bar = FilterBank(1, (2.0,)).respond(gray)[:2]
    for order, found in ((1, edge), (2, bar)):
        across = ndimage.gaussian_filter1d(gray.astype(float), 2, axis=1, order=order, mode="reflect", truncate=6)
        expected = 2**order * ndimage.gaussian_filter1d(across, 2 * ELONGATION, axis=0, mode="reflect", truncate=6)
        np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_other_orientations_are_turned_filters(gray, place):
    responses = FilterBank(4, (1.5, 2.0)).respond(gray)[10:]
    expected = slow.oriented_responses(gray, 2.0, place * np.pi / 4, ELONGATION, 30)
    np.testing.assert_allclose(responses[place], expected[0], atol=0.1)
    np.testing.assert_allclose(responses[4 + place], expected[1], atol=0.1)


def test_a_bank_has_two_filters_an_orientation_and_two_more_for_each_width(gray):
    bank = FilterBank(6, (1.0, 2.0, 4.0))
    assert bank.n_filters == 3 * 14
    assert bank.respond(gray).shape == (42, *gray.shape)
    assert bank.respond(gray).dtype == np.float32


@pytest.mark.parametrize("shape", [(1, 1), (1, 200), (3, 2)])
def test_pictures_smaller_than_the_filters_are_continued_by_mirroring(shape):
    responses = FilterBank(3, (2.0,)).respond(np.full(shape, 90, np.uint8))
    np.testing.assert_allclose(responses[-1], 90, rtol=1e-4)
    np.testing.assert_allclose(responses[:-1], 0, atol=1e-3)


def test_rows_are_shortened_to_the_logarithm_of_their_length():
    rows = np.array([[3, 4], [0, 0], [0, -1]], np.float32)
    expected = np.array([[0.6, 0.8], [0, 0], [0, -1]]) * np.log([[6], [1], [2]])
    np.testing.assert_allclose(squeezed(rows), expected, rtol=1e-6)


def test_a_pixel_has_the_texton_nearest_to_its_squeezed_responses(gray):
    bank = FilterBank(2, (1.0,))
    spread, patterns = learn_textons([gray], bank, 12, 2000, np.random.default_rng(0), n_jobs=1)
    points = squeezed(bank.respond(gray).reshape(bank.n_filters, -1).T / spread)
    expected = np.square(points[:, None] - patterns).sum(axis=2).argmin(axis=1)
    found = TextonFinder(bank, spread, patterns).find(gray).ravel()
    assert (found == expected).mean() > 0.999  # points halfway between two may fall to either side
    assert len(np.unique(found)) == 12


def test_flat_pictures_have_one_texton():
    textons = learn_textons(
        [np.full((20, 30), 7, np.uint8)] * 2, FilterBank(2, (1.0,)), 5, 100, np.random.default_rng(0)
    )
    assert np.isfinite(textons.patterns).all()
    assert np.isfinite(textons.spread).all()


def test_the_palette_holds_colours_of_the_space_requested(scenes):
    red = [np.full((9, 9, 3), (255, 0, 0), np.uint8)]
    np.testing.assert_array_equal(learn_palette(red, 3, "rgb", np.random.default_rng(0)), [[255, 0, 0]])
    lab = learn_palette(red, 3, "lab", np.random.default_rng(0))
    np.testing.assert_allclose(lab, [[53.24, 80.09, 67.20]], atol=0.05)


def test_a_row_sums_to_one_so_that_its_intersection_with_itself_is_one(fitted, scenes):
    rows = fitted.transform(scenes)
    assert rows.shape == (20, 2 * (1 + 4 + 16) * (10 + 24))
    assert rows.dtype == np.float32
    assert rows.min() >= 0
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)
    crossed = np.minimum(rows[0], rows[1]).sum()
    assert 0 < crossed < 1


def test_the_blocks_weigh_by_level_and_kind(scenes):
    encoder = Histograms(**SMALL, scales=(1.0,), texton_weight=3.0).fit(scenes)
    row = encoder.transform(scenes[:1])[0]
    ends = np.cumsum([cells * n for n in (10, 24) for cells in (1, 4, 16)])
    sums = [part.sum() for part in np.split(row, ends[:-1])]
    np.testing.assert_allclose(sums, np.outer([1 / 4, 3 / 4], [1 / 4, 1 / 4, 1 / 2]).ravel(), rtol=1e-5)


def test_the_levels_weigh_what_they_are_told_to(scenes):
    params = {**SMALL, "scales": (0.5,), "levels": 2, "textons": 0, "level_weights": (3, 1)}
    row = Histograms(**params).fit(scenes).transform(scenes[:1])[0]
    assert row.shape == (10 * 5,)
    np.testing.assert_allclose([row[:10].sum(), row[10:].sum()], [3 / 4, 1 / 4], rtol=1e-5)


def test_the_colours_of_the_whole_are_the_shares_of_its_pixels():
    half = np.zeros((8, 8, 3), np.uint8)
    half[:, 6:] = 255
    encoder = Histograms(colours=2, textons=0, colour_space="rgb", scales=(1.0,), levels=1).fit([half])
    dark = int(encoder.colours_.sum(axis=1).argmin())
    np.testing.assert_allclose(encoder.transform([half])[0][[dark, 1 - dark]], [0.75, 0.25])


def test_each_kind_can_be_left_out(scenes):
    only = [Histograms(**{**SMALL, name: 0}).fit(scenes).transform(scenes[:3]) for name in ("colours", "textons")]
    assert [rows.shape[1] for rows in only] == [2 * 21 * 24, 2 * 21 * 10]
    for rows in only:
        np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)


def test_new_images_lie_nearest_to_those_of_their_kind(fitted, scenes):
    new = fitted.transform([scene(("stripes", "dots")[i % 2], 100 + i) for i in range(10)])
    known = fitted.transform(scenes)
    crossed = np.minimum(new[:, None], known[None]).sum(axis=2)
    nearest = np.argsort(-crossed, axis=1)[:, :5] % 2
    assert (np.round(nearest.mean(axis=1)) == np.arange(10) % 2).mean() >= 0.9


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_any_number_of_threads_learns_and_encodes_the_same_bytes(fitted, scenes, n_jobs):
    other = Histograms(**SMALL, n_jobs=n_jobs, batch_size=3).fit(scenes)
    assert other.fingerprint == fitted.fingerprint
    np.testing.assert_array_equal(other.transform(scenes), fitted.transform(scenes))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"colours": 300}, "colours is 300; expected a number from 0 to 256"),
        ({"colours": 0, "textons": 0}, "both 0"),
        ({"textons": -1}, "textons is -1"),
        ({"levels": 9}, "levels is 9; expected a number from 1 to 6"),
        ({"orientations": 0}, "orientations is 0"),
        ({"sigmas": ()}, "sigmas is"),
        ({"sigmas": 2.0}, "sigmas is 2; expected widths in pixels above 0"),
        ({"scales": (2.0,)}, "scales is"),
        ({"level_weights": (1, 2)}, "3 numbers above 0, one per level"),
        ({"level_weights": (1, 2, float("nan"))}, "level_weights is"),
        ({"texton_weight": 0}, "texton_weight is 0"),
        ({"colour_space": "hsv"}, "expected one of lab, rgb"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named_with_what_can(scenes, params, message):
    with pytest.raises(UserError, match=message):
        Histograms(**params).fit(scenes[:2])
