"""How many texts of a reference corpus have each tag: what words weigh where captions are too few to tell."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import TagFileError
from visterm.core.files import GB
from visterm.core.queries import inverse_frequencies
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.text_files import read_text

_PIECE = re.compile(r"\w+")


class Reference(NamedTuple):
    """How common tags are in a corpus of texts."""

    counts: NDArray[np.int64]  # shape (n_tags,): texts that have the tag
    n_texts: int

    @property
    def idf(self) -> NDArray[np.float32]:
        """Return ``-log`` of the share of texts with each tag; a tag that none has counts as in one."""
        return inverse_frequencies(self.counts, self.n_texts)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, as they are saved with a run."""
        return {"counts": self.counts.tolist(), "texts": self.n_texts}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Make it of what `to_json` returned."""
        return cls(np.array(saved["counts"], np.int64), saved["texts"])


def count_texts(path: str | os.PathLike[str], vocabulary: Vocabulary) -> Reference:
    """Count the texts of a file that have each tag, in any case; a tag of several words as these words in a row.

    The file is UTF-8, a text (a caption, a document) each line; empty lines do not count. Raises TagFileError if the
    file cannot be read, or has no text, or none of the tags is in it.
    """
    tags: dict[tuple[str, ...], list[int]] = {}
    spellings = [*enumerate(vocabulary), *((vocabulary.index(alias), alias) for alias in vocabulary.aliases)]
    for column, spelling in spellings:
        tags.setdefault(tuple(_PIECE.findall(tag_key(spelling))), []).append(column)
    tags.pop((), None)
    longest = max(map(len, tags), default=0)
    counts = np.zeros(len(vocabulary), np.int64)
    n_texts = 0
    for line in read_text(Path(path), "reference corpus (idf)", 4 * GB).splitlines():
        if line.strip():
            n_texts += 1
            words = _PIECE.findall(tag_key(line))
            spans = ((start, start + n) for n in range(1, longest + 1) for start in range(len(words) - n + 1))
            found = {tuple(words[start:stop]) for start, stop in spans} & tags.keys()
            counts[[column for run in found for column in tags[run]]] += 1
    if n_texts == 0:
        raise TagFileError(f"The reference corpus {path} has no text; expected one text a line.")
    if not counts.any():
        raise TagFileError(
            f"None of the {len(vocabulary):,} tags (such as '{vocabulary.tags[0]}') is in the reference corpus {path}. "
            "Take one in the language of the tags."
        )
    return Reference(counts, n_texts)
