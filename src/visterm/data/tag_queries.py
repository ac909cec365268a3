"""Queries: read from a file, as in a click log, or made from sets of tags on images; and held-out tags of images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, lgamma
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_count, check_tags
from visterm.core.errors import DataError, ShapeError, TagFileError
from visterm.core.types import Matrix, Place, RandomState
from visterm.data.image_folders import plain_name
from visterm.data.tag_formats.tables import TableForm, find_column, required_column, table_rows
from visterm.data.text_files import read_text
from visterm.kernels.sorted_lists import intersect_lists

QUERY_COLUMNS = ("query", "text")
IMAGE_COLUMNS = ("image", "file_name")
RELEVANCE_COLUMNS = ("relevance", "clicks")
FORM = TableForm(
    (QUERY_COLUMNS, IMAGE_COLUMNS, RELEVANCE_COLUMNS), '{"query": "sea sky", "image": "1.jpg", "relevance": 1}'
)
MAX_SUBSETS = 2**20  # Maximum number of sets of two or more tags, summed over images, before sets are sampled
MAX_DRAWS_PER_BATCH = 2**14


class QueryRow(NamedTuple):
    """One line of a query file."""

    query: str  # As typed: ``snow tree -people``
    image: str  # The name of an image, as in the tag file
    relevance: float  # Grade of relevance; 0 or less: not relevant


class JudgedTexts(NamedTuple):
    """Queries as they were typed, and the relevant images of each query."""

    texts: list[str]
    relevant: sp.csr_array  # float32, shape (n_queries, n_images): above 0 for relevant images
    unknown: list[str]  # Images in the file that are not ranked


def read_query_file(path: Place) -> list[QueryRow]:
    """Read a CSV, TSV or JSON-lines file of queries, in the order of the file.

    It has the columns "query" (or "text"), "image" (or "file_name") and, unless every line is relevant, "relevance" (or
    "clicks"), a number. Raises TagFileError if it cannot be read, a column is missing, or a row is invalid: the message
    names file and line.
    """
    file = Path(path)
    rows = table_rows(file, read_text(file, "query file", or_utf16=True), FORM)
    if not rows:
        raise TagFileError(f"The query file {file} has no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    advice = "Expected the columns query, image and, if not every line is relevant, relevance."
    query_column, image_column = (
        required_column(column_names, names, f"The query file {file}", "", advice)
        for column_names in (QUERY_COLUMNS, IMAGE_COLUMNS)
    )
    relevance_column = find_column(RELEVANCE_COLUMNS, names, f"The query file {file}")

    query_rows = []
    for row in rows:
        position = f"{file}, line {row.line}"
        for name in (query_column, image_column):
            text = row.cells.get(name)
            if not isinstance(text, str) or not text.strip():
                raise TagFileError(f"{position}: '{name}' is {text!r:.60}; expected text.")
        value: Any = 1.0 if relevance_column is None else row.cells.get(relevance_column)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            expected = "expected a number, above 0 if the image is relevant"
            raise TagFileError(f"{position}: '{relevance_column}' is {value!r:.60}; {expected}.")
        query_rows.append(QueryRow(row.cells[query_column].strip(), row.cells[image_column].removeprefix("./"), number))
    return query_rows


def judge_images(rows: Sequence[QueryRow], images: Sequence[str]) -> JudgedTexts:
    """Group the rows of a query file by query.

    If a query and image occur on several lines, the largest relevance counts. `images` are the names of the ranked
    images, in the order of their columns. Returns the queries with at least one relevant ranked image, in the order of
    the file.
    """
    column = {name: i for i, name in enumerate(images)}
    grades: dict[str, dict[int, float]] = {}
    unknown: dict[str, None] = {}
    for row in rows:
        name = row.image if row.image in column else plain_name(row.image)
        if name not in column:
            unknown[name] = None
        elif row.relevance > 0:
            relevance_of = grades.setdefault(row.query, {})
            relevance_of[column[name]] = max(row.relevance, relevance_of.get(column[name], 0.0))

    starts = np.cumsum([0, *map(len, grades.values())])
    columns = np.array([i for relevance in grades.values() for i in sorted(relevance)], np.int32)
    values = np.array([relevance[i] for relevance in grades.values() for i in sorted(relevance)], np.float32)
    return JudgedTexts(list(grades), sp.csr_array((values, columns, starts), (len(grades), len(images))), list(unknown))


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries of words, and the relevant images of each query.

    Raises ShapeError if the two have different numbers of rows.
    """

    # float32, shape (n_queries, n_tags). 1 for a word of the query, -1 for a word that images must not have; or weights
    # of these signs.
    words: sp.csr_array
    # float32, shape (n_queries, n_images): grade of relevance, above 0 for relevant images
    relevant: sp.csr_array

    def __post_init__(self) -> None:
        if self.words.shape[0] != self.relevant.shape[0]:
            raise ShapeError(f"`words` has {self.words.shape[0]} queries, but `relevant` {self.relevant.shape[0]}.")

    def __len__(self) -> int:
        return int(self.words.shape[0])

    @property
    def n_words(self) -> NDArray[np.int64]:
        """Number of words in each query, shape (n_queries,)."""
        lengths: NDArray[np.int64] = np.diff(self.words.indptr).astype(np.int64)
        return lengths

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Number of relevant images of each query, shape (n_queries,)."""
        lengths: NDArray[np.int64] = np.diff(self.relevant.indptr).astype(np.int64)
        return lengths

    def among(self, images: NDArray[np.int64]) -> Self:
        """Return the queries with a relevant image among `images`; the columns are in the order of `images`."""
        relevant = as_csr(self.relevant[:, images])
        has_relevant = np.flatnonzero(np.diff(relevant.indptr))
        return type(self)(self.words[has_relevant], relevant[has_relevant])

    def texts(self, tags: list[str]) -> list[str]:
        """Return each query as a person would type it, with words separated by commas."""
        starts, columns, values = self.words.indptr, self.words.indices, self.words.data
        return [
            ", ".join(f"{'-' if values[e] < 0 else ''}{tags[columns[e]]}" for e in range(starts[q], starts[q + 1]))
            for q in range(len(self))
        ]


def queries_of_tags(
    Y: Any, *, max_words: int | None = 3, max_subsets: int = MAX_SUBSETS, random_state: RandomState = 0
) -> Queries:
    """Make a query of every set of at most `max_words` tags that an image has; images with all of them are relevant.

    The PAMIR paper makes queries from captions like this (section V-A), with sets of any size. `Y`, shape (n_images,
    n_tags), array-like or sparse, is above 0 for given tags. The number of sets doubles with each tag of an image, so
    larger sets are left out (None: no limit). If there are more than `max_subsets` sets of two or more tags, summed
    over images, they are sampled: every tag is still a query, and each image contributes all its larger sets, or a
    random sample whose size is the same for all images. Queries are sorted by the number of words, then by words.
    """
    check_count(max_words, "max_words", "or None for no limit")
    check_count(max_subsets, "max_subsets")
    positive_tags = as_csr(check_tags(Y, Y.shape[0] if hasattr(Y, "shape") else len(Y)) > 0)
    sizes = np.diff(positive_tags.indptr)
    max_width = int(sizes.max(initial=0)) if max_words is None else min(int(sizes.max(initial=0)), max_words)
    sets: defaultdict[int, list[NDArray[np.int32]]] = defaultdict(list)  # size -> arrays with a sorted set in each row
    sets[1].append(np.unique(positive_tags.indices)[:, None])
    counts = []  # For images with 0, 1, 2 ... tags: number of larger sets, at most `max_subsets` + 1
    for size in range(int(sizes.max(initial=0)) + 1):
        n_subsets = 0
        for width in range(2, min(size, max_width) + 1):
            if n_subsets <= max_subsets:
                n_subsets += comb(size, width)
        counts.append(min(n_subsets, max_subsets + 1))

    counts_of_images = np.array(counts, np.int64)[sizes]
    limit = int(counts_of_images.max(initial=1))
    if counts_of_images.sum() > max_subsets:
        limit = _even_limit(counts_of_images, max_subsets)
    rng = as_generator(random_state)

    for size, count in enumerate(counts):
        images = np.flatnonzero(sizes == size)
        if count == 0 or images.size == 0:
            continue
        tags = positive_tags.indices[positive_tags.indptr[images][:, None] + np.arange(size)]
        if count <= limit:
            for width in range(2, min(size, max_width) + 1):
                subsets = np.array(list(combinations(range(size), width)))
                sets[width].append(_unique_rows(tags[:, subsets].reshape(-1, width)))
        else:
            for sample in (sample for row in tags for sample in _sample(row, max_width, limit, rng)):
                sets[sample.shape[1]].append(sample)

    blocks = [np.concatenate(sets[width]) for width in sorted(sets)]
    unique_blocks = [_unique_rows(rows) for rows in blocks if len(rows)]
    starts = np.cumsum(np.concatenate([[0], *(np.full(len(part), part.shape[1]) for part in unique_blocks)]))
    columns = np.concatenate([np.empty(0, np.int32), *(part.ravel() for part in unique_blocks)]).astype(np.int32)
    ones = np.ones(columns.size, np.float32)
    words = sp.csr_array((ones, columns, starts), shape=(len(starts) - 1, positive_tags.shape[1]))
    return Queries(words, relevant_images(words, positive_tags))


def relevant_images(words: Matrix, Y: Matrix) -> sp.csr_array:
    """Find the images that have all the words of each query.

    `words`, shape (n_queries, n_tags), is not 0 for the words of a query; `Y`, shape (n_images, n_tags), is above 0 for
    given tags. Returns ones, float32 of shape (n_queries, n_images). A query without words has no relevant image.
    Raises ShapeError if the two have different numbers of tags.
    """
    words, positive_tags = as_csr(words), as_csr(as_csr(Y) > 0)
    if words.shape[1] != positive_tags.shape[1]:
        raise ShapeError(f"The queries have {words.shape[1]} tags, but the images {positive_tags.shape[1]}.")
    by_tag = sp.csr_array(positive_tags.T)
    by_tag.sort_indices()
    lists = by_tag.indptr.astype(np.int64), by_tag.indices, words.indptr.astype(np.int64), words.indices
    counts = np.zeros(words.shape[0], np.int64)
    intersect_lists(*lists, counts, np.empty(0, np.int64), np.empty(0, np.int32))
    starts = np.concatenate(([0], np.cumsum(counts)))
    images = np.empty(int(starts[-1]), np.int32)
    intersect_lists(*lists, counts, starts, images)
    return sp.csr_array((np.ones(images.size, np.float32), images, starts), (words.shape[0], positive_tags.shape[0]))


def _unique_rows(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Sort rows lexicographically, and drop repetitions."""
    rows = rows[np.lexsort(rows.T[::-1])]
    return rows[np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1)))]


def _even_limit(counts: NDArray[np.int64], total: int) -> int:
    """Return the largest limit, at least 1, with which the sum of ``min(count, limit)`` is at most `total`."""
    sorted_counts = np.sort(counts)
    remaining = sorted_counts.size - np.arange(sorted_counts.size)
    sum_of_smaller = np.cumsum(sorted_counts) - sorted_counts
    index = np.flatnonzero(sum_of_smaller + remaining * sorted_counts > total)[0]
    return max(1, int((total - sum_of_smaller[index]) // remaining[index]))


def _sample(tags: NDArray[np.int32], max_width: int, n: int, rng: np.random.Generator) -> Iterator[NDArray[np.int32]]:
    """Yield `n` uniformly drawn sets of 2 to `max_width` of an image's tags, in batches without repetitions."""
    widths = np.arange(2, min(tags.size, max_width) + 1)
    logs = np.array([-lgamma(width + 1) - lgamma(tags.size - width + 1) for width in widths])
    weights = np.exp(logs - logs.max())
    for n_drawn in range(0, n, MAX_DRAWS_PER_BATCH):
        size = min(MAX_DRAWS_PER_BATCH, n - n_drawn)
        sizes = np.repeat(widths, rng.multinomial(size, weights / weights.sum()))
        order = rng.random((size, tags.size)).argsort(axis=1)
        for width in np.unique(sizes):
            yield _unique_rows(np.sort(tags[order[sizes == width, :width]], axis=1))


class HeldOutTags(NamedTuple):
    """The tags to learn from, and one held-out tag for each image in a sample."""

    rest: sp.csr_array  # float32, shape (n_images, n_tags): the remaining tags, for training
    images: NDArray[np.int64]  # shape (n_held,): images with a held-out tag, ascending
    held: sp.csr_array  # float32, shape (n_held, n_tags): the held-out tag of each image in `images`
    # float32, shape (n_held, n_tags): rows of `rest` for `images`, which rankings leave out
    known: sp.csr_array


def hold_one_out(Y: sp.csr_array, rng: np.random.Generator, *, at_most: int | None = None) -> HeldOutTags:
    """Hold out a random tag of each image that has two or more, or of at most `at_most` such images.

    Only entries of `Y`, shape (n_images, n_tags), above 0 can be held out; all others stay in `rest`. `rng` draws the
    tags, and the images if there are more than `at_most`. Raises DataError if no image has two tags.
    """
    Y = as_csr(Y)
    positive_tags = as_csr(Y > 0)
    counts = np.diff(positive_tags.indptr)
    images = np.flatnonzero(counts >= 2)
    if images.size == 0:
        raise DataError("No image has two tags, and no user two items, of which one could be held out.")
    if at_most is not None and images.size > at_most:
        images = np.sort(rng.permutation(images)[:at_most])
    entries = positive_tags.indptr[images] + (rng.random(images.size) * counts[images]).astype(np.int64)
    tags = positive_tags.indices[entries]
    ones = np.ones(images.size, np.float32)
    held_out = sp.csr_array((ones, (images, tags)), shape=Y.shape)
    rest = as_csr(Y - Y.multiply(held_out))
    hidden_tags = sp.csr_array((ones, tags, np.arange(images.size + 1)), shape=(images.size, Y.shape[1]))
    return HeldOutTags(rest, images, hidden_tags, sp.csr_array(rest[images]))
