"""The word vectors of zero-shot tagging: from a sentence network, learned from the tag lists, and random vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import MissingExtraError
from visterm.data import learn_word_vectors, vectors_of_tags
from visterm.encoders import sentence_vectors

Floats = NDArray[np.float32]

SOURCES = ("sentences", "learned", "random")

DIM = 100
"""Width of learned and of random vectors."""


def word_sources(tags: Sequence[str], Y: sp.csr_array, *, dim: int = DIM, seed: int = 0) -> dict[str, Floats]:
    """Return the vectors of all tags from each source, centred and of length 1 (`prepared`).

    Parameters
    ----------
    tags : sequence of str
        The columns of `Y`.
    Y : csr_array, shape (n_images, n_tags)
        The tag lists of the training images, including held-out tags: "learned" reads them like texts.
    dim : int
        Width of learned and random vectors.
    seed : int

    Returns
    -------
    dict of str to ndarray of float32, shape (n_tags, width)
        "sentences" (only if the extra ``text`` is installed), "learned", and "random", a control that must fail.
    """
    random_vectors = np.random.default_rng(seed).standard_normal((len(tags), dim)).astype(np.float32)
    sources = {"learned": prepared(tag_list_vectors(tags, Y, dim=dim, seed=seed)), "random": prepared(random_vectors)}
    with suppress(MissingExtraError):
        sources["sentences"] = prepared(sentence_vectors(list(tags)).matrix)
    return {name: sources[name] for name in SOURCES if name in sources}


def tag_list_vectors(tags: Sequence[str], Y: sp.csr_array, *, dim: int = DIM, seed: int = 0) -> Floats:
    """Learn vectors from only the tag lists of images; parameters are those of `word_sources`."""
    positives = sp.csr_array(Y > 0)
    lists = [
        [tags[tag] for tag in positives.indices[start:end]]
        for start, end in zip(positives.indptr[:-1], positives.indptr[1:], strict=True)
    ]
    return vectors_of_tags(learn_word_vectors(lists, dim=dim, random_state=seed), tags)[0]


def prepared(vectors: Floats) -> Floats:
    """Centre vectors and scale them to length 1: vectors of a sentence network share a part that is not about the word.

    Rows of zeros are words without a vector, and don't change.
    """
    has_vector = vectors.any(axis=1)
    rows = np.zeros(vectors.shape, np.float32)
    centred = vectors[has_vector] - vectors[has_vector].mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    rows[has_vector] = centred / np.where(lengths > 0, lengths, 1)
    return rows


def with_common(vectors: Floats) -> Floats:
    """Append the number 1 to each vector, except rows of zeros.

    Most tags are wrong for an image, so the cross-entropy needs low scores. With centred and fixed vectors, a network
    cannot give all words low scores at once: low scores of training tags make the scores of other words high. The
    common number allows low scores of all words, and doesn't change their order. Vectors that move don't need it.

    Parameters
    ----------
    vectors : ndarray of float32, shape (n_words, width)

    Returns
    -------
    ndarray of float32, shape (n_words, width + 1)
    """
    return np.hstack([vectors, vectors.any(axis=1, keepdims=True).astype(np.float32)])
