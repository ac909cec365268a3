"""The k largest products are those of the full sort, to the byte for any threads, and no matrix of them is held."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from reference.select import top_products
from visterm.core import products
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.products import top_k_products
from visterm.kernels.topk import screen_best, stream_best


def drawn(n, m, width, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, width)).astype(np.float32), rng.standard_normal((m, width)).astype(np.float32)


def small_numbers(n, m, width, seed=0):
    """Rows of a few whole numbers: products are exact, and many are equal."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-2, 3, (rows, width)).astype(np.float32) for rows in (n, m))


@pytest.fixture
def any_size_in_parts(monkeypatch):
    """Cut even small jobs into parts and tiles, as large ones are."""
    monkeypatch.setattr(products, "PART_WORK", 1)
    monkeypatch.setattr(products, "TILE_FLOATS", 2**8)
    monkeypatch.setattr(products, "IMAGES_AT_ONCE", 16)


@pytest.mark.parametrize("n", [1, 3, 10, 20])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (5, 3), (300, 1), (300, 10), (300, 300)])
@pytest.mark.parametrize("width", [1, 33])
def test_the_k_largest_products_are_those_of_a_full_sort(n, m, k, width, any_size_in_parts):
    U, V = small_numbers(n, m, width)
    ids, scores = top_k_products(U, V, k, n_jobs=2)
    expected_ids, expected_scores = top_products(U, V, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)
    assert ids.dtype == np.int64
    assert scores.dtype == np.float32


@pytest.mark.parametrize("n", [2, 20])
def test_scores_agree_with_the_dense_product(n):
    U, V = drawn(n, 600, 100)
    ids, scores = top_k_products(U, V, 10)
    expected_ids, expected_scores = top_products(U, V, 10)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 30])
def test_results_are_the_same_bytes_for_any_number_of_threads(n, any_size_in_parts):
    U, V = drawn(n, 500, 20)
    one = top_k_products(U, V, 7, n_jobs=1)
    for n_jobs in (2, 3, 5, -1, None):
        several = top_k_products(U, V, 7, n_jobs=n_jobs)
        assert several.ids.tobytes() == one.ids.tobytes()
        assert several.scores.tobytes() == one.scores.tobytes()


@pytest.mark.parametrize("width", [3, 20, 100])
def test_a_row_of_a_batch_has_the_bytes_of_the_row_alone(width, any_size_in_parts):
    U, V = drawn(37, 300, width)
    batch = top_k_products(U, V, 5)
    for i in range(len(U)):
        alone = top_k_products(U[i : i + 1], V, 5)
        assert alone.ids.tobytes() == batch.ids[i].tobytes()
        assert alone.scores.tobytes() == batch.scores[i].tobytes()


def test_tags_with_equal_rows_are_ranked_by_their_id_in_a_batch_too(any_size_in_parts):
    U, V = drawn(20, 50, 30)
    V = np.tile(V, (4, 1))
    ids, scores = top_k_products(U, V, 8, n_jobs=2)
    best = top_products(U, V[:50], 2)[0]
    np.testing.assert_array_equal(ids, np.concatenate([best[:, [j]] + [0, 50, 100, 150] for j in (0, 1)], axis=1))
    assert (scores[:, :4] == scores[:, :1]).all()


def test_an_image_that_scores_0_everywhere_gets_the_first_tags():
    V = drawn(1, 500, 10)[1]
    ids, scores = top_k_products(np.zeros((12, 10)), V, 3)
    assert (ids == [0, 1, 2]).all()
    assert (scores == 0).all()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # NumPy warns, where kernels run without compiler
def test_rows_whose_squares_overflow_are_still_ranked(any_size_in_parts):
    U, V = drawn(12, 400, 4)
    ids, scores = top_k_products(U * np.float32(1e25), V * np.float32(1e10), 3)
    np.testing.assert_array_equal(ids, top_products(U, V, 3)[0])
    assert np.isfinite(scores).all()


def test_a_k_of_0_means_all_and_a_larger_one_than_there_are_gives_all():
    U, V = drawn(2, 6, 3)
    for k in (0, 6, 100):
        assert top_k_products(U, V, k).ids.shape == (2, 6)
    assert top_k_products(U[:0], V, 4).ids.shape == (0, 4)
    assert top_k_products(U, V[:0], 4).ids.shape == (2, 0)


def test_any_layout_and_type_of_rows_is_taken():
    U, V = small_numbers(3, 40, 6)
    expected = top_products(U, V, 4)[0]
    read_only = V.copy()
    read_only.setflags(write=False)
    for rows in (V.astype(np.float64), np.asfortranarray(V), np.repeat(V, 2, axis=0)[::2], read_only, V.tolist()):
        np.testing.assert_array_equal(top_k_products(U, rows, 4).ids, expected)


def test_rows_of_different_widths_and_sparse_rows_are_refused():
    with pytest.raises(ShapeError, match=r"U has the shape \(1, 3\), V \(4, 2\)"):
        top_k_products(np.ones((1, 3)), np.ones((4, 2)), 1)
    with pytest.raises(ShapeError, match=r"V \(3,\)"):
        top_k_products(np.ones((1, 3)), np.ones(3), 1)
    with pytest.raises(UserError, match="V is sparse"):
        top_k_products(np.ones((1, 3)), sp.eye_array(3, format="csr"), 1)
    with pytest.raises(UserError, match="k is -1"):
        top_k_products(np.ones((1, 3)), np.ones((4, 3)), -1)


def test_memory_stays_far_below_that_of_all_scores(any_size_in_parts):
    U, V = drawn(512, 8000, 4)
    top_k_products(U, V, 5)  # compiled
    tracemalloc.start()
    top_k_products(U, V, 5, n_jobs=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(U) * len(V) / 5


def test_kernels_refuse_rows_that_are_outside():
    U, V = drawn(2, 8, 3)
    ids, scores = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.float32)
    block, slack = np.zeros((2, 5), np.float32), np.zeros(2, np.float32)
    for first, stop in ((0, 9), (-1, 4), (5, 8)):
        with pytest.raises(IndexError):
            stream_best(U, V, products.ALL_ROWS, first, stop, ids, scores)
    with pytest.raises(IndexError):
        screen_best(block, U, V, 4, slack, ids, scores)
    with pytest.raises(IndexError):
        screen_best(block, U, V[:, :2].copy(), 0, slack, ids, scores)


def test_screening_finds_what_streaming_finds_however_the_block_was_rounded():
    U, V = drawn(5, 300, 16)
    error = np.random.default_rng(1).uniform(-0.01, 0.01, (5, 290)).astype(np.float32)
    heaps = [(np.empty((5, 10), np.int64), np.empty((5, 10), np.float32)) for _ in range(2)]
    stream_best(U, V, products.ALL_ROWS, 0, 300, *heaps[0])
    stream_best(U, V, products.ALL_ROWS, 0, 10, *heaps[1])
    screen_best(U @ V[10:].T + error, U, V, 10, np.full(5, 0.011, np.float32), *heaps[1])
    np.testing.assert_array_equal(heaps[0][0], heaps[1][0])
    np.testing.assert_array_equal(heaps[0][1], heaps[1][1])


@pytest.mark.parametrize("n", [1, 5, 12])
@pytest.mark.parametrize("k", [1, 7, 0])
def test_among_some_rows_the_best_of_these_are_found_with_the_same_bytes(n, k, any_size_in_parts):
    U, V = drawn(n, 400, 33)
    among = np.sort(np.random.default_rng(2).permutation(400)[:150])
    found = top_k_products(U, V, k, 2, among=among)
    ids, scores = top_products(U, V[among], k or 150)
    np.testing.assert_array_equal(found.ids, among[ids])
    np.testing.assert_allclose(found.scores, scores, atol=1e-5)
    np.testing.assert_array_equal(found.scores, top_k_products(U, V[among], k, 1).scores)


def test_among_equal_rows_those_with_the_smaller_id_are_found():
    V = np.ones((50, 3), np.float32)
    assert top_k_products(np.ones((1, 3)), V, 4, among=[3, 8, 20, 33, 49]).ids.tolist() == [[3, 8, 20, 33]]
    assert top_k_products(np.ones((2, 3)), V, 4, among=[]).ids.shape == (2, 0)


@pytest.mark.parametrize("among", [[3, 2], [1, 1], [-1, 2], [0, 50], [[1, 2]]])
def test_rows_to_look_among_must_be_ascending_rows_of_v(among):
    with pytest.raises(DataError, match="ascending rows of V, from 0 to 49"):
        top_k_products(np.ones((1, 3)), np.ones((50, 3), np.float32), 2, among=among)


def test_the_kernel_of_chosen_rows_refuses_those_outside():
    U, V = drawn(1, 10, 4)
    ids, scores = np.empty((1, 2), np.int64), np.empty((1, 2), np.float32)
    for chosen in ([3, 10], [-1, 3], [3]):
        with pytest.raises(IndexError):
            stream_best(U, V, np.array(chosen), 0, len(chosen), ids, scores)
