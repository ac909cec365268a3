"""The same images for several taggers: the rows of each, of the images that all of them could read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.features.training_rows import refuse_strangers, source_of_rows
from visterm.tagging.tagger import Tagger


class SharedRows(NamedTuple):
    """Images that all taggers could read.

    Attributes
    ----------
    rows : list of matrices, shape (n_images, n_features)
        For each tagger.
    corpus : Corpus
        The images, with what is known of them.
    skipped : list of Skipped
        Images that one of the taggers could not read, or whose names one does not know.
    """

    rows: list[Matrix]
    corpus: Corpus
    skipped: list[Skipped]


def encode_for_all(taggers: Sequence[Tagger], corpus: Corpus, progress: Progress = SILENT) -> SharedRows:
    """Encode the images for each tagger, once for those whose encoders are the same.

    Raises
    ------
    DataError
        If an encoder reads names, and knows none of the images.
    """
    encoded: dict[str, tuple[Matrix, NDArray[np.int64]]] = {}
    skipped: dict[str, Skipped] = {}
    for tagger in taggers:
        if tagger.encoder.fingerprint not in encoded:
            refuse_strangers(tagger.encoder, corpus)
            X, kept, unread = source_of_rows(tagger.encoder, corpus).encode(corpus.images, progress=progress)
            encoded[tagger.encoder.fingerprint] = X, np.asarray(kept)
            skipped.update({item.image: item for item in unread})
    common = np.arange(len(corpus))
    for _, kept in encoded.values():
        common = np.intersect1d(common, kept)
    rows = {
        name: X if kept.size == common.size else X[np.searchsorted(kept, common)] for name, (X, kept) in encoded.items()
    }
    of_each = [rows[tagger.encoder.fingerprint] for tagger in taggers]
    return SharedRows(of_each, corpus.subset(common), list(skipped.values()))


def shared_vocabulary(taggers: Sequence[Tagger]) -> Vocabulary:
    """Return the tags that all taggers know, in the order of the first."""
    first = taggers[0].vocabulary
    known = [column for column, tag in enumerate(first) if all(tag in other.vocabulary for other in taggers[1:])]
    return first.subset(known)


def told_of_any(taggers: Sequence[Tagger], rows: Sequence[Matrix], vocabulary: Vocabulary) -> sp.csr_array | None:
    """Return the tags that any tagger learned of images known by number, in the columns of a vocabulary of all.

    Returns
    -------
    csr_array or None, shape (n_images, n_tags)
        Not 0 where a tagger was told; None where none of them knows images by number.
    """
    told: sp.csr_array | None = None
    for tagger, X in zip(taggers, rows, strict=True):
        own = tagger.known_tags(X)
        if own is not None:
            columns = [tagger.vocabulary.index(tag) for tag in vocabulary]
            shared = sp.csr_array(abs(own)[:, columns])
            told = shared if told is None else sp.csr_array(told + shared)
    return told
