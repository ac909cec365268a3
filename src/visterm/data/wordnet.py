"""WordNet's nouns, read from its database files: the senses of a word, and what each is a kind of.

The files (``index.noun``, ``data.noun``, ``noun.exc``) are those of WordNet's ``dict`` folder; Debian's wordnet-base
puts them into /usr/share/wordnet. Their format is described in WordNet's manual pages wndb(5WN) and morphy(7WN).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import clean_tag
from visterm.data.relations import IsA, read_is_a

DEBIAN = "/usr/share/wordnet"

HYPERNYMS = ("@", "@i")
"""Pointer symbols: is a kind of, is an instance of."""

ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Plural endings and what they replace, in the order of morphy(7WN)."""


class Synset(NamedTuple):
    """One meaning: its words, and the meanings that it is directly a kind of.

    Attributes
    ----------
    offset : int
        Where it stands in ``data.noun``; WordNet's number for it.
    words : tuple of str
        With spaces, the usual one first.
    hypernyms : tuple of int
        Offsets.
    """

    offset: int
    words: tuple[str, ...]
    hypernyms: tuple[int, ...]


class WordNet:
    """The nouns of a WordNet database.

    Parameters
    ----------
    folder : path-like
        The ``dict`` folder.

    Raises
    ------
    DataError
        If a file is missing or not in WordNet's format; the message names file and line.
    """

    def __init__(self, folder: str | os.PathLike[str] = DEBIAN) -> None:
        self._folder = Path(folder)
        self._senses = dict(self._index())
        self._exceptions = dict(self._irregular())
        self._data = self._read("data.noun")

    def __len__(self) -> int:
        return len(self._senses)

    def senses(self, word: str) -> list[int]:
        """Give the offsets of a word's meanings, the most frequent first; empty where it is no noun of WordNet.

        Case and spaces (or ``_``) do not matter; of a plural that is not listed itself the singular is looked up.
        """
        lemma = self.lemma(word)
        return [] if lemma is None else list(self._senses[lemma])

    def lemma(self, word: str) -> str | None:
        """Give the entry under which a word is listed (``polar_bear`` for "Polar bears"), or None."""
        form = clean_tag(word).lower().replace(" ", "_")
        plain = form.replace("-", "").replace("_", "")
        for candidate in (form, form.replace("-", "_"), form.replace("_", "-"), plain):
            for base in self._bases(candidate):
                if base in self._senses:
                    return base
        return None

    def synset(self, offset: int) -> Synset:
        """Read one meaning.

        Raises
        ------
        DataError
            If there is none at that place.
        """
        end = self._data.find(b"\n", offset)
        fields = self._data[offset : end if end >= 0 else None].decode().partition("|")[0].split()
        try:
            if offset < 0 or int(fields[0]) != offset:
                raise ValueError("another offset stands there")
            n_words = int(fields[3], 16)
            words = tuple(word.replace("_", " ") for word in fields[4 : 4 + 2 * n_words : 2])
            at = 4 + 2 * n_words
            pointers = [fields[p : p + 4] for p in range(at + 1, at + 1 + 4 * int(fields[at]), 4)]
            hypernyms = tuple(
                int(target) for symbol, target, part, _ in pointers if symbol in HYPERNYMS and part == "n"
            )
        except (ValueError, IndexError) as error:
            raise DataError(
                f"{self._folder / 'data.noun'} has no synset at byte {offset} ({error}). Are index.noun and data.noun "
                "of one version of WordNet, unchanged?"
            ) from error
        return Synset(offset, words, hypernyms)

    def _bases(self, form: str) -> Iterator[str]:
        """Give what a form may be listed under: itself, then its singulars; of several words the last one changes."""
        yield form
        head, joint, last = form.rpartition("_")
        for whole, prefix in ((form, ""), (last, head + joint)):
            for base in self._exceptions.get(whole, ()):
                yield prefix + base
        for ending, instead in ENDINGS:
            if form.endswith(ending) and len(form) > len(ending):
                yield form[: -len(ending)] + instead

    def _index(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for number, line in enumerate(self._lines("index.noun"), start=1):
            if not line.strip() or line.startswith(" "):  # the licence
                continue
            fields = line.split()
            try:
                n_senses = int(fields[2])
                offsets = tuple(map(int, fields[6 + int(fields[3]) :]))
                if fields[1] != "n" or n_senses < 1 or len(offsets) != n_senses:
                    raise ValueError(f"{len(offsets)} senses where {fields[2]} are announced")
            except (ValueError, IndexError) as error:
                raise DataError(
                    f"{self._folder / 'index.noun'}, line {number}: not in WordNet's format ({error})."
                ) from error
            yield fields[0], offsets

    def _irregular(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for number, line in enumerate(self._lines("noun.exc"), start=1):
            fields = line.split()
            if len(fields) == 1:
                raise DataError(
                    f"{self._folder / 'noun.exc'}, line {number}: one word; expected a plural and singulars."
                )
            if fields:
                yield fields[0], tuple(fields[1:])

    def _lines(self, name: str) -> list[str]:
        return self._read(name).decode(errors="replace").split("\n")

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"WordNet's {name} cannot be read from {self._folder} ({error.strerror}). Give the folder of its "
                f"database files; Debian's package wordnet-base has it at {DEBIAN}."
            ) from error


def read_relations(path: str | os.PathLike[str], tags: Iterable[str]) -> list[IsA]:
    """Read what tags are kinds of: from an is-a CSV, or from a folder of WordNet's files, where each tag is looked up.

    Raises
    ------
    DataError
        If the file or the folder cannot be used.
    """
    return is_a_relations(WordNet(path), tags) if Path(path).is_dir() else read_is_a(path)


def is_a_relations(wordnet: WordNet, tags: Iterable[str], *, senses: int = 1) -> list[IsA]:
    """Say what each tag is directly a kind of.

    Parameters
    ----------
    wordnet : WordNet
        Where tags are looked up; those that are no nouns of it are left out.
    tags : iterable of str
        A `Vocabulary`, say.
    senses : int
        How many meanings of a tag, the most frequent first. More find more siblings, also by meanings that photos do
        not show.

    Returns
    -------
    list of IsA
        Tag by tag. A parent is named by its first word and its number, ``big cat [02127808]``, because a word has
        several meanings.

    Raises
    ------
    UserError
        If `senses` is not a whole number of 1 or more.
    """
    if isinstance(senses, bool) or not isinstance(senses, int) or senses < 1:
        raise UserError(f"senses is {senses!r}; expected a whole number of 1 or more.")
    relations: dict[IsA, None] = {}
    for tag in tags:
        for offset in wordnet.senses(tag)[:senses]:
            for parent in map(wordnet.synset, wordnet.synset(offset).hypernyms):
                relations[IsA(tag, f"{parent.words[0]} [{parent.offset:08d}]")] = None
    return list(relations)
