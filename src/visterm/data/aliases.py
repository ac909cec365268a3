"""Alias files: other spellings of tags, and the tags that they mean; suggested by `visterm tags`, edited by people."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.relation_files import PairFormat, read_pairs, write_pairs

ALIAS_FILE = PairFormat("alias file", ("alias", "tag"), "tshirt,t-shirt", relation="an alias of")
REASON = "reason"


class Alias(NamedTuple):
    """A spelling, the tag that it means, and why it is thought to mean it."""

    alias: str
    tag: str
    reason: str = ""


def read_aliases(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read which spellings mean which tags.

    Parameters
    ----------
    path : path-like
        CSV (or .tsv) of alias and tag, under a header with these names there may be more columns. A tag may be an alias
        of a further one.

    Returns
    -------
    dict of str to str
        From each alias to a tag that is no alias.

    Raises
    ------
    DataError
        If it cannot be read, an alias means two tags, or aliases go round in a circle; with file and line.
    """
    meant: dict[str, str] = {}
    lines: dict[str, tuple[str, str]] = {}
    for alias, tag, place in read_pairs(path, ALIAS_FILE):
        key = tag_key(alias)
        first = meant.setdefault(key, tag)
        if tag_key(first) != tag_key(tag):
            raise DataError(f"{place}: '{alias}' means '{tag}' here and '{first}' above. Leave one of the lines out.")
        lines.setdefault(key, (alias, place))
    return {alias: _end(key, meant, place) for key, (alias, place) in lines.items()}


def write_aliases(path: str | os.PathLike[str], aliases: Iterable[Alias]) -> None:
    """Write an alias file with reasons, which `read_aliases` reads."""
    write_pairs(path, (*ALIAS_FILE.columns, REASON), aliases)


def _end(key: str, meant: dict[str, str], place: str) -> str:
    seen = [key]
    while tag_key(meant[key]) in meant:
        key = tag_key(meant[key])
        if key in seen:
            circle = " → ".join([*seen[seen.index(key) :], key])
            raise DataError(f"{place}: these aliases mean each other: {circle}. Leave one of the lines out.")
        seen.append(key)
    return meant[key]
