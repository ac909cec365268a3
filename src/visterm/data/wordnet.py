"""WordNet's nouns: the senses of a word, what each is a kind of, and what it has as parts.

The format of its files is described in its manual pages wndb(5WN) and morphy(7WN), which says how plurals are looked
up; wnintro(1WN) has the two variables of the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.files import GB, read_regular
from visterm.core.vocabulary import clean_tag

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


class Synset(NamedTuple):
    """One meaning: its words, and the meanings that it is directly a kind of and directly made of."""

    offset: int  # Where it stands in ``data.noun``; WordNet's number for it, which changes with the version
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
        self._exceptions = dict(read_exceptions(self.folder))
        self._data = read_database(self.folder, "data.noun")

    def __len__(self) -> int:
        return len(self._senses)

    def senses(self, word: str) -> list[int]:
        """Return the offsets of a word's meanings, the most frequent first; empty where it is no noun of WordNet.

        Case and spaces (or ``_``) do not matter; of a plural that is not listed itself the singular is looked up.
        """
        lemma = self.lemma(word)
        return [] if lemma is None else list(self._senses[lemma])

    def lemma(self, word: str) -> str | None:
        """Return the entry under which a word is listed (``polar_bear`` for "Polar bears"), or None."""
        form = clean_tag(word).lower().replace(" ", "_")
        plain = form.replace("-", "").replace("_", "")
        candidates = (form, form.replace("-", "_"), form.replace("_", "-"), plain)
        bases = (base for candidate in candidates for base in self._bases(candidate))
        return next((base for base in bases if base in self._senses), None)

    def has(self, offset: int) -> bool:
        """Return whether a meaning has this number."""
        return (
            offset >= 0
            and self._data.startswith(b"%08d " % offset, offset)
            and (offset == 0 or self._data[offset - 1 : offset] == b"\n")
        )

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
        for whole, prefix in ((form, ""), (last, head + joint)):
            for base in self._exceptions.get(whole, ()):
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
    for place in PLACES:
        if (Path(place) / "index.noun").is_file():
            return Path(place)
    raise DataError(
        f"WordNet is at none of its usual places ({', '.join(PLACES)}). Install it (Debian's package wordnet-base), or "
        "give the folder of its database files."
    )


def synset_offset(text: str, *, bare: bool = False) -> int | None:
    """Read the id of a noun's synset: ``n03358726`` or ``03358726-n``; None where the text is none.

    If `bare`, it may be the number alone, also without its leading zeros.
    """
    found = _ID.fullmatch(text)
    if found is not None:
        return int(found[1] or found[2])
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


def read_exceptions(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the entries of ``noun.exc``: an irregular plural and its singulars.

    Raises DataError if it is missing, or a line has no singular.
    """
    lines = read_database(folder, "noun.exc").decode(errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if len(fields) == 1:
            raise DataError(f"{folder / 'noun.exc'}, line {number}: one word; expected a plural and singulars.")
        if fields:
            yield fields[0], tuple(fields[1:])


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
