"""What a typed search means: words, quoted phrases and ``-`` before what must not be there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError

_PIECE = re.compile(
    r'(?P<within>(?<=[^\s,;"-])"(?=[^"]*$))'
    r'|(?P<minus>-?)(?:"(?P<quoted>(?:[^"]|"")*)(?:"|$)|(?P<word>[^\s,;"-][^\s,;"]*))'
    r"|[,;-]"
)
"""A phrase may end with the search instead of a quote; a quote within a word may not stand alone."""


class Word(NamedTuple):
    """One word of a search, or one phrase in quotes."""

    text: str
    sign: int
    quoted: bool


class OutsideWords(NamedTuple):
    """The words of a search that are no tags, but have a place among them, made of their vectors."""

    words: list[str]  # Each once, as it was typed or added; those that cancel themselves out are left out
    weights: NDArray[np.float32]  # shape (n_words,): as those of tags
    rows: NDArray[np.float32]  # shape (n_words, width): as those of tags, in the model's space


@dataclass(frozen=True, slots=True)
class Query:
    """A search as weights of tags."""

    weights: sp.csr_array
    """float32, shape (1, n_tags). Above 0: a word; below 0: a `-word`. A tag named twice weighs twice."""
    known: list[str]  # The tags found, in the order typed
    unknown: list[str]  # The words that are no tag, and have no place among them
    outside: OutsideWords | None = None
    """Words without training images that count all the same; None where all that count are tags."""
    not_learned: Mapping[str, int] = field(default_factory=dict)
    """Tags that people gave to photos and no run knows yet, with 1, or -1 for a `-word`."""


def quoted(tag: str) -> str:
    """Return a tag as it is typed in a search so that nothing in it is read as something else."""
    doubled = tag.replace('"', '""')
    return f'"{doubled}"'


def split_query(text: str) -> list[list[Word]]:
    """Split a search such as ``snow tree -people "polar bear"`` into runs of words.

    A tag of several words lies within one run; commas, semicolons, quotes and ``-`` end a run. The sign of ``-two
    words`` is that of its first word, so that both may belong to one tag. Within quotes, ``""`` is a quote. Raises
    UserError if a single quote is within a word, as in ``sea"x``.
    """
    runs: list[list[Word]] = [[]]
    for piece in _PIECE.finditer(text):
        sign = -1 if piece["minus"] else 1
        if piece["within"]:
            raise UserError(
                f"The search {text} has a quote within a word. Put the tag in quotes and type its own quotes twice: "
                '"sea""x" finds the tag sea"x.'
            )
        if piece["quoted"] is not None:
            runs += [[Word(piece["quoted"].replace('""', '"'), sign, quoted=True)], []]
        elif piece["word"] is not None:
            if sign < 0:
                runs.append([])
            runs[-1].append(Word(piece["word"], sign, quoted=False))
        else:
            runs.append([])
    return [run for run in runs if run]
