"""Several runs on the same ground: the images that all can read, the tags that all know, and queries for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.query_files import QueryRow, judge_images, read_query_file
from visterm.data.tag_queries import queries_of_tags
from visterm.data.tag_tree import TreeColumns
from visterm.features.training_rows import source_of_rows
from visterm.tagging.run import Run


class SharedRows(NamedTuple):
    """Images that all taggers could read."""

    rows: list[Matrix]  # One of shape (n_images, n_features) for each tagger
    corpus: Corpus  # The images, with what is known of them
    skipped: list[Skipped]  # Images that one of the taggers could not read, or whose names one does not know


def encode_for_all(taggers: Sequence[Run], corpus: Corpus, progress: Progress = SILENT) -> SharedRows:
    """Encode the images for each tagger, once for those whose encoders are the same.

    Raises DataError if an encoder reads names, and knows none of the images.
    """
    encoded: dict[str, tuple[Matrix, NDArray[np.int64]]] = {}
    skipped = {item.image: item for item in corpus.skipped}
    for tagger in taggers:
        if tagger.encoder.fingerprint not in encoded:
            if corpus.encoded is None:
                tagger.encoder.refuse_unknown(corpus.images, only_if_all=True)
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


def shared_vocabulary(taggers: Sequence[Run]) -> Vocabulary:
    """Return the tags that all taggers know, in the order of the first."""
    first = taggers[0].vocabulary
    known = [column for column, tag in enumerate(first) if all(tag in other.vocabulary for other in taggers[1:])]
    return first.subset(known)


def tree_of(taggers: Sequence[Run], vocabulary: Vocabulary) -> TreeColumns | None:
    """Return the tree of the first tagger that has one, in the columns of a vocabulary; None if none of them has."""
    words = next((tagger.tree.words for tagger in taggers if tagger.tree is not None), None)
    return None if words is None else TreeColumns(words, vocabulary)


def known_to_any(taggers: Sequence[Run], rows: Sequence[Matrix], vocabulary: Vocabulary) -> sp.csr_array | None:
    """Return the tags that any tagger learned of images known by number, in the columns of a vocabulary of all.

    The matrix, (n_images, n_tags), is not 0 where a tagger learned the tag of the image; None where none of them knows
    images by number.
    """
    known_to_some: sp.csr_array | None = None
    for tagger, X in zip(taggers, rows, strict=True):
        own = tagger.known_tags(X)
        if own is not None:
            columns = [tagger.vocabulary.index(tag) for tag in vocabulary]
            shared = sp.csr_array(abs(own)[:, columns])
            known_to_some = shared if known_to_some is None else sp.csr_array(known_to_some + shared)
    return known_to_some


class SharedQueries(NamedTuple):
    """Queries as texts, as words in the columns of each tagger, and what is relevant."""

    texts: list[str]
    words: list[sp.csr_array]
    """One of shape (n_queries, n_tags) for each tagger: above 0 for a word, below 0 for a `-word`."""
    relevant: sp.csr_array  # shape (n_queries, n_images)
    left_out: int  # Queries of a file that have no word that every tagger knows, or no relevant image here


def queries_from_tags(
    taggers: Sequence[Run], tags: list[list[str]], max_words: int | None, min_count: int
) -> SharedQueries:
    """Make queries of the tags that all taggers know, each tagger with its own columns."""
    there = Vocabulary.from_lists(tags, min_count=min_count, aliases=taggers[0].vocabulary.aliases)
    known = (column for column, tag in enumerate(there) if all(tag in tagger.vocabulary for tagger in taggers))
    shared = there.subset(known)
    if len(shared) == 0:
        return SharedQueries([], [], sp.csr_array((0, len(tags))), 0)
    made = queries_of_tags(shared.encode(tags), max_words=max_words)
    words = [as_csr(made.words @ tagger.vocabulary.encode([[tag] for tag in shared])) for tagger in taggers]
    return SharedQueries(made.texts(shared.tags), words, made.relevant, 0)


def queries_from_file(taggers: Sequence[Run], names: list[str], queries: Path | Sequence[QueryRow]) -> SharedQueries:
    """Take the queries of a file that have a relevant image here and, for each tagger, a word that it knows."""
    rows = read_query_file(queries) if isinstance(queries, Path) else queries
    judged = judge_images(rows, names)
    found: list[list[Any]] = []
    kept: list[int] = []
    for number, text in enumerate(judged.texts):
        try:
            weights = [tagger.vocabulary.query(text).weights for tagger in taggers]
        except UserError:
            continue
        if all(of_tagger.nnz for of_tagger in weights):
            found.append(weights)
            kept.append(number)
    words = [
        as_csr(sp.vstack([of_query[i] for of_query in found], format="csr")) if found else sp.csr_array((0, 1))
        for i in range(len(taggers))
    ]
    n_texts = len({row.query for row in rows})
    return SharedQueries([judged.texts[i] for i in kept], words, judged.relevant[kept], n_texts - len(kept))
