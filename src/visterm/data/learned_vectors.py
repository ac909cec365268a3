"""Word vectors learned from lists of tags themselves, where no file has any: tags of the same company are near."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_generator, check_choice, check_count
from visterm.core.errors import DataError
from visterm.core.threads import one_blas_thread
from visterm.core.types import RandomState
from visterm.core.vocabulary import Vocabulary
from visterm.data.word_vectors import WordVectors
from visterm.kernels.skipgram import skipgram_epoch

METHODS = ("ppmi", "skipgram")

SMOOTHING = 0.75  # Power of the counts of contexts and of negatives, by which rare ones count for more (both papers)
EPOCHS, RATE, LAST_RATE = 20, 0.05, 0.0005
NEGATIVES, CONTEXTS = 5, 10  # Negatives of each pair, and others of a list that a tag predicts in an epoch, at most


def learn_word_vectors(
    tag_lists: Iterable[Iterable[str]], method: str = "ppmi", *, dim: int = 100, random_state: RandomState = 0
) -> WordVectors:
    """Learn a vector of `dim` numbers for each tag from which others it stands with.

    Numbers beyond what the tags give are 0. `tag_lists` are the tags of each image (or any lists of words); spellings
    that are one tag are counted together. Vectors are in the order of `Vocabulary.from_lists`.

    "ppmi": how much more often two tags stand together than by chance, ``max(0, log p(i, j) / p(i) p'(j))`` with the
    smoothed p', taken to `dim` dimensions by singular values, ``U √S`` (Levy, Goldberg, Dagan 2015). Good with few
    lists; a tag that is always alone has zeros. "skipgram": each tag predicts the others of its list among drawn ones
    (Mikolov et al. 2013), one list after the other. Raises UserError if `method` or `dim` cannot be used; DataError if
    there are no tags.
    """
    check_choice(method, "method", METHODS)
    check_count(dim, "dim")
    lists = [list(tags) for tags in tag_lists]
    vocabulary = Vocabulary.from_lists(lists)
    if len(vocabulary) == 0:
        raise DataError("There are no tags to learn word vectors from.")
    Y = vocabulary.encode(lists)
    rng = as_generator(random_state)
    with one_blas_thread():
        rows = _ppmi_rows(Y, dim, rng) if method == "ppmi" else _skipgram_rows(Y, dim, rng)
    return WordVectors(vocabulary.tags, rows)


def ppmi(Y: sp.csr_array) -> sp.csr_array:
    """Return the positive pointwise mutual information of tags that share rows, contexts smoothed.

    `Y`, (n_lists, n_tags), has ones; the result is float64 of shape (n_tags, n_tags), with an empty diagonal.
    """
    together = sp.csr_array(Y.T.astype(np.float64) @ Y)
    together.setdiag(0)
    together.eliminate_zeros()
    pairs = together.tocoo()
    of_word = np.asarray(together.sum(axis=1), np.float64)
    as_context = of_word**SMOOTHING  # the matrix is symmetric
    expected = of_word[pairs.row] * as_context[pairs.col] / max(as_context.sum(), 1)
    values = np.log(pairs.data / expected)
    is_positive = values > 0
    return sp.csr_array((values[is_positive], (pairs.row[is_positive], pairs.col[is_positive])), shape=together.shape)


def _ppmi_rows(Y: sp.csr_array, dim: int, rng: np.random.Generator) -> NDArray[np.float32]:
    information = ppmi(Y)
    n = information.shape[0]
    if dim < n // 2:
        from scipy.sparse.linalg import svds  # takes long to import

        U, S, _ = svds(information, k=dim, v0=rng.random(n))
    else:
        U, S, _ = np.linalg.svd(information.toarray())
    largest = np.argsort(-S, kind="stable")[:dim]
    U, S = U[:, largest], S[largest]
    U *= np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(S))])  # else either sign may come out
    rows = np.zeros((n, dim), np.float32)
    rows[:, : len(S)] = U * np.sqrt(S)
    return rows


def _skipgram_rows(Y: sp.csr_array, dim: int, rng: np.random.Generator) -> NDArray[np.float32]:
    counts = np.asarray(Y.sum(axis=0), np.float64)
    ends = np.cumsum(counts**SMOOTHING)
    seed = int(rng.integers(2**31))
    words = ((rng.random((Y.shape[1], dim)) - 0.5) / dim).astype(np.float32)
    contexts = np.zeros_like(words)
    rates = np.linspace(RATE, LAST_RATE, EPOCHS + 1)
    for epoch in range(EPOCHS):
        shuffled = Y[rng.permutation(Y.shape[0])]
        starts, tags = shuffled.indptr.astype(np.int64), shuffled.indices.astype(np.int32)
        skipgram_epoch(
            starts, tags, ends, words, contexts, CONTEXTS, NEGATIVES, rates[epoch], rates[epoch + 1], seed, epoch
        )
    return words
