"""Match the tags of another photo library with the tags of a run, by name or by a map."""

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
BY_NAMES = "names"  # Value of `tag_map` to match only tags with the same name

NONE = -1  # Number in place of the run's tag if no tag matches
N_EXAMPLES = 3  # Number of tags that a message lists

TagMap = str | os.PathLike[str] | Mapping[str, str]


@dataclass(frozen=True)
class JoinedTags:
    """The matching tag of a run for each tag of another library; arrays of shape (n_theirs,)."""

    run_columns: NDArray[np.int64]  # The column of the run's tag, or -1; several tags may match the same tag of the run
    is_by_name: NDArray[np.bool_]
    """Whether a tag is matched by its name; the other matches come from a map, or from vectors."""


def join_tags(ours: Vocabulary, theirs: Sequence[str], translation: Mapping[str, str] | None = None) -> JoinedTags:
    """Match each tag of another library with a tag of `ours`, by `translation` (their tag -> our tag) or by its name.

    Names are compared without case, and aliases count. The translation has priority, because a tag can have another
    meaning in the other library. A translation to an unknown tag matches nothing.
    """
    tag_of = {tag_key(their_tag): our_tag for their_tag, our_tag in (translation or {}).items()}
    columns = [ours.get(tag_of.get(tag_key(tag), tag)) for tag in theirs]
    numbers = np.array([NONE if number is None else number for number in columns], np.int64)
    return JoinedTags(numbers, (numbers != NONE) & ~np.array([tag_key(tag) in tag_of for tag in theirs], np.bool_))


@dataclass(frozen=True)
class OtherLibrary:
    """Photos of another library, with tags renamed to the tags of a run."""

    corpus: Corpus  # All photos; unmatched tags keep their names
    ranked_tags: list[str]  # The tags of the run to rank: photos of the other library can have them
    counts: dict[str, int | list[str]]  # Matched and unmatched tags, for JSON
    remarks: list[str]  # Lines about matched and unmatched tags, for people


def join_library(vocabulary: Vocabulary, corpus: Corpus, tag_map: TagMap, tree: TagTree | None = None) -> OtherLibrary:
    """Rename the tags of another library's photos to the tags of a run, by a map or by their names.

    `tag_map` is a CSV with the columns their_tag and run_tag, a mapping from their tags to the run's, or "names" to
    match tags only by name. If the run has a tree of tags, all parents of matched tags are ranked as well. Raises
    DataError if the map cannot be read, maps a tag to two tags, or no tag matches; UserError if it has a tag that the
    run does not have.
    """
    translation = {} if tag_map == BY_NAMES else _read(tag_map, vocabulary)
    theirs = Vocabulary.from_lists([*corpus.tags, *([tag] for tags in corpus.negatives for tag in tags)])
    joined = join_tags(vocabulary, theirs.tags, translation)
    is_joined = joined.run_columns != NONE
    if not is_joined.any():
        tags_text = f"{count_of(len(theirs), 'tag')} of these photos (such as {_examples(theirs.tags)})"
        raise DataError(
            f"None of the {tags_text} is a tag of the run.",
            setting="map", value=tag_map, advice="Pass as `map` a file with the columns their_tag and run_tag.",
        )  # fmt: skip

    run_tag_of = {
        tag_key(tag): vocabulary.tags[column]
        for tag, column in zip(theirs, joined.run_columns, strict=True)
        if column != NONE
    }
    ranked = dict.fromkeys(vocabulary.tags[number] for number in joined.run_columns[is_joined])
    if tree is not None:
        for tag in list(ranked):
            ranked.update(dict.fromkeys(parent for parent in tree.above(tag) if parent in vocabulary))

    numbers = np.flatnonzero(~is_joined)
    left_out = [theirs.tags[number] for number in numbers[np.argsort(-theirs.counts[numbers], kind="stable")]]
    n_by_name, n_by_map = int(joined.is_by_name.sum()), int((is_joined & ~joined.is_by_name).sum())
    unused = [tag for tag in translation if tag not in theirs]
    counts: dict[str, int | list[str]] = {
        "their_tags": len(theirs), "joined_by_name": n_by_name, "joined_by_map": n_by_map,
        "their_tags_left_out": left_out,
        "run_tags": len(vocabulary), "run_tags_ranked": len(ranked), "map_without_photos": unused,
    }  # fmt: skip

    remarks = [
        f"Matched {n_by_name + n_by_map:,} of these photos' {count_of(len(theirs), 'tag')} with tags of the run: "
        f"{n_by_name:,} by name, {n_by_map:,} by the map."
    ]
    if left_out:
        remarks.append(f"Left out {count_of(len(left_out), 'tag')} of these photos, such as {_examples(left_out)}.")
    if n_left := len(vocabulary) - len(ranked):
        remarks.append(f"Left out {n_left:,} of the run's {len(vocabulary):,} tags: no tag of the photos matches.")
    if unused:
        remarks.append(f"The map has {count_of(len(unused), 'tag')} that no photo has, such as '{unused[0]}'.")

    tags, negatives = (
        [list(dict.fromkeys(run_tag_of.get(tag_key(tag), tag) for tag in tags)) for tags in lists]
        for lists in (corpus.tags, corpus.negatives)
    )
    return OtherLibrary(replace(corpus, tags=tags, negatives=negatives), list(ranked), counts, remarks)


def _read(tag_map: TagMap, vocabulary: Vocabulary) -> dict[str, str]:
    """Return tag -> the run's tag. Raises UserError for an unknown tag, DataError for a tag that is mapped to two."""
    if isinstance(tag_map, Mapping):
        pairs: Iterable[WordPair] = [WordPair(tag, run_tag, "map") for tag, run_tag in tag_map.items()]
    else:
        pairs = read_pairs(tag_map, MAP_FILE)
    translation: dict[str, str] = {}
    first_run_tag: dict[str, str] = {}
    for tag, run_tag, source in pairs:
        if run_tag not in vocabulary:
            problem = f"{source}: {vocabulary.unknown_words([run_tag])}"
            raise UserError(problem, setting="map", value=run_tag, advice="The map goes from their_tag to run_tag.")
        first = first_run_tag.setdefault(tag_key(tag), run_tag)
        if vocabulary.index(first) != vocabulary.index(run_tag):
            raise DataError(f"{source}: '{tag}' is mapped to '{run_tag}', and above to '{first}'. Leave one line out.")
        translation[tag] = run_tag
    return translation


def _examples(tags: Sequence[str]) -> str:
    return ", ".join(f"'{tag}'" for tag in tags[:N_EXAMPLES])
