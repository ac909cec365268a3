"""The loops of skip-gram with negatives: an epoch over lists of tags."""

from __future__ import annotations

import numpy as np
import pytest

from reference import skipgram as reference
from visterm.kernels.skipgram import skipgram_epoch


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
