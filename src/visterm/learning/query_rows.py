"""Encode queries and their images as rows: images, words, and which images are relevant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import weigh_words
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Floats, Ints, Matrix, Skipped
from visterm.core.vocabulary import Vocabulary, split_query
from visterm.core.wording import count_of, first_or
from visterm.data.corpus import Corpus
from visterm.data.image_folders import Unsearched, images_in, match_names, plain_name
from visterm.data.tag_formats.record import TagsFound, record
from visterm.data.tag_queries import QueryRow, judge_images, queries_of_tags, read_query_file
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import is_features
from visterm.features.stored import Features
from visterm.features.training_rows import (
    TRAIN_SPLIT,
    VALID_SPLIT,
    Photos,
    TrainingRows,
    as_images,
    known_part,
    source_of_rows,
)
from visterm.learning.part_settings import names_with
from visterm.models.abilities import LearnsQueries
from visterm.models.base import Annotator


def query_lines(encoder: AnyEncoder, queries: str | os.PathLike[str] | Sequence[QueryRow]) -> list[QueryRow]:
    """Read queries from a file, or convert a sequence of queries.

    Raises UserError if the encoder knows images by number; DataError like `read_query_file`.
    """
    if encoder.by_number:
        name = ENCODERS.name_of(encoder)
        raise UserError(
            f"Queries are learned from the pixels of images, but the encoder '{name}' knows images by number only.",
            setting="encoder", value=name, advice="Choose an `encoder` that looks at pixels, or precomputed.",
        )  # fmt: skip
    return read_query_file(queries) if isinstance(queries, str | os.PathLike) else [QueryRow(*row) for row in queries]


def query_corpus(encoder: AnyEncoder, images: Photos | None, lines: list[QueryRow]) -> tuple[Corpus, list[QueryRow]]:
    """Read the images of queries, without tags; return them, and the queries with the corpus's names of images.

    `images` are as in `Tagger.fit`; all images of a folder are used. None means the images that the queries name, in
    the same forms as in a tag file. Raises UserError if the encoder needs a folder and there is none; DataError like
    `Corpus.read`.
    """
    if isinstance(images, Corpus):
        return images, lines
    if images is None:
        if encoder.reads != "names":
            raise UserError(
                f"`images` is missing: the encoder '{ENCODERS.name_of(encoder)}' looks at pixels.",
                setting="images", advice="Pass the folder of images that the queries name.",
            )  # fmt: skip
        names = list(dict.fromkeys(plain_name(row.image) for row in lines))
        return Corpus.of(names, names, [[] for _ in names]), lines
    if not isinstance(images, str | os.PathLike):
        names, items = as_images(images)
        return Corpus.of(list(items), names, [[] for _ in names]), lines

    if is_features(images):
        corpus = Features(images).corpus()
    else:
        folder = Path(images)
        unsearched = Unsearched()
        paths = images_in(folder, unsearched=unsearched)
        records = [record(path.relative_to(folder).as_posix(), [], None) for path in paths]
        corpus = Corpus.joined(folder, paths, TagsFound(records, [], skipped=unsearched.closed))

    query_names = list(dict.fromkeys(row.image for row in lines))
    matches = dict(zip(query_names, match_names(Path(), list(map(Path, corpus.names)), query_names), strict=True))
    return corpus, [
        row if (match := matches[row.image]) is None else row._replace(image=match.path.as_posix()) for row in lines
    ]


class QueryImages(NamedTuple):
    """Images, and the queries that have a relevant image among them."""

    X: Matrix  # shape (n_images, n_features)
    words: sp.csr_array  # float32, shape (n_queries, n_tags): above 0 for a word, below 0 for a `-word`
    relevant: sp.csr_array  # float32, shape (n_queries, n_images)

    @property
    def words_of_images(self) -> sp.csr_array:
        """Return the words of the queries to which each image is relevant, shape (n_images, n_tags): 1 or 0."""
        return as_csr((sp.csr_array(self.relevant.T > 0) @ sp.csr_array(self.words > 0)).astype(np.float32))


class QueryRows(NamedTuple):
    """Queries for training, and queries of held-out images for early stopping."""

    rows: TrainingRows  # The images; their tags are the words of the queries that they are relevant to
    learned: QueryImages
    valid: QueryImages | None
    facts: dict[str, int]  # Number of used queries, of skipped queries, and of images of queries that don't exist

    def fit(self, model: Annotator, idf: Floats, progress: Progress) -> None:
        """Fit a model on the queries, with words weighted by `idf`."""
        X, words, relevant = self.learned
        held_out = None
        if self.valid is not None:
            held_out = (self.valid.X, weigh_words(self.valid.words, idf), self.valid.relevant)
        model.fit_queries(X, weigh_words(words, idf), relevant, valid=held_out, monitor=progress)


def query_rows(
    encoder: AnyEncoder,
    corpus: Corpus,
    lines: Sequence[QueryRow],
    *,
    only_tags: bool = False,
    min_count: int = 1,
    aliases: Mapping[str, str] | None = None,
    progress: Progress = SILENT,
) -> QueryRows:
    """Collect the words of the queries, fit the encoder on the images, and encode.

    As in `training_rows`, if there are splits, "train" is used for training and "valid" is held out. All images of the
    splits are used, also images that are not relevant to any query. With `only_tags`, only tags of the corpus count as
    words, weighted by how many images have them; otherwise all words of the queries count, weighted by how many images
    are relevant to a query with the word. Words of fewer than `min_count` images are left out. Raises DataError if no
    query remains.
    """
    train = corpus.select(TRAIN_SPLIT) if any(corpus.splits) else corpus
    held_out = corpus.subset([i for i, split in enumerate(corpus.splits) if split == VALID_SPLIT])
    train, unknown = known_part(encoder, train)
    held_out, unknown_held_out = known_part(encoder, held_out)
    judged = judge_images(lines, train.names)
    captions = train.tags if only_tags else _captions(judged.texts, judged.relevant)
    candidates = Vocabulary.from_lists(captions, min_count=min_count, aliases=aliases)
    words, usable = words_of(judged.texts, candidates)
    learned = QueryImages(np.empty((len(train), 0), np.float32), words[usable].sign(), judged.relevant[usable])
    counts = candidates.counts if only_tags else np.bincount(learned.words_of_images.indices, minlength=len(candidates))
    kept_words = np.flatnonzero(
        (np.bincount(words.indices[words.data > 0], minlength=len(candidates)) > 0) & (counts >= min_count)
    )
    if kept_words.size == 0:
        raise DataError(
            f"None of the {len({row.query for row in lines}):,} queries has both a relevant image "
            f"among the {count_of(len(train), 'image')} to learn from and a {'tag' if only_tags else 'word'} "
            f"that at least {min_count} of them have.",
            setting="min_count", value=min_count,
            advice="Check that the query file names images as the folder or the tag file does, or lower `min_count`.",
        )  # fmt: skip

    vocabulary = candidates.subset(kept_words, counts[kept_words])
    if corpus.encoded is None:
        encoder.fit(train.images, skip_unreadable=True, progress=progress)
    learned, skipped = _encode(encoder, train, lines, vocabulary, progress)
    valid, skipped_valid = _encode(encoder, held_out, lines, vocabulary, progress)
    if learned.relevant.nnz == 0:
        raise DataError("No image that is relevant to a query could be read, so there is nothing to learn.")
    names = {*train.names, *held_out.names}
    usable_valid = valid if valid.relevant.nnz else None
    query_counts = {
        "queries": learned.words.shape[0],
        "queries left out": len({row.query for row in lines}) - learned.words.shape[0],
        "images of queries not there": len({row.image for row in lines} - names),
    }
    valid_rows = None if usable_valid is None else (usable_valid.X, usable_valid.words_of_images)
    left_out = [*corpus.skipped, *unknown, *unknown_held_out, *skipped, *skipped_valid]
    all_names = [*train.names, *held_out.names]
    rows = TrainingRows(vocabulary, learned.X, learned.words_of_images, valid_rows, left_out, names=all_names)
    return QueryRows(rows, learned, usable_valid, query_counts)


def fit_weighed(model: Annotator, rows: TrainingRows, idf: Floats, progress: Progress) -> None:
    """Fit a model on tags, or, if it learns from queries, on queries made of tags, with words weighted by `idf`."""
    if not isinstance(model, LearnsQueries):
        model.fit(rows.X, rows.Y, side=rows.side, valid=rows.valid, monitor=progress)
        return
    names = ("max_words", "max_subsets", "random_state")
    settings: dict[str, Any] = {name: getattr(model, name) for name in names if hasattr(model, name)}

    def queries_of(Y: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
        queries = queries_of_tags(as_csr(Y > 0), **settings)
        return weigh_words(queries.words, idf), queries.relevant

    held_out = None if rows.valid is None else (rows.valid[0], *queries_of(rows.valid[1]))
    model.fit_queries(rows.X, *queries_of(rows.Y), valid=held_out, monitor=progress)


def check_learns_queries(model: Annotator) -> None:
    """Raise UserError, which lists the models that can, if a model cannot learn from queries."""
    if not isinstance(model, LearnsQueries):
        able_models = first_or([*names_with(MODELS, lambda part: hasattr(part, "fit_queries"))])
        name = MODELS.name_of(model)
        raise UserError(
            f"The model '{name}' does not learn from queries.",
            setting="model", value=name, advice=f"Choose another `model`: {able_models}.",
        )  # fmt: skip


def _captions(texts: Sequence[str], relevant: sp.csr_array) -> list[list[str]]:
    """Return for each image the words of the queries that it is relevant to; a phrase in quotes is one word."""
    query_words = [[word.text for part in split_query(text) for word in part if word.sign > 0] for text in texts]
    captions: list[list[str]] = [[] for _ in range(relevant.shape[1])]
    for query, image in zip(*relevant.tocoo().coords, strict=True):
        captions[image] += query_words[query]
    return captions


def words_of(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[sp.csr_array, Ints]:
    """Return the words of queries, as `Vocabulary.query` weighs them, and the numbers of queries with a known word."""
    rows: list[sp.csr_array] = []
    for text in texts:
        try:
            rows.append(vocabulary.query(text).weights)
        except UserError:
            rows.append(sp.csr_array((1, len(vocabulary)), dtype=np.float32))
    if not rows:
        return sp.csr_array((0, len(vocabulary)), dtype=np.float32), np.empty(0, np.int64)
    words = as_csr(sp.vstack(rows, format="csr"))
    return words, np.flatnonzero(np.diff(words.indptr))


def _encode(
    encoder: AnyEncoder, corpus: Corpus, lines: Sequence[QueryRow], vocabulary: Vocabulary, progress: Progress
) -> tuple[QueryImages, list[Skipped]]:
    """Encode the readable images, and select the queries with a known word and a relevant image among them."""
    X: Matrix = np.empty((0, 0), np.float32)
    skipped: list[Skipped] = []
    names: list[str] = []
    if len(corpus):
        X, kept_rows, skipped = source_of_rows(encoder, corpus).encode(corpus.images, progress=progress)
        names = [corpus.names[i] for i in kept_rows]
    judged = judge_images(lines, names)
    words, usable = words_of(judged.texts, vocabulary)
    return QueryImages(X, words[usable].sign(), judged.relevant[usable]), skipped
