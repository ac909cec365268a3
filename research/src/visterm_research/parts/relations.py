"""Part-of relations of real tags, by depth of inheritance: from WordNet, and from PASCAL-Part aligned with WordNet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data import PartOf, part_pairs, sibling_sets
from visterm_research.data.wordnet import TagSenses, WordNet, match_tags, read_mapping, wordnet_part_of
from visterm_research.parts.images import pairs_of

DEPTHS = (0, 1, 2)
"""Numbers of is-a steps over which wholes inherit parts."""

STEPS_TO_SIBLINGS = 2
"""Maximum number of is-a steps to a common kind for two tags to be siblings."""

PASCAL_LISTS, PASCAL_SYNSETS = "pascalPartOntology.csv", "WordNet_Yago_alignment.tsv"
"""PASCAL-Part's files of wholes with their parts, and of their synsets."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Relations:
    """Relations from one source.

    Attributes
    ----------
    name : str
        A short name for folders.
    what : str
        One or two sentences about how tags were matched.
    by_depth : dict of int to ndarray of int64, shape (n, 2)
        Columns of (part, whole).
    siblings : ndarray of int64, shape (n, 2)
        Columns of tags of the same kind, among those in the relations.
    """

    name: str
    what: str
    by_depth: dict[int, Ints]
    siblings: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))


def wordnet_relations(wordnet: WordNet, vocabulary: Vocabulary) -> Relations:
    """Return WordNet's parts among tags, for the first sense of each tag."""
    senses = match_tags(wordnet, vocabulary)
    by_depth = {depth: part_pairs(wordnet_part_of(wordnet, senses, inherit=depth), vocabulary) for depth in DEPTHS}
    siblings = _siblings(wordnet, senses, vocabulary, by_depth)
    return Relations("wordnet", f"WordNet's parts. {senses.summary()}", by_depth, siblings)


def pascal_relations(wordnet: WordNet, vocabulary: Vocabulary, folder: Path) -> Relations:
    """Return PASCAL-Part's parts among tags of the same synsets; tags inherit them along is-a like WordNet's parts.

    A class of PASCAL-Part is the synset of its alignment if this WordNet has all aligned synsets (their numbers are
    from another version than 3.0); otherwise the first sense of its name, or of the last word of it ("animal wing").

    Raises
    ------
    DataError
        If a file is missing, or not as expected.
    """
    lists = read_part_lists(folder / PASCAL_LISTS)
    mapping = {tag: line.offset for tag, line in read_mapping(folder / PASCAL_SYNSETS).items()}
    present = sum(offset is not None and wordnet.has(offset) for offset in mapping.values())
    names = sorted({name for relation in lists for name in relation})
    use_names = present < len(mapping)
    classes = {
        name: _synset_of_name(wordnet, name) if use_names else mapping.get(name.replace("_", " ")) for name in names
    }
    unmatched = [name for name, offset in classes.items() if offset is None]
    senses = match_tags(wordnet, vocabulary)
    tags = senses.tags_by_synset()
    wholes = {offset: name for name, offset in classes.items() if offset is not None}
    by_depth = {}
    for depth in DEPTHS:
        relations = []
        for sense in senses:
            ancestors = [] if sense.synset is None else kinds_above(wordnet, sense.synset.offset, depth)
            class_names = {wholes[offset] for offset in ancestors if offset in wholes}
            parts = [classes[part] for part, whole in lists if whole in class_names]
            relations += [PartOf(tag, sense.tag) for part in parts if part is not None for tag in tags.get(part, ())]
        relations = [relation for relation in relations if relation.part != relation.whole]
        by_depth[depth] = part_pairs(relations, vocabulary)
    how = (
        f"first sense of their names, because this WordNet has {present} of the {len(mapping)} synsets of the alignment"
        if use_names
        else "synset of the alignment"
    )
    how += f"; without a match: {', '.join(unmatched)}" if unmatched else ""
    what = f"PASCAL-Part's ontology, {len(lists)} relations of {len(names)} classes, matched by the {how}."
    return Relations("pascal-part", what, by_depth, _siblings(wordnet, senses, vocabulary, by_depth))


def read_part_lists(path: Path) -> list[PartOf]:
    """Read a CSV in which each line is a whole and then its parts, like PASCAL-Part's ``pascalPartOntology.csv``.

    A line with only a whole has no relation. Raises DataError if a line has no whole, or the file has no relation.
    """
    relations: dict[PartOf, None] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        for whole, *parts in ([cell.strip() for cell in cells] for cells in lines if any(cells)):
            if not whole:
                raise DataError(f"{path}, line {lines.line_num}: the whole is empty; expected it before its parts.")
            relations |= {PartOf(part, whole): None for part in parts if part}
    if not relations:
        raise DataError(f"The list of parts {path} has no relations; expected lines such as 'car,wheel,door'.")
    return list(relations)


def kinds_above(wordnet: WordNet, offset: int, depth: int) -> list[int]:
    """Return a synset and its ancestors over up to `depth` is-a steps."""
    level, ancestors = [offset], [offset]
    for _ in range(depth):
        level = [above for below in level for above in wordnet.synset(below).hypernyms if above not in ancestors]
        ancestors += dict.fromkeys(level)
    return ancestors


def pascal_folder(data: Sequence[Path], corel: Path) -> Path | None:
    """Find PASCAL-Part's files in a given folder, in its folder ``pascal_part``, or next to Corel5k."""
    places = [place for folder in data for place in (folder, folder / "pascal_part")]
    for place in (*places, corel.resolve().parent / "pascal_part"):
        if (place / PASCAL_LISTS).is_file():
            if not (place / PASCAL_SYNSETS).is_file():
                raise DataError(f"{place} has {PASCAL_LISTS}, but no {PASCAL_SYNSETS}. Put it there.")
            return place
    return None


def _siblings(wordnet: WordNet, senses: TagSenses, vocabulary: Vocabulary, by_depth: dict[int, Ints]) -> Ints:
    """Return the pairs of related tags with a common kind within a few is-a steps, shape (n, 2)."""
    kinds = [
        (sense.tag, str(kind))
        for sense in senses
        if sense.synset is not None
        for kind in kinds_above(wordnet, sense.synset.offset, STEPS_TO_SIBLINGS)
    ]
    pairs = pairs_of(sibling_sets(kinds, vocabulary)) if kinds else np.empty((0, 2), np.int64)
    related = np.unique(np.concatenate(list(by_depth.values())))
    return pairs[np.isin(pairs, related).all(axis=1)]


def _synset_of_name(wordnet: WordNet, name: str) -> int | None:
    words = name.replace("_", " ")
    senses = wordnet.senses(words) or wordnet.senses(words.rpartition(" ")[2])
    return senses[0] if senses else None
