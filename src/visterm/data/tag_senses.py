"""Which meaning of WordNet a tag has: by the tag's own id, by a mapping file, or by its first sense as a noun."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.relations import PairFormat, read_pairs, write_pairs
from visterm.data.wordnet import Synset, WordNet, synset_offset

MAPPING_FILE = PairFormat(
    "mapping of tags to synsets",
    "the tag rule tag_synsets",
    ("tag", "synset"),
    "crane,n02012849",
    may_be_empty=True,
    other_columns=("PASCAL-Part_class", "WDsynset"),
)


class TagSense(NamedTuple):
    """What one tag means."""

    tag: str  # The tag
    synset: Synset | None  # Its meaning; None where it has none
    # How it was found. "mapping": as the mapping file says; "id": the tag is a synset's id; "lemma": it is a noun of
    # WordNet, and the most frequent sense was taken; "none": none of these
    how: Literal["mapping", "id", "lemma", "none"]
    others: tuple[Synset, ...] = ()  # The senses that were not taken; of lemmas only


@dataclass(frozen=True)
class TagSenses:
    """What tags mean, tag by tag, and which of them a person should look at."""

    senses: tuple[TagSense, ...]  # In the order of the tags

    def __len__(self) -> int:
        return len(self.senses)

    def __iter__(self) -> Iterator[TagSense]:
        return iter(self.senses)

    @property
    def ambiguous(self) -> list[TagSense]:
        """Those with several senses, of which the first was taken."""
        return [sense for sense in self.senses if sense.others]

    @property
    def unmatched(self) -> list[str]:
        """The tags without a meaning."""
        return [sense.tag for sense in self.senses if sense.synset is None]

    def tags_by_synset(self) -> dict[int, list[str]]:
        """Return the tags of each synset, by its offset: synonyms ("stairs", "steps") share one."""
        tags: dict[int, list[str]] = {}
        for sense in self.senses:
            if sense.synset is not None:
                tags.setdefault(sense.synset.offset, []).append(sense.tag)
        return tags

    def summary(self) -> str:
        """Return a sentence: how many tags were matched in which way."""
        ways = Counter(sense.how for sense in self.senses if sense.synset is not None)
        counted = ", ".join(f"{ways[how]} by {how}" for how in ("mapping", "id", "lemma") if ways[how])
        return (
            f"{ways.total()} of {len(self)} tags have a meaning in WordNet ({counted or 'none'}); "
            f"with several senses, of which the first was taken: {len(self.ambiguous)}."
        )


class MappedTag(NamedTuple):
    """One line of a mapping: the offset of a tag's synset, None if the tag has none, and where it stands."""

    tag: str
    offset: int | None
    place: str


def match_tags(wordnet: WordNet, tags: Iterable[str], *, mapping: str | os.PathLike[str] | None = None) -> TagSenses:
    """Find the meaning of each tag in a WordNet.

    `mapping`, a file for `read_mapping`, goes before everything else; tags that it does not name are looked up. Raises
    DataError if the mapping cannot be read, names none of the tags, or names synsets that this WordNet has not.
    """
    tags = list(tags)
    mapped = {} if mapping is None else read_mapping(mapping)
    found = [mapped[key] for key in map(_key, tags) if key in mapped]
    if mapping is not None and not found:
        raise DataError(
            f"The mapping {mapping} names none of the tags ({', '.join(tags[:3])}); it has "
            f"{', '.join(line.tag for line in list(mapped.values())[:3])}. Check that its lines are tag,synset."
        )
    absent = [line for line in found if line.offset is not None and not wordnet.has(line.offset)]
    if absent:
        examples = "; ".join(f"{line.place}: {line.tag} n{line.offset:08d}" for line in absent[:3])
        raise DataError(
            f"{len(absent)} of the {len(found)} synsets that {mapping} gives the tags are not in the WordNet of "
            f"{wordnet.folder} ({examples}). Their numbers differ from version to version: pass the folder of the "
            "version that the mapping was made for, or correct these lines (an empty synset: none)."
        )
    return TagSenses(tuple(_match(wordnet, tag, mapped) for tag in tags))


def read_mapping(path: str | os.PathLike[str]) -> dict[str, MappedTag]:
    """Read a CSV (or, by its suffix .tsv, tab-separated file) that says which synset a tag means.

    Two columns, ``tag`` and ``synset`` (as PASCAL-Part's alignment calls them: ``PASCAL-Part_class`` and ``WDsynset``);
    with such a header there may be others, which are not read. A synset is written ``n03358726``, ``03358726-n`` or as
    its number; where it is empty, the tag has no meaning. A ``_`` in a tag, and in the keys that are returned, is a
    space. Raises DataError if it cannot be read, a line is not such a pair, or two lines say different things about a
    tag; the message names file and line.
    """
    mapped: dict[str, MappedTag] = {}
    for tag, synset, place in read_pairs(path, MAPPING_FILE):
        offset = synset_offset(synset, bare=True)
        if synset and offset is None:
            raise DataError(
                f"{place}: '{synset}' is no noun's synset; expected its id or number, such as n03358726; or nothing, "
                f"for '{tag}' to have no meaning."
            )
        before = mapped.setdefault(_key(tag), MappedTag(tag, offset, place))
        if before.offset != offset:
            raise DataError(
                f"{place}: '{tag}' is mapped to another synset than in {before.place}. Leave one of the lines out."
            )
    return mapped


def write_mapping(path: str | os.PathLike[str], senses: Iterable[TagSense]) -> None:
    """Write what `read_mapping` reads, to be corrected by hand.

    Beside tag and synset it says how the tag was matched, the words and the gloss of its synset, and the senses that
    were not taken, each with its id. Tags without a meaning have an empty synset.
    """
    header = (*MAPPING_FILE.columns, "how", "words", "gloss", "other_senses")
    rows = []
    for tag, synset, how, others in senses:
        others_shown = (f"{other.id} {', '.join(other.words)}: {other.gloss}" for other in others)
        meaning = ("", "", "") if synset is None else (synset.id, ", ".join(synset.words), synset.gloss)
        rows.append((tag, meaning[0], how, *meaning[1:], " | ".join(others_shown)))
    write_pairs(path, header, rows)


def _match(wordnet: WordNet, tag: str, mapped: dict[str, MappedTag]) -> TagSense:
    line = mapped.get(_key(tag))
    if line is not None:
        return TagSense(tag, None if line.offset is None else wordnet.synset(line.offset), "mapping")
    offset = synset_offset(tag)
    if offset is not None and wordnet.has(offset):
        return TagSense(tag, wordnet.synset(offset), "id")
    synsets = [wordnet.synset(offset) for offset in wordnet.senses(tag)]
    if not synsets:
        return TagSense(tag, None, "none")
    return TagSense(tag, synsets[0], "lemma", tuple(synsets[1:]))


def _key(tag: str) -> str:
    """Return that by which tags and words of a mapping are compared."""
    return tag_key(tag.replace("_", " "))
