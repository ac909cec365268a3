"""The dictionary of tags: words at one end, columns of matrices at the other."""

from __future__ import annotations

import difflib
import re
import reprlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, ShapeError, UnknownNameError, UserError
from visterm.core.queries import Query
from visterm.core.registry import known_names, unknown
from visterm.core.wording import BIDI_CONTROLS, SURROGATE, has_seen_letters, without_unseen

MOST_TAGS = 100  # Tags that one image may be given at once, whoever gives them: a person, another program, a tag file
MOST_LETTERS = 200  # Letters of a tag that comes in; those that a run knows already may be longer
MOST_COUNTED = 2**53  # Images that a saved dictionary may say that a tag has
_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")  # Of variants of one letter
_PIECE = re.compile(
    r'(?P<within>(?<=[^\s,;"-])"(?=[^"]*$))'
    r'|(?P<minus>-?)(?:"(?P<quoted>(?:[^"]|"")*)(?:"|$)|(?P<word>[^\s,;"-][^\s,;"]*))'
    r"|[,;-]"
)
"""A phrase may end with the search instead of a quote; a quote within a word may not stand alone."""


class Word(NamedTuple):
    """One word of a search, or one phrase in quotes."""

    text: str
    sign: int  # -1 after a ``-``, else 1


class Vocabulary:
    """Tags and their column numbers; Unicode, and compared without regard to case.

    Two spellings are one tag if they are equal after normalising (NFC), trimming, folding white space, leaving out what
    nobody sees, and case-folding. The parameters are attributes, too.

    Parameters
    ----------
    tags : sequence of str
        In the order of their columns, as they are shown.
    counts : sequence of int, optional
        How many images have each tag: an array of int64, shape (n_tags,), of zeros where it was not said.
    aliases : mapping of str to str, optional
        Other spellings and the tags that they mean; wherever a tag is looked for, they find it.

    Raises
    ------
    DataError
        If a tag is not text, is empty, or is there twice, or an alias is a tag itself or of no tag.
    """

    def __init__(
        self,
        tags: Sequence[str],
        counts: Sequence[int] | NDArray[np.int64] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.tags: list[str] = [clean_tag(tag) for tag in tags]
        self.counts: NDArray[np.int64] = np.array([0] * len(self.tags) if counts is None else counts, np.int64)
        if self.counts.shape != (len(self.tags),):
            raise DataError(f"There are {len(self.tags)} tags, but counts of shape {self.counts.shape}.")
        self._columns: dict[str, int] = {}
        for column, tag in enumerate(self.tags):
            if not tag:
                raise DataError(f"The tag of column {column} is empty.")
            first = self._columns.setdefault(tag_key(tag), column)
            if first != column:
                raise DataError(f"The tags '{self.tags[first]}' and '{tag}' are one tag: case does not count.")

        self.aliases: dict[str, str] = {}
        for alias, of_tag in (aliases or {}).items():
            known, alias = self._columns.get(tag_key(of_tag)), clean_tag(alias)
            if known is None:
                raise DataError(f"'{alias}' is said to be an alias of '{of_tag}', which is no tag.")
            if self._columns.setdefault(tag_key(alias), known) != known or not alias:
                raise DataError(f"'{alias}' is said to be an alias of '{of_tag}', but is a tag itself, or empty.")
            if tag_key(alias) != tag_key(of_tag):
                self.aliases[alias] = self.tags[known]

        self._aliases_of: defaultdict[str, list[str]] = defaultdict(list)
        for alias, of_tag in self.aliases.items():
            self._aliases_of[of_tag].append(alias)
        self._longest = max((tag.count(" ") + 1 for tag in (*self.tags, *self.aliases)), default=0)

    @classmethod
    def from_lists(
        cls, tag_lists: Iterable[Iterable[str]], *, min_count: int = 1, aliases: Mapping[str, str] | None = None
    ) -> Self:
        """Collect the tags of images.

        Parameters
        ----------
        tag_lists : iterable of iterables of str
            The tags given to each image; a tag given twice to one image counts once.
        min_count : int
            Leave out the tags that fewer images have.
        aliases : mapping of str to str, optional
            Spellings and the tags that they mean, none of which is an alias itself. An image with any of them has the
            tag; those of tags that are left out are left out.

        Returns
        -------
        Vocabulary
            Ordered by case-folded tag. Each tag is shown as it is most often spelled (the first in code-point order
            among equals), one with aliases as its aliases say.
        """
        if min_count < 1:
            raise UserError(setting="min_count", value=min_count, expected="a whole number of 1 or more")
        tag_of = {tag_key(alias): clean_tag(tag) for alias, tag in (aliases or {}).items()}
        spelled = {tag_key(tag): tag for tag in tag_of.values()}
        counts: Counter[str] = Counter()
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)

        for tag_list in checked_lists(tag_lists):
            cleaned = [tag_of.get(tag_key(tag), tag) for tag in map(clean_tag, tag_list) if tag]
            for tag in cleaned:
                spellings[tag_key(tag)][tag] += 1
            counts.update({tag_key(tag) for tag in cleaned})

        keys = sorted(key for key, count in counts.items() if count >= min_count)
        tags = [
            spelled.get(key) or min(spellings[key].items(), key=lambda item: (-item[1], item[0]))[0] for key in keys
        ]
        known = set(keys)
        known_aliases = {alias: tag for alias, tag in (aliases or {}).items() if tag_key(tag) in known}
        return cls(tags, [counts[key] for key in keys], known_aliases)

    def subset(self, columns: Iterable[int], counts: Sequence[int] | NDArray[np.int64] | None = None) -> Self:
        """Return some of the tags, with their aliases; and their counts, unless others are given."""
        columns = np.fromiter(columns, np.int64)
        tags = [self.tags[column] for column in columns]
        chosen = set(tags)
        aliases = {alias: tag for alias, tag in self.aliases.items() if tag in chosen}
        return type(self)(tags, self.counts[columns] if counts is None else counts, aliases)

    def with_words(self, words: Iterable[str]) -> Self:
        """Return the tags and, after them, the words that are neither tags nor aliases, which no image has."""
        more = {tag_key(word): word for word in map(clean_tag, words) if word and word not in self}
        if not more:
            return self
        counts = np.concatenate([self.counts, np.zeros(len(more), np.int64)])
        return type(self)([*self.tags, *more.values()], counts, self.aliases)

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tags)

    def __contains__(self, tag: object) -> bool:
        return isinstance(tag, str) and self.get(tag) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        same = self.tags == other.tags and self.aliases == other.aliases
        return same and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self)} tags: {', '.join(self.tags[:5])}{', …' if len(self) > 5 else ''}"

    def get(self, tag: str) -> int | None:
        """Return the column of a tag or of an alias, or None."""
        return self._columns.get(tag_key(tag))

    def spellings(self, tag: str) -> list[str]:
        """Return all words that mean what a tag or an alias means; of a word that is neither, that word alone."""
        column = self._columns.get(tag_key(tag))
        return [tag] if column is None else [self.tags[column], *self._aliases_of.get(self.tags[column], ())]

    def index(self, tag: str) -> int:
        """Return the column of a tag, or raise `UnknownNameError` with the nearest tag."""
        column = self.get(tag)
        if column is None:
            raise UnknownNameError(unknown("tag", tag, self.tags))
        return column

    def encode(
        self, tag_lists: Iterable[Iterable[str]], negatives: Iterable[Iterable[str]] | None = None
    ) -> sp.csr_array:
        """Turn tags of images into rows; tags that are not in the vocabulary are left out.

        Parameters
        ----------
        tag_lists : iterable of iterables of str
            The tags given to each image.
        negatives : iterable of iterables of str, optional
            The tags that each image explicitly has not. A tag in both counts as given.

        Returns
        -------
        csr_array of float32, shape (n_images, n_tags)
            +1 given, -1 explicitly not.

        Raises
        ------
        ShapeError
            If `negatives` has another length.
        DataError
            If a list of tags is a text, or a tag is not.
        """
        rows: list[dict[int, float]] = []
        for tags in checked_lists(tag_lists):
            columns = (self._columns.get(tag_key(tag)) for tag in tags)
            rows.append({column: 1.0 for column in columns if column is not None})

        if negatives is not None:
            rejected = list(checked_lists(negatives))
            if len(rejected) != len(rows):
                raise ShapeError(f"There are tags of {len(rows)} images, but negatives of {len(rejected)}.")
            for row, tags in zip(rows, rejected, strict=True):
                for column in (self._columns.get(tag_key(tag)) for tag in tags):
                    if column is not None:
                        row.setdefault(column, -1.0)

        starts = np.cumsum([0, *map(len, rows)])
        indices = np.array([column for row in rows for column in sorted(row)], np.int32)
        values = np.array([row[column] for row in rows for column in sorted(row)], np.float32)
        return sp.csr_array((values, indices, starts.astype(np.int32)), shape=(len(rows), len(self)))

    def query(self, search: str | Sequence[str]) -> Query:
        """Find the tags in a search.

        Parameters
        ----------
        search : str or sequence of str
            As typed: ``snow tree -people "polar bear"``. Tags of several words are found without quotes too, the
            longest first; ``-`` asks for images without the tag. In a sequence, each entry is one tag.

        Returns
        -------
        Query
            Weights of +1 and -1, and the words found and not found.

        Raises
        ------
        UserError
            If nothing was typed, or a single quote is within a word.
        UnknownNameError
            If no word is a tag; all of them are named, with the nearest tags.
        """
        signed_columns, missing = self.parse(search)
        if not signed_columns:
            raise UnknownNameError(self.unknown_words(word.text for word in missing))
        return Query(*self.weights_of(signed_columns), [word.text for word in missing])

    def parse(
        self, search: str | Sequence[str], others: Mapping[str, str] | None = None, *, phrases: bool = False
    ) -> tuple[list[tuple[int, int]], list[Word]]:
        """Find the tags in a search: their columns, each with 1 or -1, in the order typed; and the words that are none.

        Parameters
        ----------
        search : str or sequence of str
        others : mapping of str to str, optional
            More tags, without a column, by their keys (`tag_key`): each is one of the words that are none.
        phrases : bool
            Whether words in a row that are none are one, as in ``golden retriever``; after a ``-`` only the first is.

        Raises UserError as `query` does.
        """
        signed_columns: list[tuple[int, int]] = []
        missing: list[Word] = []
        others = others or {}
        longest = max([self._longest, *(key.count(" ") + 1 for key in others)])

        for run in split_query(search):
            start, end_of_phrase = 0, -1
            while start < len(run):  # cut into tags, the longest first
                for stop in range(min(len(run), start + longest), start, -1):
                    key = tag_key(" ".join(word.text for word in run[start:stop]))
                    if key in self._columns:
                        signed_columns.append((self._columns[key], run[start].sign))
                    elif key in others:
                        missing.append(Word(others[key], run[start].sign))
                    else:
                        continue
                    start = stop
                    break
                else:
                    if clean_tag(run[start].text):
                        if end_of_phrase == start:
                            missing[-1] = missing[-1]._replace(text=f"{missing[-1].text} {run[start].text}")
                        else:
                            missing.append(run[start])
                        end_of_phrase = start + 1 if phrases and run[start].sign > 0 else -1
                    start += 1

        if not signed_columns and not missing:
            advice = "Type one or more tags, for example: snow tree -people"
            raise UserError("The search is empty.", setting="words", value=search, advice=advice)
        return signed_columns, missing

    def not_tags(self, search: str | Sequence[str]) -> list[str]:
        """Return the keys (`tag_key`) of what in a search may be a tag but is none: words, and several in a row."""
        phrases: dict[str, None] = {}
        for run in split_query(search):
            for start in range(len(run)):
                for stop in range(start + 1, len(run) + 1):
                    phrase = " ".join(word.text for word in run[start:stop])
                    if len(phrase) > MOST_LETTERS:
                        break
                    phrases[tag_key(phrase)] = None
        return [key for key in phrases if key not in self._columns]

    def weights_of(self, signed_columns: Iterable[tuple[int, int]]) -> tuple[sp.csr_array, list[str]]:
        """Sum columns with their signs to a row, shape (1, n_tags), and name the tags, each once."""
        sums: Counter[int] = Counter()
        for column, sign in signed_columns:
            sums[column] += sign
        columns = sorted(column for column, total in sums.items() if total)
        values = np.array([sums[column] for column in columns], np.float32)
        parts = (values, np.array(columns, np.int32), np.array([0, len(columns)], np.int32))
        return sp.csr_array(parts, shape=(1, len(self.tags))), [self.tags[column] for column in sums]

    def unknown_words(self, words: Iterable[str]) -> str:
        """Return the message that some words are no tags: each with the nearest tag, or all with the list of tags."""
        messages, without_near = [], []
        for word, near in self.nearest(words).items():
            if near is not None:
                how = f" Type it as {quoted(near)}." if set('",;') & set(near) else ""
                messages.append(f"Unknown tag '{word}'. Did you mean '{near}'?{how}")
            else:
                without_near.append(f"'{word}'")
        if without_near:
            plural = "s" if len(without_near) > 1 else ""
            messages.append(f"Unknown tag{plural} {', '.join(without_near)}. {known_names(self.tags)}")
        return " ".join(messages)

    def nearest(self, words: Iterable[str]) -> dict[str, str | None]:
        """Return for each word the tag that is spelled most like it; None where none is."""
        by_key = {tag_key(tag): tag for tag in self.tags}
        near = {word: difflib.get_close_matches(tag_key(word), by_key, n=1, cutoff=0.6) for word in words}
        return {word: by_key[matches[0]] if matches else None for word, matches in near.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the dictionary for JSON, as a run saves it."""
        saved: dict[str, Any] = {"tags": list(self.tags), "counts": self.counts.tolist()}
        return {**saved, "aliases": dict(self.aliases)} if self.aliases else saved

    @classmethod
    def from_json(cls, saved: object) -> Self:
        """Make a vocabulary of what `to_json` returned. Raises DataError if it is something else."""
        parts: dict[str, Any] = saved if isinstance(saved, dict) else {}
        tags, counts, aliases = map(parts.get, ("tags", "counts", "aliases"))
        if not (isinstance(tags, list) and isinstance(counts, list) and isinstance(aliases or {}, dict)):
            raise DataError("is no dictionary; expected lists of 'tags' and 'counts', and 'aliases' by name, if any")
        for count in counts:
            if type(count) is not int or not 0 <= count <= MOST_COUNTED:
                raise DataError(f"a count is {reprlib.repr(count)}; expected a whole number, 0 to {MOST_COUNTED}")
        return cls(tags, counts, aliases)


def clean_tag(tag: str) -> str:
    """Return a tag as it is shown: NFC, trimmed, white space folded to one space; empty where nothing is left.

    Letters that nobody sees go, but where they change what is seen, see `without_unseen`. Bytes of a file name that are
    no letters (lone surrogates, in Python) become U+FFFD.
    """
    if not isinstance(tag, str):
        raise DataError(f"A tag is {tag!r}, of type {type(tag).__name__}; expected text.")
    text = tag if tag.isascii() else without_unseen(SURROGATE.sub("\ufffd", tag))
    return " ".join(unicodedata.normalize("NFC", text).split())


def tag_fault(tag: str) -> str | None:
    """Return what is wrong with a cleaned tag that comes in, as the end of a sentence; None if nothing is.

    This is the one rule of what a tag may be, for tag files as for what people and programs give. Letters that turn
    the direction of writing are refused: raw in an exported table or in JSON they make other words look turned round.
    """
    if len(tag) > MOST_LETTERS:
        return f"has {len(tag):,} letters; a tag has at most {MOST_LETTERS}. Shorten it, or part the tags in it"
    if tag.startswith("-"):
        return "begins with '-', which means 'not' in searches and tag files. Leave the '-' out"
    if tag.isascii() and tag.isprintable() and tag:
        return None
    for letter in tag:
        if unicodedata.category(letter) == "Cc":
            return f"has the control character U+{ord(letter):04X}, which no XMP file can hold. Take it out"
        if letter in BIDI_CONTROLS:
            return f"has the hidden letter U+{ord(letter):04X}, which turns the direction of writing. Take it out"
    return None if has_seen_letters(tag) else "has no letter that can be seen. Write one, or take the tag out"


def tag_key(tag: str) -> str:
    """Return that by which tags are compared: without case, and whichever picture is chosen for a letter or emoji."""
    text = clean_tag(tag)
    if not text.isascii():
        text = clean_tag(_SELECTORS.sub("", text)) or text
    return unicodedata.normalize("NFC", text.casefold())


def checked_lists(tag_lists: Iterable[Iterable[str]]) -> Iterator[Iterable[str]]:
    """Yield lists of tags, and refuse a text in place of one. Raises DataError."""
    for tags in tag_lists:
        if isinstance(tags, str):
            parts = [part.strip() for part in re.split(r"[;,|\n]", tags) if part.strip()] or [tags]
            raise DataError(f"The tags of an image are the text {tags!r}; expected a list of tags, such as {parts}.")
        yield tags


def quoted(tag: str) -> str:
    """Return a tag as it is typed in a search so that nothing in it is read as something else."""
    return '"' + tag.replace('"', '""') + '"'


def split_query(search: str | Sequence[str]) -> list[list[Word]]:
    """Split a search such as ``snow tree -people "polar bear"`` into runs of words.

    A tag of several words lies within one run; commas, semicolons, quotes and ``-`` end a run. The sign of ``-two
    words`` is that of its first word, so that both may belong to one tag. Within quotes, ``""`` is a quote. Each entry
    of a sequence is one tag, asked against with ``-`` before it. Raises UserError if a single quote is within a word,
    as in ``sea"x``, or an entry is no text.
    """
    if not isinstance(search, str):
        for entry in search:
            if not isinstance(entry, str):
                raise UserError(
                    f"A word of the search is {entry!r}",
                    setting="words",
                    value=entry,
                    expected="a text, such as 'snow'",
                )
        tags = map(clean_tag, search)
        return [[Word(tag.removeprefix("-"), -1 if tag.startswith("-") else 1)] for tag in tags]

    runs: list[list[Word]] = [[]]
    for piece in _PIECE.finditer(search):
        sign = -1 if piece["minus"] else 1
        if piece["within"]:
            raise UserError(
                f"The search {search} has a quote within a word.",
                setting="words",
                value=search,
                advice='Put the tag in quotes and type its own quotes twice: "sea""x" finds the tag sea"x.',
            )
        if piece["quoted"] is not None:
            runs += [[Word(piece["quoted"].replace('""', '"'), sign)], []]
        elif piece["word"] is None:
            runs.append([])
        elif sign < 0:
            runs.append([Word(piece["word"], sign)])
        else:
            runs[-1].append(Word(piece["word"], sign))

    return [run for run in runs if run]
