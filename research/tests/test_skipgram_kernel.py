"""The loops of skip-gram with negatives: an epoch over lists of tags."""

from __future__ import annotations

import numpy as np
import pytest

from reference import skipgram as reference
from visterm.core.errors import DataError
from visterm.data import vectors_of_tags
from visterm_research.data.skipgram import skipgram_vectors
from visterm_research.kernels.skipgram import skipgram_epoch


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


@pytest.mark.parametrize("n_contexts", [2, 10])
def test_an_epoch_of_skipgram_is_that_of_the_reference(n_contexts):
    lists = [[0, 1, 2, 3], [4], [2, 4], [], [1, 5, 0]]
    rng = np.random.default_rng(0)
    words, contexts = rng.normal(size=(2, 6, 9)).astype(np.float32)
    chances = np.array([3.0, 1, 2, 1, 2, 0.5])
    starts = np.cumsum([0, *map(len, lists)])
    tags = np.concatenate(lists).astype(np.int32)
    expected = words.astype(np.float64), contexts.astype(np.float64)
    loss = reference.skipgram_epoch(lists, chances, *expected, n_contexts, 3, 0.2, 0.1, 7, 2)
    got = skipgram_epoch(starts, tags, np.cumsum(chances), words, contexts, n_contexts, 3, 0.2, 0.1, 7, 2)
    assert got == pytest.approx(loss, rel=1e-5)
    assert words == pytest.approx(expected[0], abs=1e-5)
    assert contexts == pytest.approx(expected[1], abs=1e-5)


LISTS = [["boat", "sea"], ["ship", "sea"], ["boat", "harbour"], ["ship", "harbour"], ["cow", "grass"], ["pig", "grass"]]
"""Boat and ship never stand together, but with the same others; as do cow and pig."""


def test_tags_of_the_same_company_are_near_and_the_same_seed_gives_the_same_bytes():
    vectors = skipgram_vectors(LISTS * 20, dim=4)
    rows, _ = vectors_of_tags(vectors, ["boat", "ship", "cow", "pig"])
    boat, ship, cow, pig = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert min(boat @ ship, cow @ pig) > 0.9
    assert max(boat @ cow, ship @ pig) < 0.5
    assert np.array_equal(vectors.matrix, skipgram_vectors(LISTS * 20, dim=4).matrix)
    with pytest.raises(DataError, match="no tags"):
        skipgram_vectors([[]])
