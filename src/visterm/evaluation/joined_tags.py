"""A library whose tags have other names than a run's: its tags joined with the run's, by name or by a map."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.relations import PairFormat, WordPair, read_pairs
from visterm.data.tag_tree import TagTree

MAP_FILE = PairFormat("map of tags", ("their_tag", "run_tag"), "puppy,dog", needs_header=True)
BY_NAMES = "names"  # In place of a file: only tags of the same name are joined

NONE = -1  # In place of the number of a tag: none of the run's means the same
EXAMPLES = 3  # Left-out tags that are named in a line for people, the most frequent first

TagMap = str | os.PathLike[str] | Mapping[str, str]


@dataclass(frozen=True)
class JoinedTags:
    """Which tag of a run stands for which tag of another library, each of shape (n_theirs,)."""

    ours: NDArray[np.int64]  # The number of the run's tag, or -1. One tag of the run may stand for several of theirs.
    by_name: NDArray[np.bool_]
    """Whether they have the same name; the others that are joined are so by a map, or by their vectors."""


def join_tags(ours: Vocabulary, theirs: Sequence[str], translation: Mapping[str, str] | None = None) -> JoinedTags:
    """Join each of their tags with the tag of ours that the map names, or else with the one of the same name.

    Names are compared as tags are everywhere: case and aliases don't matter. The map comes first, so that their
    ``turkey`` can be another bird than ours. It goes from their tags to ours; one to what is no tag of ours joins
    nothing.
    """
    tag_of = {tag_key(tag): of_ours for tag, of_ours in (translation or {}).items()}
    columns = [ours.get(tag_of.get(tag_key(tag), tag)) for tag in theirs]
    numbers = np.array([NONE if number is None else number for number in columns], np.int64)
    mapped = np.array([tag_key(tag) in tag_of for tag in theirs], np.bool_)
    return JoinedTags(numbers, (numbers != NONE) & ~mapped)


@dataclass(frozen=True)
class OtherLibrary:
    """Photos of another library, their tags renamed to those of a run."""

    corpus: Corpus  # All photos; tags that are not joined keep their names
    ranked: list[str]  # Tags of the run that a photo of the other library could have: only these are ranked
    counts: dict[str, int | list[str]]  # For JSON: what was joined and what left out
    remarks: list[str]  # The same for people, a line each


def join_library(vocabulary: Vocabulary, corpus: Corpus, tag_map: TagMap, tree: TagTree | None = None) -> OtherLibrary:
    """Rename the tags of another library's photos to those of a run, by a map and else by their names.

    `tag_map` is a CSV with the columns their_tag and run_tag, a mapping from their tags to the run's, or "names" to
    join tags by their names alone. If the run's tags have a tree, all tags above a joined one are ranked, too. Raises
    DataError if the map cannot be read, means two tags by one of theirs, or no tag is joined; UserError if it names a
    tag that the run does not have.
    """
    translation = {} if tag_map == BY_NAMES else _read(tag_map, vocabulary)
    their = Vocabulary.from_lists([*corpus.tags, *([tag] for tags in corpus.negatives for tag in tags)])
    joined = join_tags(vocabulary, their.tags, translation)
    is_joined = joined.ours != NONE
    if not is_joined.any():
        theirs = f"{count_of(len(their), 'tag')} of these photos (such as {_named(their.tags)})"
        raise DataError(
            f"None of the {theirs} is a tag of the run.",
            setting="map", value=tag_map, advice="Pass as `map` a file with the columns their_tag and run_tag.",
        )  # fmt: skip
    names = {
        tag_key(tag): vocabulary.tags[number] for tag, number in zip(their, joined.ours, strict=True) if number >= 0
    }
    ranked = dict.fromkeys(vocabulary.tags[number] for number in joined.ours[is_joined])
    if tree is not None:
        for tag in list(ranked):
            ranked.update(dict.fromkeys(above for above in tree.above(tag) if above in vocabulary))

    numbers = np.flatnonzero(~is_joined)
    left_out = [their.tags[number] for number in numbers[np.argsort(-their.counts[numbers], kind="stable")]]
    by_name, by_map = int(joined.by_name.sum()), int((is_joined & ~joined.by_name).sum())
    unused = [tag for tag in translation if tag not in their]
    counts: dict[str, int | list[str]] = {
        "their_tags": len(their), "joined_by_name": by_name, "joined_by_map": by_map, "their_tags_left_out": left_out,
        "run_tags": len(vocabulary), "run_tags_ranked": len(ranked), "map_without_photos": unused,
    }  # fmt: skip

    remarks = [
        f"Joined {by_name + by_map:,} of these photos' {count_of(len(their), 'tag')} with the run's: {by_name:,} by "
        f"name, {by_map:,} by the map."
    ]
    if left_out:
        remarks.append(f"Left out {count_of(len(left_out), 'tag')} of theirs, such as {_named(left_out)}.")
    if unmeant := len(vocabulary) - len(ranked):
        remarks.append(f"Left out {unmeant:,} of the run's {len(vocabulary):,} tags: none of theirs means them.")
    if unused:
        remarks.append(f"The map has {count_of(len(unused), 'tag')} that no photo has, such as '{unused[0]}'.")

    tags, negatives = (
        [list(dict.fromkeys(names.get(tag_key(tag), tag) for tag in tags)) for tags in lists]
        for lists in (corpus.tags, corpus.negatives)
    )
    return OtherLibrary(replace(corpus, tags=tags, negatives=negatives), list(ranked), counts, remarks)


def _read(tag_map: TagMap, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the map from their tags to the run's; refuse what is no tag of the run, and what means two tags."""
    if isinstance(tag_map, Mapping):
        pairs: Iterable[WordPair] = [WordPair(theirs, ours, "map") for theirs, ours in tag_map.items()]
    else:
        pairs = read_pairs(tag_map, MAP_FILE)
    translation: dict[str, str] = {}
    first: dict[str, str] = {}
    for theirs, ours, source in pairs:
        if ours not in vocabulary:
            problem = f"{source}: {vocabulary.unknown_words([ours])}"
            raise UserError(problem, setting="map", value=ours, advice="The map goes from their_tag to run_tag.")
        before = first.setdefault(tag_key(theirs), ours)
        if vocabulary.index(before) != vocabulary.index(ours):
            raise DataError(f"{source}: '{theirs}' means '{ours}' here and '{before}' above. Leave one line out.")
        translation[theirs] = ours
    return translation


def _named(tags: Sequence[str]) -> str:
    return ", ".join(f"'{tag}'" for tag in tags[:EXAMPLES])
