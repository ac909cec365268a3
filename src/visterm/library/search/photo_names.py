"""Words of a search that are not tags: the names of files, folders, places and cameras, and the dates of photos."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from visterm.core.id_sets import Ids
from visterm.core.vocabulary import STOP_WORDS, split_query, tag_key
from visterm.tagging.tag_map import Completion, starts_of

if TYPE_CHECKING:
    from visterm.store.database import Database
    from visterm.tagging.tagger import Tagger

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip

MAX_LOOKED_UP = 20
NAME_KINDS = ("folder", "place", "year", "month", "camera")  # In the order of completions

_MONTH_KEYS = {name.casefold(): i + 1 for i, month in enumerate(MONTHS) for name in (month, month[:3])}
_DATE = re.compile(r"\d{4}(-\d\d){0,2}", re.ASCII)


def photo_names(tagger: Tagger, database: Database, words: str | Sequence[str], keys: Iterable[str]) -> dict[str, str]:
    """Return the `keys` (`tag_key`) of words and phrases of a search that name photos, each mapped to itself.

    The first `MAX_LOOKED_UP` words that are not tags are looked up, and phrases of those that are names. In a run that
    also searches words that are not tags, only dates, numbers and words with other letters than a to z are names: plain
    words are searched by what they mean.
    """
    reads_words, n_looked_up = tagger.words.source is not None, 0
    names: dict[str, str] = {}
    typed = {tag_key(word.text) for group in split_query(words) for word in group}  # words, and phrases in quotes
    for key in sorted(keys, key=lambda key: key not in typed):
        if key not in typed and not all(word in names or word in STOP_WORDS for word in key.split()):
            continue
        is_plain = key.isascii() and key.isalpha()
        is_short = len(key) < 2 and key.isascii()
        if is_short or key in STOP_WORDS or (is_plain and reads_words) or n_looked_up == MAX_LOOKED_UP:
            continue
        n_looked_up += 1
        if len(named_photos(database, key)):
            names[key] = key
    return names


def named_photos(database: Database, key: str) -> Ids:
    """Return the ascending ids of the photos whose file, folder, place, camera, year, month or day a key names."""

    def find() -> Ids:
        date = "substr(taken, 1, length(?)) = ?" if _DATE.fullmatch(key) else "CAST(substr(taken, 6, 2) AS INTEGER) = ?"
        values: list[object] = [key, key] if _DATE.fullmatch(key) else [_MONTH_KEYS.get(key, 0)]
        cases = (key, key.upper(), key.title())
        spellings = [unicodedata.normalize("NFC", case) for case in cases]
        spellings += [unicodedata.normalize("NFD", case) for case in cases]  # as macOS writes names of files
        patterns = {"%" + re.sub("([%_!])", r"!\1", spelling) + "%" for spelling in spellings}
        likes = [f"{column} LIKE ? ESCAPE '!'" for _ in patterns for column in ("name", "camera", "place")]
        rows = database.rows(
            f"SELECT id, name, coalesce(camera, ''), place, coalesce({date}, 0) FROM images WHERE state = 'here' AND "
            f"({' OR '.join([date, *likes])}) ORDER BY id",
            [*values, *values, *(pattern for pattern in patterns for _ in range(3))],
        )
        whole = _whole(key)
        ids = [row[0] for row in rows if row[4] or any(whole.search(tag_key(text)) for text in row[1:4])]
        return np.array(ids, np.int64)

    return database.keep(("named photos", key), find)


def _whole(key: str) -> re.Pattern[str]:
    """Return the pattern of a whole word: letters end at a digit and digits at a letter; Chinese has no word ends."""

    def kind(letter: str) -> str:
        has_ends = letter.isalpha() and unicodedata.category(letter) != "Lo"
        return r"[^\W\d_]" if has_ends else r"\d" if letter.isdigit() else "(?!)"

    return re.compile(f"(?<!{kind(key[0])}){re.escape(key)}(?!{kind(key[-1])})")


def complete_names(database: Database, typed: str, k: int) -> list[Completion]:
    """Complete the name of a folder, a place, a year, a month or a camera, in this order: those of most photos."""

    def count() -> list[Completion]:
        counts: Counter[tuple[str, str]] = Counter()
        for kind, column in (
            ("folder", "rtrim(name, replace(name, '/', ''))"), ("place", "place"), ("camera", "camera"),
            ("year", "substr(taken, 1, 4)"), ("month", "substr(taken, 1, 7)"),
        ):  # fmt: skip
            statement = f"SELECT {column}, count(*) FROM images WHERE state = 'here' GROUP BY 1"
            for text, n in database.rows(statement):
                separator = {"folder": "/", "place": ", "}.get(kind)
                for part in filter(None, (text or "").split(separator) if separator else [text]):
                    counts[part, kind] += n
        return [Completion(text, n, kind) for (text, kind), n in counts.most_common()]

    key = tag_key(typed)
    names = database.keep("names of photos", count)
    matches = [name for name in names if key and any(start.startswith(key) for start in starts_of(name.tag))]
    return sorted(matches[:k], key=lambda name: NAME_KINDS.index(name.kind))
