"""Part-of relations of tags: from a CSV of part and whole, or from WordNet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice
from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data.relations import PairFormat, read_pairs
from visterm.data.tag_senses import Synset, TagSenses, WordNet, match_tags

PART_OF_FILE = PairFormat("part-of file", ("part", "whole"), "wheel,car", "part of")

# Kinds of parts of a synset: the trunk of a tree, a tree of a forest, the water of ice
Meronyms = Literal["parts", "members", "substances"]


class PartOf(NamedTuple):
    """A relation: `part` is a part of `whole`."""

    part: str
    whole: str


class PartRelations(NamedTuple):
    """The result of `read_part_relations`."""

    relations: list[PartOf]  # All relations of a file; from WordNet, only relations between tags
    senses: TagSenses | None  # How the tags were matched with WordNet; None if the relations are from a file
    wordnet: WordNet | None  # The WordNet that was read; None if the relations are from a file


def read_part_relations(
    source: str | os.PathLike[str] | None,
    vocabulary: Vocabulary,
    *,
    mapping: str | os.PathLike[str] | None = None,
    inherit: int | None = 1,
) -> PartRelations:
    """Read part-of relations of tags from a CSV, or from WordNet.

    `source` is a file for `read_part_of`, or WordNet's folder; None finds WordNet in one of its usual folders.
    `mapping`, a file for `read_mapping`, and `inherit`, the number of steps over which parts are inherited
    (`wordnet_part_of`), apply to WordNet only. Raises DataError if a file or the folder cannot be used, or has no
    relation between two tags; UserError if `inherit` is invalid.
    """
    if source is not None and not Path(source).is_dir():
        relations = read_part_of(source)
        try:
            part_pairs(relations, vocabulary)
        except DataError as error:
            raise DataError(
                f"{source}: no line has two known tags, such as "
                f"{', '.join(vocabulary.tags[:3])}. The first pair is '{','.join(relations[0])}'; expected part,whole."
            ) from error
        return PartRelations(relations, None, None)
    wordnet = WordNet(source)
    senses = match_tags(wordnet, vocabulary, mapping=mapping)
    relations = wordnet_part_of(wordnet, senses, inherit=inherit)
    if not relations:
        raise DataError(
            f"The WordNet of {wordnet.folder} knows none of the tags as a part of another; {senses.summary()} "
            "Say what they mean (a mapping of tags to synsets), or give a CSV of part,whole."
        )
    return PartRelations(relations, senses, wordnet)


def read_part_of(path: str | os.PathLike[str]) -> list[PartOf]:
    """Read a CSV (or, with the suffix .tsv, tab-separated) file of relations.

    It has two columns, the part and its whole, with or without a header ``part,whole``. Raises DataError as
    `read_pairs` does.
    """
    return [PartOf(pair.first, pair.second) for pair in read_pairs(path, PART_OF_FILE)]


def wordnet_part_of(
    wordnet: WordNet, senses: TagSenses, *, inherit: int | None = 1, meronyms: Iterable[Meronyms] = ("parts",)
) -> list[PartOf]:
    """Return the part-of relations of tags, from a WordNet and the senses of the tags in it.

    A tag has the parts of its synset, and inherits parts along is-a: a house is a building, and a building has windows.
    Parts themselves inherit nothing: a porthole is a window, but not a part of a house. Parts are inherited over
    `inherit` steps of is-a; 0: only a synset's own parts; 1: also the parts of its direct hypernyms; None: no limit.
    More steps find more, but vaguer relations: all animals have heads. `meronyms` are the kinds of parts: "parts",
    "members" (a forest's trees) and "substances" (the water of ice).

    Relations are unique, in the order of the wholes' tags; the parts of the nearest synset come first. Tags of the same
    synset (stairs, steps) have the same relations. Raises UserError if `inherit` is not None or a whole number of 0 or
    more, or `meronyms` has another word.
    """
    if inherit is not None and (isinstance(inherit, bool) or not isinstance(inherit, int) or inherit < 0):
        expected = "a whole number of 0 or more, or None for no limit"
        raise UserError(setting="inherit", value=inherit, expected=expected)
    kinds = tuple(meronyms)
    for kind in kinds:
        check_choice(kind, "meronyms", get_args(Meronyms))
    tags = senses.tags_by_synset()
    relations: dict[PartOf, None] = {}

    for sense in senses:
        if sense.synset is None:
            continue
        for ancestor in _ancestors(wordnet, sense.synset, inherit):
            for offset in (offset for kind in kinds for offset in getattr(ancestor, kind)):
                if offset != sense.synset.offset:
                    relations.update(dict.fromkeys(PartOf(part, sense.tag) for part in tags.get(offset, ())))
    return list(relations)


def part_pairs(relations: Iterable[tuple[str, str]], vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return the columns of the tags in relations (part, whole).

    Words are compared like tags, normalised (NFC) and without regard to case; if that fails, ``_`` is read as a space.
    Returns columns of (part, whole), int64 of shape (n_pairs, 2), sorted and unique. Relations with a word that is not
    a tag are left out. Raises DataError if no relation is between two tags, unless `relations` is empty.
    """
    pairs: set[tuple[int, int]] = set()
    examples: list[str] = []
    for part, whole in relations:
        columns = _column(part, vocabulary), _column(whole, vocabulary)
        if columns[0] is not None and columns[1] is not None and columns[0] != columns[1]:
            pairs.add((columns[0], columns[1]))
        else:
            examples = [*examples, f"{part} of {whole}"][:3]

    if examples and not pairs:
        raise DataError(
            f"None of the part-of relations ({', '.join(examples)}) is between two tags of the vocabulary "
            f"({', '.join(vocabulary.tags[:3])}). Check that its lines are part,whole."
        )
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _column(word: str, vocabulary: Vocabulary) -> int | None:
    """Return the column of a word, as written or with spaces instead of ``_``."""
    column = vocabulary.get(word)
    return vocabulary.get(word.replace("_", " ")) if column is None and "_" in word else column


def _ancestors(wordnet: WordNet, synset: Synset, steps: int | None) -> Iterator[Synset]:
    """Yield a synset and its hypernyms over up to `steps` steps, without repetitions, the nearest first."""
    level, visited, step = [synset], {synset.offset}, 0
    while level:
        yield from level
        if step == steps:
            return
        offsets = dict.fromkeys(offset for child in level for offset in child.hypernyms if offset not in visited)
        visited.update(offsets)
        level, step = [wordnet.synset(offset) for offset in offsets], step + 1
