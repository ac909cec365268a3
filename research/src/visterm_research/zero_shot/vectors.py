"""The word vectors of zero-shot tagging: of a sentence network, of the tag lists themselves, and random ones."""

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
"""Numbers of learned and of random vectors."""


def word_sources(tags: Sequence[str], Y: sp.csr_array, *, dim: int = DIM, seed: int = 0) -> dict[str, Floats]:
    """Return the vectors of all tags from each source, prepared (`prepared`).

    Parameters
    ----------
    tags : sequence of str
        The columns of `Y`.
    Y : csr_array, shape (n_images, n_tags)
        The tag lists of the training images, those of held-out tags too: "learned" reads them as text.
    dim : int
        Numbers of learned and random vectors.
    seed : int

    Returns
    -------
    dict of str to ndarray of float32, shape (n_tags, width)
        "sentences" (not where the extra ``text`` is not installed), "learned", and "random", a control that must fail.
    """
    drawn = np.random.default_rng(seed).standard_normal((len(tags), dim)).astype(np.float32)
    found = {"learned": prepared(tag_list_vectors(tags, Y, dim=dim, seed=seed)), "random": prepared(drawn)}
    with suppress(MissingExtraError):
        found["sentences"] = prepared(sentence_vectors(list(tags)).matrix)
    return {name: found[name] for name in SOURCES if name in found}


def tag_list_vectors(tags: Sequence[str], Y: sp.csr_array, *, dim: int = DIM, seed: int = 0) -> Floats:
    """Learn vectors from the tag lists of images alone; parameters are those of `word_sources`."""
    given = sp.csr_array(Y > 0)
    lists = [
        [tags[tag] for tag in given.indices[start:end]]
        for start, end in zip(given.indptr[:-1], given.indptr[1:], strict=True)
    ]
    return vectors_of_tags(learn_word_vectors(lists, "ppmi", dim=dim, random_state=seed), tags)[0]


def prepared(vectors: Floats) -> Floats:
    """Centre vectors and bring them to length 1: those of a sentence network share a part that says nothing of a word.

    Rows of zeros are words without a vector, and stay.
    """
    placed = vectors.any(axis=1)
    rows = np.zeros(vectors.shape, np.float32)
    centred = vectors[placed] - vectors[placed].mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    rows[placed] = centred / np.where(lengths > 0, lengths, 1)
    return rows


def with_common(vectors: Floats) -> Floats:
    """Return each vector one more number, 1; rows of zeros stay.

    Most tags are wrong for an image, so the cross-entropy asks that scores be low. Where vectors are centred and stay
    as they are, a network cannot score all words low at once: it scores low those that it is shown, and so the others
    high. The common number is for that, and leaves the order of words alone. Vectors that learn need it not.

    Parameters
    ----------
    vectors : ndarray of float32, shape (n_words, width)

    Returns
    -------
    ndarray of float32, shape (n_words, width + 1)
    """
    return np.hstack([vectors, vectors.any(axis=1, keepdims=True).astype(np.float32)])
