"""WordNet's nouns, and which of its meanings a tag has: by its own id, by a mapping file, or its first sense as a noun.

The format of WordNet's files is described in its manual pages wndb(5WN) and morphy(7WN), which says how plurals are
looked up; wnintro(1WN) has the two variables of the environment.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from visterm.core.errors import DataError
from visterm.core.files import GB, read_regular
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.relations import PairFormat, read_is_a, read_pairs, write_pairs

DEBIAN = "/usr/share/wordnet"  # Where Debian's wordnet-base puts them

# Where they are looked for, if neither a folder is given nor the environment says one
PLACES = (DEBIAN, "/usr/local/WordNet-3.0/dict", "/usr/local/WordNet-3.1/dict", "/opt/homebrew/opt/wordnet/dict")

HYPERNYMS = ("@", "@i")  # Pointer symbols: is a kind of, is an instance of
PARTS, MEMBERS, SUBSTANCES = ("%p",), ("%m",), ("%s",)  # Has as a part (trunk), as a member (tree), is made of (water)

# Plural endings and what they replace, in the order of morphy(7WN)
ENDINGS = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y")
)  # fmt: skip

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
    """One meaning: its words, and the meanings that it is directly a kind of and directly made of."""

    offset: int  # Its byte in ``data.noun``; WordNet's number for it, which changes with the version
    words: tuple[str, ...]  # With spaces, the usual one first
    hypernyms: tuple[int, ...]  # Offsets of what it is a kind or an instance of
    # Offsets of what it has as parts, as members, and of what it consists
    parts: tuple[int, ...]
    members: tuple[int, ...]
    substances: tuple[int, ...]
    gloss: str  # What it means, often with an example

    @property
    def id(self) -> str:
        """Its name in ImageNet's manner: n03358726."""
        return f"n{self.offset:08d}"


class WordNet:
    """The nouns of a WordNet database, in a folder or else at the usual places (`find_wordnet`).

    Raises DataError if it is not found, or a file is missing or not in WordNet's format; the message names file and
    line.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = find_wordnet(folder)
        self._senses = dict(read_index(self.folder))
        self._exceptions: dict[str, list[str]] = {}  # Of irregular plurals the singulars
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
        """Return the offsets of a word's meanings, the most frequent first; empty where it is no noun of WordNet.

        Case and spaces (or ``_``) do not matter; of a plural that is not listed itself the singular is looked up.
        """
        return list(self._senses.get(self.lemma(word) or "", ()))

    def lemma(self, word: str) -> str | None:
        """Return the entry under which a word is listed (``polar_bear`` for "Polar bears"), or None."""
        form = clean_tag(word).lower().replace(" ", "_")
        plain = form.replace("-", "").replace("_", "")
        candidates = (form, form.replace("-", "_"), form.replace("_", "-"), plain)
        bases = (base for candidate in candidates for base in self._bases(candidate))
        return next((base for base in bases if base in self._senses), None)

    def has(self, offset: int) -> bool:
        """Return whether a meaning has this number."""
        begins_line = offset == 0 or self._data[offset - 1 : offset] == b"\n"
        return offset >= 0 and begins_line and self._data.startswith(b"%08d " % offset, offset)

    def synset(self, offset: int) -> Synset:
        """Read one meaning. Raises DataError if there is none at that place."""
        end = self._data.find(b"\n", offset)
        try:
            return parse_synset(self._data[offset : end if end >= 0 else None].decode(), offset)
        except (ValueError, IndexError) as error:
            raise DataError(
                f"{self.folder / 'data.noun'} has no synset at byte {offset} ({error}). Are index.noun and data.noun "
                "of one version of WordNet, unchanged?"
            ) from error

    def _bases(self, form: str) -> Iterator[str]:
        """Yield what a form may be listed under: itself, then its singulars; of several words the last one changes."""
        yield form
        head, joint, last = form.rpartition("_")
        for plural, prefix in ((form, ""), (last, head + joint)):
            for base in self._exceptions.get(plural, ()):
                yield prefix + base
        for ending, instead in ENDINGS:
            if form.endswith(ending) and len(form) > len(ending):
                yield form[: -len(ending)] + instead


def find_wordnet(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of the database files: the one that is named, or the one that has it as ``dict``.

    None: what the environment says (``$WNSEARCHDIR``, or ``$WNHOME/dict``), or else the first of `PLACES` that has
    them. Raises DataError if no folder is given and none is found.
    """
    home = os.environ.get("WNHOME")
    folder = folder or os.environ.get("WNSEARCHDIR") or (Path(home) / "dict" if home else None)
    if folder is not None:
        inner = Path(folder) / "dict"
        return inner if (inner / "index.noun").is_file() else Path(folder)
    for usual in map(Path, PLACES):
        if (usual / "index.noun").is_file():
            return usual
    raise DataError(
        f"WordNet is at none of its usual places ({', '.join(PLACES)}). Install it (Debian's package wordnet-base), or "
        "give the folder of its database files."
    )


def synset_offset(text: str, *, bare: bool = False) -> int | None:
    """Read the id of a noun's synset: ``n03358726`` or ``03358726-n``; None where the text is none.

    If `bare`, it may be the number alone, also without its leading zeros.
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
                raise ValueError(f"{len(offsets)} senses where {fields[2]} are announced")
        except (ValueError, IndexError) as error:
            raise DataError(f"{folder / 'index.noun'}, line {number}: not in WordNet's format ({error}).") from error
        yield fields[0], offsets


def parse_synset(line: str, offset: int) -> Synset:
    """Read a line of ``data.noun``.

    Raises ValueError, IndexError if it is not in WordNet's format, or is another synset's than the offset's.
    """
    data, _, gloss = line.partition("|")
    fields = data.split()
    if offset < 0 or int(fields[0]) != offset:
        raise ValueError("another offset stands there")
    at = 4 + 2 * int(fields[3], 16)
    pointers = [fields[p : p + 4] for p in range(at + 1, at + 1 + 4 * int(fields[at]), 4)]

    def targets(symbols: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(int(target) for symbol, target, of, _ in pointers if symbol in symbols and of == "n")

    return Synset(
        offset, words=tuple(word.replace("_", " ") for word in fields[4:at:2]), hypernyms=targets(HYPERNYMS),
        parts=targets(PARTS), members=targets(MEMBERS), substances=targets(SUBSTANCES), gloss=gloss.strip(),
    )  # fmt: skip


def read_database(folder: Path, name: str) -> bytes:
    """Read one of the files. Raises DataError if it is missing."""
    try:
        return read_regular(folder / name, GB)
    except OSError as error:
        raise DataError(
            f"WordNet's {name} cannot be read from {folder} ({error.strerror}). Pass the folder of its "
            f"database files; Debian's package wordnet-base has it at {DEBIAN}."
        ) from error


class TagSense(NamedTuple):
    """What one tag means."""

    tag: str
    synset: Synset | None
    # How it was found. "mapping": as the mapping file says; "id": the tag is a synset's id; "lemma": it is a noun of
    # WordNet, and the most frequent sense was taken; "none": none of these
    how: Literal["mapping", "id", "lemma", "none"]
    others: tuple[Synset, ...] = ()  # The senses that were not taken; of lemmas only


class TagSenses(tuple[TagSense, ...]):
    """What tags mean, in the order of the tags, and which of them a person should look at."""

    @property
    def ambiguous(self) -> list[TagSense]:
        """Those with several senses, of which the first was taken."""
        return [sense for sense in self if sense.others]

    @property
    def unmatched(self) -> list[str]:
        """The tags without a meaning."""
        return [sense.tag for sense in self if sense.synset is None]

    def tags_by_synset(self) -> dict[int, list[str]]:
        """Return the tags of each synset, by its offset: synonyms ("stairs", "steps") share one."""
        tags: dict[int, list[str]] = {}
        for sense in self:
            if sense.synset is not None:
                tags.setdefault(sense.synset.offset, []).append(sense.tag)
        return tags

    def summary(self) -> str:
        """Return a sentence: how many tags were matched in which way."""
        ways = Counter(sense.how for sense in self if sense.synset is not None)
        counted = ", ".join(f"{ways[how]} by {how}" for how in ("mapping", "id", "lemma") if ways[how])
        return (
            f"{ways.total()} of {len(self)} tags have a meaning in WordNet ({counted or 'none'}); "
            f"with several senses, of which the first was taken: {len(self.ambiguous)}."
        )


class MappedTag(NamedTuple):
    """One line of a mapping."""

    tag: str
    offset: int | None  # Of its synset; None if the tag has none
    place: str


def match_tags(wordnet: WordNet, tags: Iterable[str], *, mapping: str | os.PathLike[str] | None = None) -> TagSenses:
    """Find the meaning of each tag in a WordNet.

    `mapping`, a file for `read_mapping`, goes before everything else; tags that it does not name are looked up. Raises
    DataError if the mapping cannot be read, names none of the tags, or names synsets that this WordNet has not.
    """
    tags = list(tags)
    mapped = {} if mapping is None else read_mapping(mapping)
    lines = [mapped[key] for key in map(_key, tags) if key in mapped]
    if mapping is not None and not lines:
        raise DataError(
            f"The mapping {mapping} names none of the tags ({', '.join(tags[:3])}); it has "
            f"{', '.join(line.tag for line in list(mapped.values())[:3])}. Check that its lines are tag,synset."
        )

    absent = [line for line in lines if line.offset is not None and not wordnet.has(line.offset)]
    if absent:
        examples = "; ".join(f"{line.place}: {line.tag} n{line.offset:08d}" for line in absent[:3])
        raise DataError(
            f"{len(absent)} of the {len(lines)} synsets that {mapping} gives the tags are not in the WordNet of "
            f"{wordnet.folder} ({examples}). Their numbers differ from version to version: pass the folder of the "
            "version that the mapping was made for, or correct these lines (an empty synset: none)."
        )

    senses = []
    for tag in tags:
        line, offset = mapped.get(_key(tag)), synset_offset(tag)
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
    """Read a CSV (or, by its suffix .tsv, tab-separated file) that says which synset a tag means.

    Two columns, ``tag`` and ``synset`` (as PASCAL-Part's alignment calls them: ``PASCAL-Part_class`` and ``WDsynset``);
    with such a header there may be others, which are not read. A synset is written ``n03358726``, ``03358726-n`` or as
    its number; where it is empty, the tag has no meaning. A ``_`` in a tag, and in the keys that are returned, is a
    space. Raises DataError if it cannot be read, a line is not such a pair, or two lines say different things about a
    tag; the message names file and line.
    """
    mapped: dict[str, MappedTag] = {}
    for tag, synset, where in read_pairs(path, MAPPING_FILE):
        offset = synset_offset(synset, bare=True)
        if synset and offset is None:
            expected = f"expected its id or number, such as n03358726; or nothing, for '{tag}' to have no meaning"
            raise DataError(f"{where}: '{synset}' is no noun's synset; {expected}.")
        first = mapped.setdefault(_key(tag), MappedTag(tag, offset, where))
        if first.offset != offset:
            raise DataError(
                f"{where}: '{tag}' is mapped to another synset than in {first.place}. Leave one of the lines out."
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


def read_relations(path: str | os.PathLike[str], tags: Iterable[str]) -> list[tuple[str, str]]:
    """Read what tags are kinds of: from an is-a CSV, or WordNet's folder. Raises DataError if it cannot be used."""
    return is_a_relations(WordNet(path), tags) if Path(path).is_dir() else read_is_a(path)


def is_a_relations(wordnet: WordNet, tags: Iterable[str]) -> list[tuple[str, str]]:
    """Return what each tag is directly a kind of, tag by tag, by its most frequent meaning.

    Tags that are no nouns of the WordNet are left out. A parent is named by its first word and its number,
    ``big cat [02127808]``, because a word has several meanings.
    """
    first = ((tag, offset) for tag in dict.fromkeys(tags) for offset in wordnet.senses(tag)[:1])
    return [relation for tag, offset in first for relation in is_a_of_synset(wordnet, tag, wordnet.synset(offset))]


def is_a_of_synset(wordnet: WordNet, tag: str, synset: Synset) -> list[tuple[str, str]]:
    """Return what a tag of one meaning is directly a kind of; parents are named as in `is_a_relations`."""
    return [(tag, f"{parent.words[0]} [{parent.offset:08d}]") for parent in map(wordnet.synset, synset.hypernyms)]


def _key(tag: str) -> str:
    """Return that by which tags and words of a mapping are compared."""
    return tag_key(tag.replace("_", " "))
