"""WordNet's nouns, what a tag means in WordNet, and the part-of and is-a relations of tags by their meanings.

A tag means what a mapping file says, the synset whose id it is, or its first sense as a noun.

The format of WordNet's files is described in its manual pages wndb(5WN) and morphy(7WN), which also defines
how plurals are looked up; wnintro(1WN) documents the two environment variables.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from visterm.core.checks import check_choice
from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data import PairFormat, PartOf, read_pairs, write_pairs

DEBIAN = "/usr/share/wordnet"  # Folder of Debian's package wordnet-base

# Folders to search if no folder is given and no environment variable is set
FOLDERS = (DEBIAN, "/usr/local/WordNet-3.0/dict", "/usr/local/WordNet-3.1/dict", "/opt/homebrew/opt/wordnet/dict")

MAX_FILE_BYTES = 2**30

HYPERNYMS = ("@", "@i")  # Pointer symbols: is a kind of, is an instance of
PARTS, MEMBERS, SUBSTANCES = ("%p",), ("%m",), ("%s",)  # Has a part (trunk), has a member (tree), is made of (water)

# Plural endings and the singular endings, in the order of morphy(7WN)
PLURAL_ENDINGS = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y")
)  # fmt: skip

# Kinds of parts of a synset: the trunk of a tree, a tree of a forest, the water of ice
Meronyms = Literal["parts", "members", "substances"]

_ID = re.compile(r"n(\d{8})|(\d{8})-n", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d{1,8}", re.ASCII)
MAPPING_FILE = PairFormat(
    "mapping of tags to synsets",
    ("tag", "synset"),
    "crane,n02012849",
    may_be_empty=True,
    other_columns=("PASCAL-Part_class", "WDsynset"),
)


class Synset(NamedTuple):
    """A meaning: its words, its direct hypernyms (the synsets that it is a kind of), and its parts."""

    offset: int  # Byte position in ``data.noun``; differs between versions of WordNet
    words: tuple[str, ...]  # With spaces, the most common word first
    hypernyms: tuple[int, ...]  # Offsets of the synsets that it is a kind or an instance of
    # Offsets of its parts, members and substances
    parts: tuple[int, ...]
    members: tuple[int, ...]
    substances: tuple[int, ...]
    gloss: str  # Definition, often with an example

    @property
    def id(self) -> str:
        """The id as in ImageNet: n03358726."""
        return f"n{self.offset:08d}"


class WordNet:
    """The nouns of a WordNet database in a folder, or else in one of the usual folders (`find_wordnet`).

    Raises DataError if it is not found, or a file is missing or not in WordNet's format; the message names file and
    line.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = find_wordnet(folder)
        self._senses = dict(read_index(self.folder))
        self._exceptions: dict[str, list[str]] = {}  # Irregular plural -> its singulars
        lines = read_database(self.folder, "noun.exc").decode(errors="replace").split("\n")
        for number, fields in enumerate(map(str.split, lines), start=1):
            if len(fields) == 1:
                raise DataError(
                    f"{self.folder / 'noun.exc'}, line {number}: one word; expected a plural and singulars."
                )
            if fields:
                self._exceptions[fields[0]] = fields[1:]
        self._data = read_database(self.folder, "data.noun")

    def senses(self, word: str) -> list[int]:
        """Return the offsets of a word's meanings, the most frequent first; empty if it is not a noun in WordNet.

        Case is ignored, and ``_`` is read as a space; a plural that is not in the index is looked up by its singular.
        """
        return list(self._senses.get(self.lemma(word) or "", ()))

    def lemma(self, word: str) -> str | None:
        """Return the entry of a word in the index (``polar_bear`` for "Polar bears"), or None."""
        form = clean_tag(word).lower().replace(" ", "_")
        form_without_separators = form.replace("-", "").replace("_", "")
        candidates = (form, form.replace("-", "_"), form.replace("_", "-"), form_without_separators)
        bases = (base for candidate in candidates for base in self._bases(candidate))
        return next((base for base in bases if base in self._senses), None)

    def has(self, offset: int) -> bool:
        """Return whether the database has a synset with this offset."""
        begins_line = offset == 0 or self._data[offset - 1 : offset] == b"\n"
        return offset >= 0 and begins_line and self._data.startswith(b"%08d " % offset, offset)

    def synset(self, offset: int) -> Synset:
        """Read the synset at an offset. Raises DataError if the database has none with this offset."""
        end = self._data.find(b"\n", offset)
        try:
            return parse_synset(self._data[offset : end if end >= 0 else None].decode(), offset)
        except (ValueError, IndexError) as error:
            raise DataError(
                f"{self.folder / 'data.noun'} has no synset at byte {offset} ({error}). Are index.noun and data.noun "
                "of one version of WordNet, unchanged?"
            ) from error

    def _bases(self, form: str) -> Iterator[str]:
        """Yield a form and its possible singulars; in a phrase, the last word changes."""
        yield form
        head, separator, last_word = form.rpartition("_")
        for plural, prefix in ((form, ""), (last_word, head + separator)):
            for base in self._exceptions.get(plural, ()):
                yield prefix + base
        for ending, singular_ending in PLURAL_ENDINGS:
            if form.endswith(ending) and len(form) > len(ending):
                yield form[: -len(ending)] + singular_ending


def find_wordnet(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of the database files: the given folder, or its sub-folder ``dict``.

    None: the folder in the environment (``$WNSEARCHDIR``, or ``$WNHOME/dict``), or else the first of `FOLDERS`
    that has the files. Raises DataError if `folder` is None and no folder is found.
    """
    home = os.environ.get("WNHOME")
    folder = folder or os.environ.get("WNSEARCHDIR") or (Path(home) / "dict" if home else None)
    if folder is not None:
        database_folder = Path(folder) / "dict"
        return database_folder if (database_folder / "index.noun").is_file() else Path(folder)
    for candidate in map(Path, FOLDERS):
        if (candidate / "index.noun").is_file():
            return candidate
    raise DataError(
        f"WordNet is at none of its usual places ({', '.join(FOLDERS)}). Install it (Debian's package wordnet-base), "
        "or pass the folder of its database files."
    )


def synset_offset(text: str, *, bare: bool = False) -> int | None:
    """Parse the id of a noun's synset, ``n03358726`` or ``03358726-n``; None if the text is not an id.

    With `bare`, the number alone is also accepted, with or without leading zeros.
    """
    if match := _ID.fullmatch(text):
        return int(match[1] or match[2])
    return int(text) if bare and _NUMBER.fullmatch(text) else None


def read_index(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the entries of ``index.noun``: a word, with ``_`` for spaces, and the offsets of its meanings.

    Raises DataError if it is missing, or a line is not in WordNet's format.
    """
    lines = read_database(folder, "index.noun").decode(errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(" "):  # the licence
            continue
        fields = line.split()
        try:
            n_senses = int(fields[2])
            offsets = tuple(map(int, fields[6 + int(fields[3]) :]))
            if fields[1] != "n" or n_senses < 1 or len(offsets) != n_senses:
                raise ValueError(f"{len(offsets)} senses, but {fields[2]} in the third field")
        except (ValueError, IndexError) as error:
            raise DataError(f"{folder / 'index.noun'}, line {number}: not in WordNet's format ({error}).") from error
        yield fields[0], offsets


def parse_synset(line: str, offset: int) -> Synset:
    """Read a line of ``data.noun``.

    Raises ValueError or IndexError if it is not in WordNet's format, or is the line of another offset.
    """
    data, _, gloss = line.partition("|")
    fields = data.split()
    if offset < 0 or int(fields[0]) != offset:
        raise ValueError("the line has another offset")
    count_index = 4 + 2 * int(fields[3], 16)
    pointers = [fields[p : p + 4] for p in range(count_index + 1, count_index + 1 + 4 * int(fields[count_index]), 4)]

    def targets(symbols: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(int(target) for symbol, target, pos, _ in pointers if symbol in symbols and pos == "n")

    return Synset(
        offset, words=tuple(word.replace("_", " ") for word in fields[4:count_index:2]), hypernyms=targets(HYPERNYMS),
        parts=targets(PARTS), members=targets(MEMBERS), substances=targets(SUBSTANCES), gloss=gloss.strip(),
    )  # fmt: skip


def read_database(folder: Path, name: str) -> bytes:
    """Read one database file. Raises DataError if it is missing, not a regular file, or too large."""
    path, problem = folder / name, "no regular file of its size"
    try:
        if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:  # reading a named pipe would block
            return path.read_bytes()
    except OSError as error:
        problem = str(error.strerror)
    raise DataError(
        f"WordNet's {name} cannot be read from {folder} ({problem}). Pass the folder of its database files; Debian's "
        f"package wordnet-base has it at {DEBIAN}."
    )


class TagSense(NamedTuple):
    """The meaning of one tag."""

    tag: str
    synset: Synset | None
    # How the meaning was determined. "mapping": by the mapping file; "id": the tag is a synset's id; "lemma": the tag
    # is a noun in WordNet, and has its most frequent sense; "none": not at all
    how: Literal["mapping", "id", "lemma", "none"]
    others: tuple[Synset, ...] = ()  # The noun's other senses, if `how` is "lemma"


class TagSenses(tuple[TagSense, ...]):
    """The meanings of tags, in the order of the tags."""

    @property
    def ambiguous(self) -> list[TagSense]:
        """Tags with several senses, of which the first was chosen."""
        return [sense for sense in self if sense.others]

    @property
    def unmatched(self) -> list[str]:
        """Tags without a meaning."""
        return [sense.tag for sense in self if sense.synset is None]

    def tags_by_synset(self) -> dict[int, list[str]]:
        """Return the tags of each synset, by its offset; synonyms ("stairs", "steps") share a synset."""
        tags: dict[int, list[str]] = {}
        for sense in self:
            if sense.synset is not None:
                tags.setdefault(sense.synset.offset, []).append(sense.tag)
        return tags

    def summary(self) -> str:
        """Return a sentence with the number of tags that were matched in each way."""
        counts = Counter(sense.how for sense in self if sense.synset is not None)
        details = ", ".join(f"{counts[how]} by {how}" for how in ("mapping", "id", "lemma") if counts[how])
        return (
            f"{counts.total()} of {len(self)} tags have a meaning in WordNet ({details or 'none'}); "
            f"{len(self.ambiguous)} have several senses, and the first one was taken."
        )


class MappedTag(NamedTuple):
    """A line of a mapping."""

    tag: str
    offset: int | None  # Offset of the synset; None if the tag has no meaning
    source: str  # File and line, for messages


def match_tags(wordnet: WordNet, tags: Iterable[str], *, mapping: str | os.PathLike[str] | None = None) -> TagSenses:
    """Find the meaning of each tag in WordNet.

    `mapping`, a file for `read_mapping`, has priority; tags that it does not contain are looked up. Raises DataError if
    the mapping cannot be read, has none of the tags, or names synsets that are not in this WordNet.
    """
    tags = list(tags)
    lines_by_key = {} if mapping is None else read_mapping(mapping)
    used_lines = [lines_by_key[key] for key in map(_key, tags) if key in lines_by_key]
    if mapping is not None and not used_lines:
        raise DataError(
            f"The mapping {mapping} names none of the tags ({', '.join(tags[:3])}); it has "
            f"{', '.join(line.tag for line in list(lines_by_key.values())[:3])}. Check that its lines are tag,synset."
        )

    missing_lines = [line for line in used_lines if line.offset is not None and not wordnet.has(line.offset)]
    if missing_lines:
        examples = "; ".join(f"{line.source}: {line.tag} n{line.offset:08d}" for line in missing_lines[:3])
        raise DataError(
            f"{len(missing_lines)} of the {len(used_lines)} synsets that {mapping} gives the tags are not in the "
            f"WordNet of {wordnet.folder} ({examples}). Their numbers differ from version to version: pass the folder "
            "of the version that the mapping was made for, or correct these lines (an empty synset: none)."
        )

    senses = []
    for tag in tags:
        line, offset = lines_by_key.get(_key(tag)), synset_offset(tag)
        if line is not None:
            synset = None if line.offset is None else wordnet.synset(line.offset)
            senses.append(TagSense(tag, synset, "mapping"))
        elif offset is not None and wordnet.has(offset):
            senses.append(TagSense(tag, wordnet.synset(offset), "id"))
        elif synsets := tuple(map(wordnet.synset, wordnet.senses(tag))):
            senses.append(TagSense(tag, synsets[0], "lemma", synsets[1:]))
        else:
            senses.append(TagSense(tag, None, "none"))
    return TagSenses(senses)


def read_mapping(path: str | os.PathLike[str]) -> dict[str, MappedTag]:
    """Read a CSV (or, with the suffix .tsv, tab-separated) file that maps tags to synsets.

    It has two columns, ``tag`` and ``synset`` (or ``PASCAL-Part_class`` and ``WDsynset``, as in PASCAL-Part's
    alignment); with a header, other columns are ignored. A synset is written ``n03358726``, ``03358726-n`` or as its
    number; an empty synset means that the tag has no meaning. A ``_`` in a tag, and in the returned keys, is read as a
    space. Raises DataError if the file cannot be read, a line is not such a pair, or two lines contradict each other;
    the message names file and line.
    """
    lines_by_key: dict[str, MappedTag] = {}
    for tag, synset, source in read_pairs(path, MAPPING_FILE):
        offset = synset_offset(synset, bare=True)
        if synset and offset is None:
            expected = f"expected its id or number, such as n03358726; or nothing, for '{tag}' to have no meaning"
            raise DataError(f"{source}: '{synset}' is not a noun's synset; {expected}.")
        previous = lines_by_key.setdefault(_key(tag), MappedTag(tag, offset, source))
        if previous.offset != offset:
            raise DataError(
                f"{source}: '{tag}' is mapped to another synset than in {previous.source}. Leave one of the lines out."
            )
    return lines_by_key


def write_mapping(path: str | os.PathLike[str], senses: Iterable[TagSense]) -> None:
    """Write a mapping for `read_mapping` that people can correct by hand.

    In addition to tag and synset, it has columns for how the tag was matched, the words and the gloss of the synset,
    and the other senses with their ids. Tags without a meaning have an empty synset.
    """
    header = (*MAPPING_FILE.columns, "how", "words", "gloss", "other_senses")
    rows = []
    for tag, synset, how, others in senses:
        other_senses = (f"{other.id} {', '.join(other.words)}: {other.gloss}" for other in others)
        meaning = ("", "", "") if synset is None else (synset.id, ", ".join(synset.words), synset.gloss)
        rows.append((tag, meaning[0], how, *meaning[1:], " | ".join(other_senses)))
    write_pairs(path, header, rows)


def is_a_relations(wordnet: WordNet, tags: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs (tag, direct parent) of all tags, by the most frequent meaning of each tag.

    Tags that are not nouns in the WordNet are left out. A parent is named by its first word and its number,
    ``big cat [02127808]``, because a word may have several meanings.
    """
    senses = ((tag, offset) for tag in dict.fromkeys(tags) for offset in wordnet.senses(tag)[:1])
    return [relation for tag, offset in senses for relation in is_a_of_synset(wordnet, tag, wordnet.synset(offset))]


def is_a_of_synset(wordnet: WordNet, tag: str, synset: Synset) -> list[tuple[str, str]]:
    """Return the pairs (tag, direct parent) of a tag with this meaning; parents are named as in `is_a_relations`."""
    return [(tag, f"{parent.words[0]} [{parent.offset:08d}]") for parent in map(wordnet.synset, synset.hypernyms)]


class WrittenRelations(NamedTuple):
    """What `write_relations` wrote."""

    part_of: list[PartOf]
    is_a: list[tuple[str, str]]  # Child and direct parent
    senses: TagSenses


def write_relations(
    folder: Path,
    tags: Iterable[str],
    wordnet: str | os.PathLike[str] | None = None,
    *,
    mapping: str | os.PathLike[str] | None = None,
    inherit: int | None = 1,
) -> WrittenRelations:
    """Write ``part_of.csv``, ``isa.csv`` and ``tag_synsets.csv`` of tags into a folder, those that are not empty.

    The arguments are those of `WordNet`, `match_tags` and `wordnet_part_of`. Raises DataError if no tag is a part or a
    kind of anything.
    """
    database = WordNet(wordnet)
    senses = match_tags(database, tags, mapping=mapping)
    part_of = wordnet_part_of(database, senses, inherit=inherit)
    meanings = ((sense.tag, sense.synset) for sense in senses if sense.synset is not None)
    is_a = [relation for tag, synset in meanings for relation in is_a_of_synset(database, tag, synset)]
    if not (part_of or is_a):
        raise DataError(
            f"The WordNet of {database.folder} knows none of the tags as a part or a kind of another; "
            f"{senses.summary()} Say what they mean, in a CSV of tag,synset."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, header, pairs in (("part_of.csv", ("part", "whole"), part_of), ("isa.csv", ("child", "parent"), is_a)):
        if pairs:
            write_pairs(folder / name, header, pairs)
    write_mapping(folder / "tag_synsets.csv", senses)
    return WrittenRelations(part_of, is_a, senses)


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


def _key(tag: str) -> str:
    """Return the key by which tags are compared with the tags of a mapping."""
    return tag_key(tag.replace("_", " "))
