"""From what users give (folders, files, arrays, tag lists) to the rows that a model learns from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.image_folders import find_images

Photos: TypeAlias = "str | os.PathLike[str] | Corpus | Sequence[Any]"


class TrainingRows(NamedTuple):
    """Features and tags to learn from, and those that the corpus holds out to choose when to stop.

    Attributes
    ----------
    vocabulary : Vocabulary
        The tags of the columns of `Y`.
    X, Y : matrices, shape (n_images, n_features) and (n_images, n_tags)
        Rows to learn from.
    valid : tuple of matrices or None
        Rows of the split "valid"; None where none of them has a known tag.
    skipped : list of Skipped
        Images that could not be read.
    """

    vocabulary: Vocabulary
    X: Matrix
    Y: sp.csr_array
    valid: tuple[Matrix, sp.csr_array] | None
    skipped: list[Skipped]


def training_rows(
    encoder: Any,
    corpus: Corpus,
    *,
    min_count: int = 1,
    progress: Progress = SILENT,
) -> TrainingRows:
    """Collect the vocabulary of the rows to learn from, fit the encoder on their images, and encode.

    A corpus with splits is learned from its rows of "train", with those of "valid" held out; one without, from all.

    Raises
    ------
    DataError
        If no image or no tag is left to learn from.
    """
    has_splits = any(corpus.splits)
    train = corpus.select("train") if has_splits else corpus
    held_out = corpus.subset([i for i, split in enumerate(corpus.splits) if split == "valid"])
    vocabulary = Vocabulary.from_lists(train.tags, min_count=min_count)
    if len(vocabulary) == 0:
        raise DataError(
            f"None of the {len(train)} training images has a tag that at least {min_count} of them share. "
            "Lower --min-count, or check the tags column of the tag file."
        )
    encoder.fit(train.images, skip_unreadable=True, progress=progress)
    X, Y, skipped = encode_corpus(encoder, train, vocabulary, progress)
    X_valid, Y_valid, skipped_valid = encode_corpus(encoder, held_out, vocabulary, progress)
    usable = Y_valid.nnz > 0 and Y_valid.max() > 0
    return TrainingRows(vocabulary, X, Y, (X_valid, Y_valid) if usable else None, skipped + skipped_valid)


def encode_corpus(
    encoder: Any, corpus: Corpus, vocabulary: Vocabulary, progress: Progress = SILENT
) -> tuple[Matrix, sp.csr_array, list[Skipped]]:
    """Give features and tags of the images of a corpus that can be read, and the others with reasons."""
    if len(corpus) == 0:
        return np.empty((0, 0), np.float32), sp.csr_array((0, len(vocabulary)), dtype=np.float32), []
    X, kept, skipped = encoder.encode(corpus.images, progress=progress)
    Y = vocabulary.encode([corpus.tags[i] for i in kept], [corpus.negatives[i] for i in kept])
    return X, Y, skipped


def as_corpus(images: Photos, tags: Any) -> Corpus:
    """Give the corpus that is meant by a folder and a tag file, or by images and their tags side by side."""
    if isinstance(images, Corpus):
        return images
    if isinstance(tags, str | os.PathLike):
        if not isinstance(images, str | os.PathLike):
            raise UserError("With a tag file, images must be a folder; or pass the tags of each image as lists.")
        return Corpus.read(images, tags)
    names, items = as_images(images)
    if len(items) != len(tags):
        raise DataError(f"There are {len(items)} images, but tags for {len(tags)}; expected one list of tags an image.")
    return Corpus.of(items, names, tags)


def as_images(images: Photos) -> tuple[list[str], Sequence[Any]]:
    """Give names and images: of a file, of a folder, or of a sequence of paths or arrays."""
    if isinstance(images, Corpus):
        return images.names, images.images
    if isinstance(images, str | os.PathLike):
        images = find_images(images)
    names = [os.fspath(i) if isinstance(i, str | os.PathLike) else f"image {n}" for n, i in enumerate(images)]
    return names, images
