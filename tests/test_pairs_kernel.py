"""The best pairs of tags, and the ranks of pairs, are to the bit those of sorting the scores of all pairs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from reference.pairs import pairs_in_order
from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.kernels.pairs import COLUMNS, FIRST_ROWS, pair_ranks, pair_terms, top_pairs
from visterm.models.parts.objects_and_parts import best_pairs, label_terms, ranks_of_pairs


def normal(rng, *shape):
    return rng.standard_normal(shape)


def few_values(rng, *shape):
    """Sums are exact, and many are equal."""
    return rng.integers(-2, 3, shape)


def all_equal(rng, *shape):
    return np.full(shape, 0.1)


def neighbouring_floats(rng, *shape):
    """Nearly all sums are rounded, so that equal scores come from different numbers."""
    return 1 + rng.integers(0, 3, shape) * 2.0**-23


def of_any_size(rng, *shape):
    """Sums lose some of their terms whole; denormal numbers are among them."""
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-44, 36, shape)


def zeros_of_both_signs(rng, *shape):
    return rng.choice([0.0, -0.0, 1e-45, -1e-45], shape)


def opposed(rng, n, K):
    """F undoes what the images say, so that no bound leaves much out."""
    a, b = rng.standard_normal((2, K))
    return np.tile(a, (n, 1)), np.tile(b, (n, 1)), 1e-6 * rng.standard_normal((K, K)) - a[:, None] - b


def flat(rng, n, K):
    """The images say next to nothing; of F = V Vᵀ, with rows of one length, the diagonal is the largest."""
    V = rng.standard_normal((K, 8))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    return *(1 + 1e-3 * rng.standard_normal((2, n, K))), 0.1 * V @ V.T


CASES = [normal, few_values, all_equal, neighbouring_floats, of_any_size, zeros_of_both_signs, opposed, flat]


def drawn(case, n, K, seed=0):
    rng = np.random.default_rng(seed)
    parts = case(rng, n, K) if case in (opposed, flat) else (case(rng, n, K), case(rng, n, K), case(rng, K, K))
    return tuple(np.asarray(values, np.float32) for values in parts)


def check(A, B, F, k):
    """Compare the k best of each row, and the places of the best, the worst and some others, with the sorted list."""
    K = len(F)
    terms = label_terms(F)
    found = best_pairs(A, B, terms, k, n_jobs=1)
    for a, b, objects, parts, scores in zip(A, B, found.objects, found.parts, found.scores, strict=True):
        order, expected = pairs_in_order(a, b, F)
        np.testing.assert_array_equal(objects * K + parts, order[:k])
        assert scores.tobytes() == expected[:k].tobytes()
        places = np.unique(np.linspace(0, len(order) - 1, 4).astype(int)) if len(order) else np.arange(0)
        rows = [np.tile(values, (len(places), 1)) for values in (a, b)]
        numbers = order[places]
        np.testing.assert_array_equal(ranks_of_pairs(*rows, terms, numbers // K, numbers % K, 1), places)


def test_the_scores_of_a_pair_are_those_of_both_images_and_of_the_two_tags():
    A, B = [[1, 0]], [[0, 2]]
    F = [[0, 0.5], [1, 0]]
    pairs = best_pairs(A, B, F, 4)
    assert pairs.scores.tolist() == [[3.5, 2, 1, 1]]
    assert pairs.objects.tolist() == [[0, 1, 0, 1]]  # the two of score 1 by their object
    assert pairs.parts.tolist() == [[1, 1, 0, 0]]
    assert ranks_of_pairs(A * 2, B * 2, F, [0, 1], [0, 0]).tolist() == [2, 3]


@pytest.mark.parametrize(("K", "k"), [(1, 1), (2, 2), (5, 3), (5, 20), (9, 81), (30, 10)])
@pytest.mark.parametrize("case", CASES)
def test_the_best_pairs_are_those_of_a_stable_sort_to_the_bit(case, K, k):
    A, B, F = drawn(case, 3, K, seed=K)
    check(A, B, F, k)


@pytest.mark.parametrize("case", CASES)
def test_more_tags_than_a_block_of_columns_change_nothing(case):
    A, B, F = drawn(case, 1, COLUMNS + 5)
    check(A, B, F, 10)
    A, B, F = drawn(case, 1, COLUMNS + 1, seed=1)  # the last tag's block has no other column
    check(A, B, F, FIRST_ROWS[1] + 3)


def test_a_diagonal_above_all_else_is_found():
    rng = np.random.default_rng(0)
    A, B = rng.random((2, 2, 12), np.float32)
    F = 5 * np.eye(12, dtype=np.float32)
    pairs = best_pairs(A, B, F, 12)
    np.testing.assert_array_equal(pairs.objects, pairs.parts)


@pytest.mark.parametrize("K", [1, 7, COLUMNS, COLUMNS + 1])
def test_the_bounds_of_f_are_the_extremes_beside_the_diagonal(K):
    F = drawn(of_any_size, 1, K)[2]
    terms = pair_terms(F)
    beside = np.ma.masked_array(F, np.eye(K, dtype=bool))
    np.testing.assert_array_equal(terms.row_max, beside.max(axis=1).filled(-np.inf))
    np.testing.assert_array_equal(terms.row_min, beside.min(axis=1).filled(np.inf))
    np.testing.assert_array_equal(terms.diagonal, F.diagonal())


def test_results_are_the_same_bytes_for_any_number_of_threads_and_for_each_row_alone():
    A, B, F = drawn(neighbouring_floats, 37, 9)
    objects, parts = np.random.default_rng(1).integers(0, 9, (2, 37))
    one, ranks = best_pairs(A, B, F, 7, 1), ranks_of_pairs(A, B, F, objects, parts, 1)
    for n_jobs in (2, 3, None):
        for found, expected in zip(best_pairs(A, B, F, 7, n_jobs), one, strict=True):
            assert found.tobytes() == expected.tobytes()
        np.testing.assert_array_equal(ranks_of_pairs(A, B, F, objects, parts, n_jobs), ranks)
    for i in (0, 8, 36):
        row = slice(i, i + 1)
        for found, expected in zip(best_pairs(A[row], B[row], F, 7, 1), one, strict=True):
            assert found.tobytes() == expected[row].tobytes()
        assert ranks_of_pairs(A[row], B[row], F, objects[row], parts[row], 1) == ranks[i]


def test_a_k_of_0_means_all_and_a_larger_one_than_there_are_gives_all():
    A, B, F = drawn(normal, 2, 3)
    for k in (0, 9, 100):
        assert best_pairs(A, B, F, k).scores.shape == (2, 9)
    assert best_pairs(A[:0], B[:0], F, 4).parts.shape == (0, 4)
    assert ranks_of_pairs(A[:0], B[:0], F, [], []).shape == (0,)


def test_any_layout_and_type_is_taken_and_nothing_is_changed():
    A, B, F = drawn(few_values, 2, 6)
    expected = best_pairs(A, B, F, 5)
    for values in (A, B, F):
        values.setflags(write=False)
    for make in (np.asfortranarray, np.ndarray.tolist, lambda values: values.astype(np.int64)):
        for found, wanted in zip(best_pairs(*(make(values) for values in (A, B, F)), 5), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_scores_of_all_pairs_are_never_held():
    A, B, F = drawn(normal, 8, 150)
    terms = label_terms(F)
    best_pairs(A, B, terms, 5)  # compiled
    tracemalloc.start()
    best_pairs(A, B, terms, 5, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < F.nbytes


def test_scores_that_do_not_fit_are_refused():
    A, B, F = drawn(normal, 2, 3)
    with pytest.raises(ShapeError, match=r"F has the shape \(3, 2\); expected \(n_tags, n_tags\)"):
        best_pairs(A, B, F[:, :2], 1)
    with pytest.raises(ShapeError, match=r"F has the shape \(0, 0\)"):
        label_terms(np.empty((0, 0)))
    with pytest.raises(ShapeError, match=r"A has the shape \(2, 3\), B \(1, 3\); expected \(n, 3\) for both"):
        best_pairs(A, B[:1], F, 1)
    with pytest.raises(ShapeError, match=r"expected \(n, 3\)"):
        ranks_of_pairs(A[:, :2], B[:, :2], F, [0, 0], [1, 1])
    for name, place in (("A", 0), ("B", 1), ("F", 2)):
        for value, message in ((np.nan, "contains NaN"), (np.inf, "infinity"), (2e37, "up to 2e")):
            matrices = [A.copy(), B.copy(), F.copy()]
            matrices[place][1, 1] = value
            with pytest.raises(DataError, match=f"{name} .*{message}"):
                best_pairs(*matrices, 1)
    with refused("k", value=-1):
        best_pairs(A, B, F, -1)


def test_tags_of_pairs_that_do_not_fit_are_refused():
    A, B, F = drawn(normal, 2, 3)
    with pytest.raises(ShapeError, match=r"objects has the shape \(1,\)"):
        ranks_of_pairs(A, B, F, [0], [0, 1])
    with pytest.raises(ShapeError, match="type float64"):
        ranks_of_pairs(A, B, F, [0, 1], [0.0, 1.0])
    with pytest.raises(DataError, match="parts has the tag 3; expected 0 to 2"):
        ranks_of_pairs(A, B, F, [0, 1], [0, 3])
    with pytest.raises(DataError, match="objects has the tag -1"):
        ranks_of_pairs(A, B, F, [0, -1], [0, 1])


def test_kernels_refuse_what_is_outside():
    A, B, F = drawn(normal, 2, 3)
    terms = pair_terms(F)
    ids, scores, tags = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    with pytest.raises(IndexError):
        top_pairs(A, B, terms, 0, 3, ids, scores)
    with pytest.raises(IndexError):
        top_pairs(A[:, :2].copy(), B, terms, 0, 2, ids, scores)
    with pytest.raises(IndexError):
        top_pairs(A, B, terms, 0, 2, np.zeros((2, 10), np.int64), np.zeros((2, 10), np.float32))
    with pytest.raises(IndexError):
        pair_ranks(A, B, terms, tags, tags, -1, 2, tags.copy())
    with pytest.raises(IndexError):
        pair_ranks(A, B, terms, tags, tags + 3, 0, 2, tags.copy())
