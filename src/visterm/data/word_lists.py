"""Lists of words that people write: a text file, one word or phrase a line."""

from __future__ import annotations

import os
from pathlib import Path

from visterm.core.errors import DataError
from visterm.core.vocabulary import clean_tag
from visterm.data.tag_formats.text import read_text

LONGEST = 1000
"""Characters of a word or phrase: more is a file of something else."""


def read_words(path: str | os.PathLike[str]) -> list[str]:
    """Read words, one a line; a line may be a phrase, and empty ones do not count.

    Raises
    ------
    DataError
        If the file cannot be read as UTF-8, has no word, or one of more than a thousand characters.
    """
    words = [clean_tag(line) for line in read_text(Path(path), "list of words").splitlines()]
    for number, word in enumerate(words, start=1):
        if len(word) > LONGEST:
            raise DataError(
                f"{path}, line {number}: '{word[:40]} …' has {len(word):,} characters; expected a word or a phrase of "
                f"at most {LONGEST:,}."
            )
    found = [word for word in words if word]
    if not found:
        raise DataError(f"The list of words {path} is empty; expected a word or a phrase on each line.")
    return found
