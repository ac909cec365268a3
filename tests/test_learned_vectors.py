"""Word vectors are learned from lists of tags: tags that keep the same company come near each other."""

from __future__ import annotations

import numpy as np
import pytest

from refusals import refused
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.learned_vectors import learn_word_vectors, ppmi

LISTS = [["boat", "sea"], ["ship", "sea"], ["boat", "harbour"], ["ship", "harbour"], ["cow", "grass"], ["pig", "grass"]]
"""Boat and ship never stand together, but with the same others; as do cow and pig."""


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


def cosine(vectors, one, other):
    a, b = (vectors.matrix[vectors.find(word)] for word in (one, other))
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_tags_of_the_same_company_are_near():
    vectors = learn_word_vectors(LISTS * 20, dim=4)
    assert vectors.words == ["boat", "cow", "grass", "harbour", "pig", "sea", "ship"]
    assert vectors.matrix.shape == (7, 4)
    assert vectors.matrix.dtype == np.float32
    assert min(cosine(vectors, "boat", "ship"), cosine(vectors, "cow", "pig")) > 0.9
    assert max(cosine(vectors, "boat", "cow"), cosine(vectors, "ship", "pig")) < 0.5


def test_the_same_seed_gives_the_same_bytes():
    first, again = (learn_word_vectors(LISTS * 5, dim=3, random_state=4).matrix for _ in range(2))
    assert np.array_equal(first, again)


def test_mutual_information_by_hand():
    # Lists ab, ab, ac: a stands in 3 pairs, b in 2, c in 1; each pair is counted from both of its ends.
    Y = Vocabulary(["a", "b", "c"]).encode([["a", "b"], ["a", "b"], ["a", "c"]])
    context = np.array([3.0, 2.0, 1.0]) ** 0.75
    context /= context.sum()
    expected = np.zeros((3, 3))
    for i, j, count, of_word in [(0, 1, 2, 3), (1, 0, 2, 2), (0, 2, 1, 3), (2, 0, 1, 1)]:
        expected[i, j] = np.log(count / of_word / context[j])
    assert ppmi(Y).toarray() == pytest.approx(np.maximum(expected, 0))


def test_products_of_full_width_give_back_the_information():
    # Of a symmetric matrix with eigenvalues above and below 0, U √S √S Uᵀ has their sizes: the square is kept.
    Y = Vocabulary(["a", "b", "c", "d"]).encode([["a", "b"], ["a", "c"], ["b", "d"], ["c", "d", "a"]])
    rows = learn_word_vectors([["a", "b"], ["a", "c"], ["b", "d"], ["c", "d", "a"]], dim=4).matrix
    M = ppmi(Y).toarray()
    kept = rows.astype(np.float64) @ rows.T.astype(np.float64)
    assert kept @ kept == pytest.approx(M @ M.T, abs=1e-5)


def test_the_sparse_solver_finds_what_the_dense_one_does():
    rng = np.random.default_rng(0)
    lists = [[f"t{t}" for t in rng.choice(30, 4, replace=False)] for _ in range(60)]
    narrow, wide = (learn_word_vectors(lists, dim=dim).matrix for dim in (5, 30))
    assert narrow == pytest.approx(wide[:, :5], abs=1e-4)


def test_more_dimensions_than_tags_are_zeros_and_a_lone_tag_has_zeros():
    vectors = learn_word_vectors([["a", "b"], ["c"]], dim=5)
    assert not vectors.matrix[:, 3:].any()
    assert not vectors.matrix[vectors.find("c")].any()
    assert np.isfinite(learn_word_vectors([["c"]], dim=2).matrix).all()


def test_what_cannot_be_learned_is_refused():
    with refused("dim", value=0):
        learn_word_vectors(LISTS, dim=0)
    with pytest.raises(DataError, match="no tags"):
        learn_word_vectors([[]])
