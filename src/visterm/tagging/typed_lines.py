"""The queries that search is measured by: made from tags or read from a file, in the columns of each tagger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp

from visterm.core.checks import as_csr
from visterm.core.errors import UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data.query_files import QueryRow, judge_images, read_query_file
from visterm.data.tag_queries import queries_of_tags
from visterm.tagging.tagger import Tagger


class AskedQueries(NamedTuple):
    """Queries as texts, as words in the columns of each tagger, and what is relevant.

    Attributes
    ----------
    texts : list of str
    words : list of csr_array, shape (n_queries, n_tags)
        For each tagger: above 0 wanted, below 0 not wanted.
    relevant : csr_array, shape (n_queries, n_images)
    left_out : int
        Queries of a file that have no word that every tagger knows, or no relevant image here.
    """

    texts: list[str]
    words: list[sp.csr_array]
    relevant: sp.csr_array
    left_out: int


def queries_from_tags(
    taggers: Sequence[Tagger], tags: list[list[str]], max_words: int | None, min_count: int
) -> AskedQueries:
    """Make queries of the tags that all taggers know, each tagger with its own columns."""
    there = Vocabulary.from_lists(tags, min_count=min_count, aliases=taggers[0].vocabulary.aliases)
    known = (column for column, tag in enumerate(there) if all(tag in tagger.vocabulary for tagger in taggers))
    shared = there.subset(known)
    if len(shared) == 0:
        return AskedQueries([], [], sp.csr_array((0, len(tags))), 0)
    made = queries_of_tags(shared.encode(tags), max_words=max_words)
    words = [as_csr(made.words @ tagger.vocabulary.encode([[tag] for tag in shared])) for tagger in taggers]
    return AskedQueries(made.texts(shared.tags), words, made.relevant, 0)


def queries_from_file(taggers: Sequence[Tagger], names: list[str], queries: Path | Sequence[QueryRow]) -> AskedQueries:
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
    return AskedQueries([judged.texts[i] for i in kept], words, judged.relevant[kept], n_texts - len(kept))
