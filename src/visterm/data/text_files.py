"""Reading lists of words and texts in which tags are counted; escaping cells that a spreadsheet would evaluate."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, TagFileError
from visterm.core.files import GB, read_regular
from visterm.core.queries import inverse_frequencies
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key

MAX_TEXT_BYTES = GB  # Default maximum size of a text file
MAX_WORD_LENGTH = 1000  # Maximum number of characters in a word or phrase: a longer line is not a phrase

# First characters of cells that spreadsheets read as a formula, including full-width and skipped characters
FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r")

GUARD = "'"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Byte-order marks of UTF-16
_WORD = re.compile(r"\w+")


def read_text(path: Path, noun: str = "tag file", limit: int = MAX_TEXT_BYTES, *, or_utf16: bool = False) -> str:
    """Read a file (`noun`, in messages) of at most `limit` bytes as UTF-8, with or without a byte-order mark.

    With `or_utf16`, a file with a UTF-16 byte-order mark is also accepted, as Excel writes for "Unicode text". Raises
    TagFileError if it cannot be opened, is not a regular file, is too large, or is in another encoding.
    """
    try:
        content = read_regular(path, limit)
    except FileNotFoundError as error:
        raise TagFileError(f"There is no {noun} {path}.") from error
    except OSError as error:
        raise TagFileError(f"The {noun} {path} cannot be read: {error.strerror or error}.") from error
    if content.startswith(UTF16) and not or_utf16:
        raise TagFileError(f"The {noun} {path} is in UTF-16; expected UTF-8. Save it as 'UTF-8' or 'CSV UTF-8'.")
    try:
        return content.decode("utf-16" if content.startswith(UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        encodings = "'UTF-8'" if path.suffix == ".txt" else "'UTF-8' or 'CSV UTF-8'"
        problem = f"line {line} has the byte 0x{content[error.start]:02x}"
        encoding = "UTF-16" if content.startswith(UTF16) else "UTF-8"
        raise TagFileError(f"The {noun} {path} is not {encoding}: {problem}. Save it as {encodings}.") from error


def read_words(path: str | os.PathLike[str]) -> list[str]:
    """Read a list of words or phrases, one per line; empty lines are ignored.

    Raises DataError if the file cannot be read as UTF-8, has no words, or a line of more than a thousand characters.
    """
    words = [clean_tag(line) for line in read_text(Path(path), "list of words").splitlines()]
    for number, word in enumerate(words, start=1):
        if len(word) > MAX_WORD_LENGTH:
            expected = f"expected a word or a phrase of at most {MAX_WORD_LENGTH:,}"
            raise DataError(f"{path}, line {number}: '{word[:40]} …' has {len(word):,} characters; {expected}.")
    if not any(words):
        raise DataError(f"The list of words {path} is empty; expected a word or a phrase on each line.")
    return list(filter(None, words))


def guarded(cell: str) -> str:
    """Prefix a cell with an apostrophe if it would be read as a formula, or if `unguarded` would change it."""
    return GUARD + cell if cell.lstrip(GUARD).startswith(FORMULA_STARTS) else cell


def unguarded(cell: str) -> str:
    """Undo `guarded`."""
    return cell[1:] if cell.startswith(GUARD) and cell.lstrip(GUARD).startswith(FORMULA_STARTS) else cell


class Reference(NamedTuple):
    """Document frequencies of tags in a corpus of texts."""

    counts: NDArray[np.int64]  # shape (n_tags,): number of texts with the tag
    n_texts: int

    @property
    def idf(self) -> NDArray[np.float32]:
        """Return ``-log`` of the share of texts with each tag; a tag without texts is treated as if it had one."""
        return inverse_frequencies(self.counts, self.n_texts)

    def to_json(self) -> dict[str, object]:
        """Return the counts as plain numbers for the JSON of a run."""
        return {"counts": self.counts.tolist(), "texts": self.n_texts}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Restore the counts from the result of `to_json`."""
        return cls(np.array(content["counts"], np.int64), content["texts"])


def count_texts(path: str | os.PathLike[str], vocabulary: Vocabulary) -> Reference:
    """Count the texts of a file with each tag, ignoring case; a tag of several words must occur as a phrase.

    The file is UTF-8 with a text (a caption, a document) on each line; empty lines are ignored. Raises TagFileError if
    the file cannot be read, has no text, or has none of the tags.
    """
    tags: dict[tuple[str, ...], list[int]] = {}
    spellings = [*enumerate(vocabulary), *((vocabulary.index(alias), alias) for alias in vocabulary.aliases)]
    for column, spelling in spellings:
        tags.setdefault(tuple(_WORD.findall(tag_key(spelling))), []).append(column)
    tags.pop((), None)
    max_words = max(map(len, tags), default=0)
    counts = np.zeros(len(vocabulary), np.int64)
    n_texts = 0

    for line in read_text(Path(path), "reference corpus (idf)", 4 * GB).splitlines():
        if line.strip():
            n_texts += 1
            words = _WORD.findall(tag_key(line))
            phrases = ((start, start + n) for n in range(1, max_words + 1) for start in range(len(words) - n + 1))
            phrases_in_text = {tuple(words[start:stop]) for start, stop in phrases} & tags.keys()
            counts[[column for phrase in phrases_in_text for column in tags[phrase]]] += 1

    if n_texts == 0:
        raise TagFileError(f"The reference corpus {path} has no text; expected one text per line.")
    if not counts.any():
        raise TagFileError(
            f"None of the {len(vocabulary):,} tags (such as '{vocabulary.tags[0]}') is in the reference corpus {path}. "
            "Use a corpus in the language of the tags."
        )
    return Reference(counts, n_texts)
