"""Which tag is a kind of what, from a CSV of child and parent or from WordNet, and the tags that are siblings by it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr, check_count, check_size
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.relation_files import PairFormat, read_pairs, write_pairs
from visterm.data.wordnet import Synset, WordNet

IS_A_FILE = PairFormat("is-a file", "the tag rule isa", ("child", "parent"), "tiger,big cat", "a kind of")
MAX_BYTES = 2**31


class IsA(NamedTuple):
    """One relation: the child is a kind of the parent."""

    child: str
    parent: str


def read_is_a(path: str | os.PathLike[str]) -> list[IsA]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) of relations.

    Two columns, the child and its parent. A first line that names the columns ``child`` and ``parent`` is a header;
    there may then be other columns too, in any order. Raises DataError if it cannot be read, has no relation, or a line
    is not two words; the message names file and line.
    """
    return [IsA(pair.first, pair.second) for pair in read_pairs(path, IS_A_FILE)]


def write_is_a(path: str | os.PathLike[str], relations: Iterable[IsA]) -> None:
    """Write what `read_is_a` reads: a header and a line for each relation."""
    write_pairs(path, IS_A_FILE.columns, relations)


def sibling_sets(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> sp.csr_array:
    """Find the tags that share a parent: ``S(i, j) = 1 if i = j or both are a kind of some k`` (WSABIE, section 4).

    Relations are (child, parent). Children that are not in the vocabulary are left out; parents need not be in it.
    Words are compared as tags are: normalised (NFC) and without regard to case. Returns float32 of shape (n_tags,
    n_tags), 1 for siblings, and on the diagonal. Raises DataError if no child is in the vocabulary; TooLargeError if
    parents have more children than fit: if the pairs of siblings could take more than 2 GiB.
    """
    parents: dict[str, int] = {}
    pairs: set[tuple[int, int]] = set()
    examples: list[str] = []
    for child, parent in relations:
        column = vocabulary.get(child)
        if column is None:
            examples = [*examples, child][:3]
        else:
            pairs.add((column, parents.setdefault(tag_key(parent), len(parents))))
    if not pairs:
        raise DataError(
            f"None of the children in the is-a relations ({', '.join(examples) or 'there are none'}) is a tag of the "
            f"vocabulary ({', '.join(vocabulary.tags[:3])}). Check that its lines are child,parent."
        )
    rows, columns = np.array(sorted(pairs), np.int64).T
    n_children = np.bincount(columns)
    check_size(
        8 * int((n_children**2).sum()),
        MAX_BYTES,
        f"The siblings of {len(vocabulary)} tags, up to {n_children.max()} of one parent,",
        "Leave out parents that are too general.",
    )
    n_tags = len(vocabulary)
    of_parent = sp.csr_array((np.ones(rows.size, np.float32), (rows, columns)), shape=(n_tags, len(parents)))
    return as_csr(((of_parent @ of_parent.T + sp.eye_array(n_tags, format="csr")) != 0).astype(np.float32))


def read_relations(path: str | os.PathLike[str], tags: Iterable[str]) -> list[IsA]:
    """Read what tags are kinds of: from an is-a CSV, or from a folder of WordNet's files, where each tag is looked up.

    Raises DataError if the file or the folder cannot be used.
    """
    return is_a_relations(WordNet(path), tags) if Path(path).is_dir() else read_is_a(path)


def is_a_relations(wordnet: WordNet, tags: Iterable[str], *, senses: int = 1) -> list[IsA]:
    """Return what each tag is directly a kind of, tag by tag, by its `senses` most frequent meanings.

    Tags that are no nouns of the WordNet are left out. More meanings find more siblings, also by meanings that photos
    do not show. A parent is named by its first word and its number, ``big cat [02127808]``, because a word has several
    meanings. Raises UserError if `senses` is not a whole number of 1 or more.
    """
    check_count(senses, "senses")
    relations: dict[IsA, None] = {}
    for tag in tags:
        for offset in wordnet.senses(tag)[:senses]:
            relations.update(dict.fromkeys(is_a_of_synset(wordnet, tag, wordnet.synset(offset))))
    return list(relations)


def is_a_of_synset(wordnet: WordNet, tag: str, synset: Synset) -> list[IsA]:
    """Return what a tag of one meaning is directly a kind of; parents are named as in `is_a_relations`."""
    return [IsA(tag, f"{parent.words[0]} [{parent.offset:08d}]") for parent in map(wordnet.synset, synset.hypernyms)]
