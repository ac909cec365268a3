"""The kernels behind `visterms`: equal to scikit-image, to Pillow and to slow twins, on photos and on drawn images."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw
from skimage.color import rgb2lab
from skimage.feature import local_binary_pattern

from reference import blocks as slow
from visterm.kernels.nearest import TILE, TILE_WORDS, add_by_word, nearest_words, prepare_codebook
from visterm.kernels.pixels import (
    MIN_CELL,
    bag_row,
    block_edges,
    block_histograms,
    colour_codes,
    colour_table,
    gray_levels,
    lab_from_rgb,
    lbp_codes,
)


def of_scikit_image(gray):
    return local_binary_pattern(gray, 8, 2, method="nri_uniform")[2:-2, 2:-2]


def drawn():
    """Flat areas, edges and few levels: the images in which neighbours tie with the centre."""
    picture = Image.new("RGB", (150, 110), (90, 140, 230))
    pen = ImageDraw.Draw(picture)
    pen.ellipse((10, 10, 50, 50), fill=(250, 220, 40))
    pen.polygon([(40, 100), (80, 30), (130, 100)], fill=(60, 110, 50))
    pen.line((0, 5, 149, 90), fill=(20, 20, 20), width=3)
    return np.array(picture)


@pytest.mark.parametrize("levels", [1, 2, 3, 5, 20, 256])
def test_codes_equal_those_of_scikit_image_where_brightness_ties_often_or_never(levels):
    gray = np.random.default_rng(levels).integers(0, levels, (90, 120)).astype(np.uint8)
    np.testing.assert_array_equal(lbp_codes(gray)[2:-2, 2:-2], of_scikit_image(gray))


def test_codes_equal_those_of_scikit_image_on_a_drawn_picture():
    gray = gray_levels(drawn())
    np.testing.assert_array_equal(lbp_codes(gray)[2:-2, 2:-2], of_scikit_image(gray))


@pytest.mark.shared
def test_codes_and_brightness_equal_those_of_scikit_image_and_pillow_on_photos(shared):
    for path in sorted((shared / "data" / "corel5k" / "images").glob("*.jpeg"))[::250]:
        photo = Image.open(path).convert("RGB")
        gray = gray_levels(np.array(photo))
        np.testing.assert_array_equal(gray, np.array(photo.convert("L")))
        np.testing.assert_array_equal(lbp_codes(gray)[2:-2, 2:-2], of_scikit_image(gray))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 3), (7, 5), (12, 13)])
def test_codes_equal_those_of_the_definition_up_to_the_edges(shape):
    gray = np.random.default_rng(1).integers(0, 6, shape).astype(np.uint8)
    expected = [[slow.lbp_code(gray, row, col) for col in range(shape[1])] for row in range(shape[0])]
    np.testing.assert_array_equal(lbp_codes(gray), expected)


def test_the_codes_of_simple_patches_are_known():
    gray = np.full((5, 5), 100, np.uint8)
    assert lbp_codes(gray)[2, 2] == 57  # none darker
    gray[2, 2] = 200
    assert lbp_codes(gray)[2, 2] == 0  # all darker
    gray[2, 4] = 255
    assert lbp_codes(gray)[2, 2] == 1  # only the right one is not
    gray[2, 0] = 255
    assert lbp_codes(gray)[2, 2] == 58  # two runs: not uniform


def test_brightness_is_that_of_pillow():
    pixels = np.random.default_rng(2).integers(0, 256, (60, 70, 3)).astype(np.uint8)
    np.testing.assert_array_equal(gray_levels(pixels), np.array(Image.fromarray(pixels).convert("L")))


def test_lab_is_that_of_scikit_image():
    rgb = np.random.default_rng(3).integers(0, 256, (500, 3))
    rgb[:3] = [[0, 0, 0], [255, 255, 255], [3, 2, 1]]
    np.testing.assert_allclose(lab_from_rgb(rgb), rgb2lab(rgb[None] / 255)[0], atol=1e-3)


def test_each_pixel_gets_the_colour_nearest_to_the_middle_of_its_box():
    colours = np.array([[0, 0, 0], [255, 0, 0], [250, 250, 250], [40, 80, 200]], np.float32)
    pixels = np.random.default_rng(4).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    middle = pixels // 8 * 8 + 3.5
    expected = np.square(middle[:, :, None] - colours).sum(axis=3).argmin(axis=2)
    np.testing.assert_array_equal(colour_codes(pixels, colour_table(colours, False)), expected)


def test_colours_are_compared_in_lab_on_request():
    rgb = np.array([[20, 20, 20], [200, 30, 30], [240, 240, 240]])
    table = colour_table(lab_from_rgb(rgb).astype(np.float32), True)
    np.testing.assert_array_equal(colour_codes(rgb[None].astype(np.uint8), table), [[0, 1, 2]])


def test_cells_cover_a_side_evenly():
    np.testing.assert_array_equal(block_edges(192, 16), np.arange(0, 193, 16))
    np.testing.assert_array_equal(block_edges(10, 100), [0, 10])
    assert np.diff(block_edges(37, 0.1)).min() >= MIN_CELL
    np.testing.assert_array_equal(block_edges(1, 0.1), [0, 1])


@pytest.mark.parametrize("block_cells", [1, 2, 3])
@pytest.mark.parametrize(("shape", "stride"), [((40, 60), 9.5), ((5, 200), 12), ((1, 1), 4), ((9, 9), 4)])
def test_histograms_of_blocks_are_shares_of_the_pixels_that_they_cover(shape, stride, block_cells):
    rng = np.random.default_rng(5)
    texture = rng.integers(0, 59, shape).astype(np.uint8)
    colour = rng.integers(0, 7, shape).astype(np.uint8)
    rows, cols = block_edges(shape[0], stride), block_edges(shape[1], stride)
    found = block_histograms(texture, colour, 7, rows, cols, block_cells)
    np.testing.assert_allclose(found, slow.block_histograms(texture, colour, 7, rows, cols, block_cells), atol=1e-6)


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("n_words", [1, 5, 64, TILE_WORDS + 70])
@pytest.mark.parametrize("n_points", [1, TILE, TILE + 3])
def test_nearest_words_are_those_of_all_distances_sorted(n_words, n_points, most):
    rng = np.random.default_rng(6)
    points = rng.normal(size=(n_points, 8)).astype(np.float32)
    codebook = rng.normal(size=(n_words, 8)).astype(np.float32)
    n_nearest = min(most, n_words)
    words, scores = nearest_words(points, prepare_codebook(codebook), n_nearest)
    np.testing.assert_array_equal(words, slow.nearest_words(points, codebook, n_nearest))
    chosen = codebook[words]
    expected = np.einsum("ijk,ik->ij", chosen, points) - np.square(chosen).sum(axis=2) / 2
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_of_equally_near_words_the_first_come_first():
    points = np.zeros((3, 2), np.float32)
    codebook = np.tile(np.array([[1, 0], [0, 1]], np.float32), (90, 1))
    words, _ = nearest_words(points, prepare_codebook(codebook), 5)
    np.testing.assert_array_equal(words, [[0, 1, 2, 3, 4]] * 3)
    words, _ = nearest_words(points, prepare_codebook(np.zeros((TILE_WORDS + 1, 2), np.float32)))
    np.testing.assert_array_equal(words, [[0]] * 3)


def test_points_are_added_to_their_words_and_strays_to_none():
    points = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    sums, counts = np.zeros((2, 2)), np.zeros(2, np.int64)
    add_by_word(points, np.array([1, 0, 1, 9], np.int32), sums, counts)
    np.testing.assert_array_equal(sums, [[3, 4], [6, 8]])
    np.testing.assert_array_equal(counts, [1, 2])


@pytest.mark.parametrize("root", [False, True])
def test_a_bag_is_the_tf_idf_row_of_its_slow_twin(root):
    rng = np.random.default_rng(8)
    words = rng.integers(0, 30, (40, 3)).astype(np.int32)
    shares = rng.random((40, 3)).astype(np.float32)
    idf = np.where(rng.random(30) < 0.3, 0, rng.random(30)).astype(np.float32)
    weights, columns = bag_row(words, shares, idf, root)
    dense = np.zeros(30)
    dense[columns] = weights
    np.testing.assert_allclose(dense, slow.bag_row(words, shares, idf, root), atol=1e-6)
    assert (np.diff(columns) > 0).all()


def test_a_bag_by_hand():
    words, shares = np.array([[0], [0], [2], [1]], np.int32), np.ones((4, 1), np.float32)
    weights, columns = bag_row(words, shares, np.array([1.5, 0, 4], np.float32), False)
    np.testing.assert_array_equal(columns, [0, 2])  # word 1 is in every training image: no weight
    np.testing.assert_allclose(weights, [0.6, 0.8], rtol=1e-6)  # (2 · 1.5, 1 · 4) / 5


def test_a_bag_without_any_weight_is_empty():
    weights, columns = bag_row(np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32), np.zeros(2, np.float32), True)
    assert weights.size == columns.size == 0
