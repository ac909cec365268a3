"""Word vectors learned from lists of tags: tags that occur with the same tags get similar vectors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_generator, check_count
from visterm.core.errors import DataError
from visterm.core.threads import one_blas_thread
from visterm.core.types import RandomState
from visterm.core.vocabulary import Vocabulary
from visterm.data.word_vectors import WordVectors

SMOOTHING = 0.75  # Exponent of the counts of contexts, which gives rare words more weight


def learn_word_vectors(
    tag_lists: Iterable[Iterable[str]], *, dim: int = 100, random_state: RandomState = 0
) -> WordVectors:
    """Learn a vector of `dim` numbers for each tag from the tags that occur with it.

    If the data support fewer dimensions, the remaining numbers are 0. `tag_lists` are the tags of each image (or any
    lists of words); all spellings of a tag count as one tag. Vectors are in the order of `Vocabulary.from_lists`.

    The positive pointwise mutual information, ``max(0, log p(i, j) / p(i) p'(j))`` with the smoothed p', measures how
    much more often two tags occur together than by chance. It is reduced to `dim` dimensions by singular values, ``U
    √S`` (Levy, Goldberg, Dagan 2015); a tag that is always alone gets zeros. Raises UserError if `dim` is invalid;
    DataError if the lists have no tags.
    """
    check_count(dim, "dim")
    lists = [list(tags) for tags in tag_lists]
    vocabulary = Vocabulary.from_lists(lists)
    if len(vocabulary) == 0:
        raise DataError("There are no tags to learn word vectors from.")
    rng = as_generator(random_state)
    with one_blas_thread():
        pmi = ppmi(vocabulary.encode(lists))
        if dim < len(vocabulary) // 2:
            from scipy.sparse.linalg import svds  # slow to import

            U, S, _ = svds(pmi, k=dim, v0=rng.random(len(vocabulary)))
        else:
            U, S, _ = np.linalg.svd(pmi.toarray())

    order = np.argsort(-S, kind="stable")[:dim]
    U, S = U[:, order], S[order]
    U *= np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(S))])  # otherwise the sign is arbitrary
    rows = np.zeros((len(vocabulary), dim), np.float32)
    rows[:, : len(S)] = U * np.sqrt(S)
    return WordVectors(vocabulary.tags, rows)


def ppmi(Y: sp.csr_array) -> sp.csr_array:
    """Return the positive pointwise mutual information of tags in the same lists, with smoothed context counts.

    `Y`, shape (n_lists, n_tags), has ones; the result is float64 of shape (n_tags, n_tags), with an empty diagonal.
    """
    counts = sp.csr_array(Y.T.astype(np.float64) @ Y)
    counts.setdiag(0)
    counts.eliminate_zeros()
    pairs = counts.tocoo()
    word_counts = np.asarray(counts.sum(axis=1), np.float64)
    context_weights = word_counts**SMOOTHING  # the matrix is symmetric
    expected = word_counts[pairs.row] * context_weights[pairs.col] / max(context_weights.sum(), 1)
    values = np.log(pairs.data / expected)
    is_positive = values > 0
    return sp.csr_array((values[is_positive], (pairs.row[is_positive], pairs.col[is_positive])), shape=counts.shape)
