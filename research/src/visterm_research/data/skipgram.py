"""Word vectors learned from lists of tags by skip-gram: from a tag, the other tags of its list are predicted."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_generator, check_count
from visterm.core.errors import DataError
from visterm.core.threads import one_blas_thread
from visterm.core.types import RandomState
from visterm.core.vocabulary import Vocabulary
from visterm.data import WordVectors
from visterm_research.kernels.skipgram import skipgram_epoch

SMOOTHING = 0.75  # Exponent of the counts of negatives, which gives rare words more weight
EPOCHS, FIRST_RATE, LAST_RATE = 20, 0.05, 0.0005
NEGATIVES, CONTEXTS = 5, 10  # Negatives per pair; maximum number of contexts per tag and epoch


def skipgram_vectors(
    tag_lists: Iterable[Iterable[str]], *, dim: int = 100, random_state: RandomState = 0
) -> WordVectors:
    """Learn a vector of `dim` numbers for each tag, with negatives (Mikolov et al. 2013).

    `tag_lists` are the tags of each image (or any lists of words); all spellings of a tag count as one tag. Vectors are
    in the order of `Vocabulary.from_lists`. Raises UserError if `dim` is invalid; DataError if the lists have no tags.
    """
    check_count(dim, "dim")
    lists = [list(tags) for tags in tag_lists]
    vocabulary = Vocabulary.from_lists(lists)
    if len(vocabulary) == 0:
        raise DataError("There are no tags to learn word vectors from.")
    with one_blas_thread():
        return WordVectors(vocabulary.tags, _rows(vocabulary.encode(lists), dim, as_generator(random_state)))


def _rows(Y: sp.csr_array, dim: int, rng: np.random.Generator) -> NDArray[np.float32]:
    counts = np.asarray(Y.sum(axis=0), np.float64)
    weights = np.cumsum(counts**SMOOTHING)
    seed = int(rng.integers(2**31))
    words = ((rng.random((Y.shape[1], dim)) - 0.5) / dim).astype(np.float32)
    contexts = np.zeros_like(words)
    rates = np.linspace(FIRST_RATE, LAST_RATE, EPOCHS + 1)
    for epoch in range(EPOCHS):
        shuffled = Y[rng.permutation(Y.shape[0])]
        starts, tags = shuffled.indptr.astype(np.int64), shuffled.indices.astype(np.int32)
        skipgram_epoch(
            starts, tags, weights, words, contexts, CONTEXTS, NEGATIVES, rates[epoch], rates[epoch + 1], seed, epoch
        )
    return words
