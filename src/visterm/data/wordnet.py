"""WordNet's nouns: the senses of a word, and what each is a kind of.

Plurals are looked up as morphy(7WN) says; `visterm.data.wordnet_files` reads the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import clean_tag
from visterm.data.relations import IsA, read_is_a
from visterm.data.wordnet_files import (
    Synset,
    find_wordnet,
    parse_synset,
    read_database,
    read_exceptions,
    read_index,
)

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


class WordNet:
    """The nouns of a WordNet database.

    Parameters
    ----------
    folder : path-like, optional
        Of its files. None: it is looked for at the usual places (`find_wordnet`).

    Attributes
    ----------
    folder : Path
        Where it was read from.

    Raises
    ------
    DataError
        If it is not found, or a file is missing or not in WordNet's format; the message names file and line.
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
        for candidate in (form, form.replace("-", "_"), form.replace("_", "-"), plain):
            for base in self._bases(candidate):
                if base in self._senses:
                    return base
        return None

    def has(self, offset: int) -> bool:
        """Return whether a meaning has this number."""
        return (
            offset >= 0
            and self._data.startswith(b"%08d " % offset, offset)
            and (offset == 0 or self._data[offset - 1 : offset] == b"\n")
        )

    def synset(self, offset: int) -> Synset:
        """Read one meaning.

        Raises
        ------
        DataError
            If there is none at that place.
        """
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
            relations.update(dict.fromkeys(is_a_of_synset(wordnet, tag, wordnet.synset(offset))))
    return list(relations)


def is_a_of_synset(wordnet: WordNet, tag: str, synset: Synset) -> list[IsA]:
    """Say what a tag of one meaning is directly a kind of; parents are named as in `is_a_relations`."""
    return [IsA(tag, f"{parent.words[0]} [{parent.offset:08d}]") for parent in map(wordnet.synset, synset.hypernyms)]
