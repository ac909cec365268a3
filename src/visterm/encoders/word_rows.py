"""Vectors of words from the text tower of an encoder: said in several prompts, averaged, and kept on this machine."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import tomllib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, UnknownNameError, UserError
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.core.vocabulary import clean_tag
from visterm.data.word_vectors import WordVectors
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import users_table

LOG = logging.getLogger("visterm.encoders")
LANGUAGE = "english"
OURS = Path(__file__).with_name("prompts.toml")
AT_ONCE = 256  # Words whose texts are given to the tower together, and then kept: a kill loses no more
MOST_KEPT = 200_000  # Words on disk: 600 MB of 768 numbers


def prompts_of(language: str) -> list[str]:
    """Return the prompts of a language: the user's, or else ours.

    Raises UnknownNameError if there are none; DataError if the user's file is no table of languages.
    """
    users = users_table().with_name(OURS.name)
    known: dict[str, list[str]] = {}
    for path in (OURS, users) if users.exists() else (OURS,):
        try:
            table = tomllib.loads(read_regular_text(path, MB))
        except (OSError, ValueError) as error:
            raise DataError(f"The prompts in {path} cannot be read: {error}.") from error
        try:
            known |= {name: check_prompts(row["prompts"]) for name, row in table.items()}
        except (KeyError, TypeError, UserError) as error:
            raise DataError(
                f'{path}: expected tables such as [english] with prompts = ["a photo of {{}}."].'
            ) from error

    if language not in known:
        advice = f"Others can be added in {users}."
        raise UnknownNameError(
            unknown("language", language, list(known)), setting="language", value=language, advice=advice
        )
    return known[language]


def word_rows(encoder: AnyEncoder, words: Sequence[str], prompts: Sequence[str]) -> WordVectors:
    """Return vectors of words, of length 1, from the text tower of an encoder.

    A word's vector is the mean over what the tower makes of the prompts, each of length 1, and does not depend on the
    other words. Vectors are kept in `kept_words`, and read from there. Raises what `AnyEncoder.text_rows` raises.
    """
    words = list(dict.fromkeys(filter(None, map(clean_tag, words))))
    tower = json.dumps([encoder.text_fingerprint, *prompts]).encode()
    keys = [hashlib.sha256(tower + b"\0" + word.encode("utf-8", "replace")).digest() for word in words]
    rows = _load(keys)
    missing = [i for i, key in enumerate(keys) if key not in rows]

    for first in range(0, len(missing), AT_ONCE):
        some = missing[first : first + AT_ONCE]
        made = encoder.text_rows([prompt.replace("{}", words[i]) for i in some for prompt in prompts])
        means = unit_rows(made.reshape(len(some), len(prompts), made.shape[1]).mean(axis=1))
        fresh = {keys[i]: row for i, row in zip(some, means, strict=True)}
        _keep(fresh)
        rows |= fresh
    return WordVectors(words, np.array([rows[key] for key in keys], np.float32).reshape(len(words), -1))


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Divide rows by their length; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def kept_words() -> Path:
    """Return the place of the vectors that were made on this machine. It can be removed: they are made again."""
    return users_table().with_name("words.sqlite")


def _load(keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
    if not kept_words().is_file():
        return {}
    rows = {}
    try:
        with closing(sqlite3.connect(kept_words(), timeout=10)) as database:
            for key in keys:
                for (row,) in database.execute("SELECT row FROM rows WHERE key = ?", (key,)):
                    rows[key] = np.frombuffer(row, "<f4")
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        LOG.warning("The vectors of words in %s cannot be read, and are made again: %s", kept_words(), error)
        return {}
    return rows


def _keep(rows: dict[bytes, NDArray[np.float32]]) -> None:
    """Keep vectors; the oldest go where there are too many."""
    try:
        kept_words().parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(kept_words(), timeout=10)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, row BLOB NOT NULL)")
            pairs = [(key, row.astype("<f4").tobytes()) for key, row in rows.items()]
            database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", pairs)
            newest = database.execute("SELECT max(rowid) FROM rows").fetchone()[0]
            database.execute("DELETE FROM rows WHERE rowid <= ?", (newest - MOST_KEPT,))
    except (sqlite3.Error, OSError) as error:
        LOG.warning("The vectors of words cannot be kept in %s, and are made anew each time: %s", kept_words(), error)


def check_prompts(prompts: Any, name: str = "prompts") -> list[str]:
    """Return prompts, each a text with ``{}`` for the word; refuse anything else by its name."""
    listed = isinstance(prompts, Sequence) and not isinstance(prompts, str) and len(prompts) > 0
    if not listed or not all(isinstance(prompt, str) and "{}" in prompt for prompt in prompts):
        raise UserError(setting=name, value=prompts, expected="texts with {} for the word, at least one")
    return list(prompts)
