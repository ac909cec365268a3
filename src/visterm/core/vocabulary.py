"""The vocabulary: maps each tag, and each alias of a tag, to a column of the matrices."""

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
from visterm.core.registry import unknown
from visterm.core.wording import BIDI_CONTROLS, SURROGATE, has_visible_characters, without_invisible

MAX_TAGS = 100  # Maximum number of tags in one request for one image, from a person, another program or a tag file
MAX_LETTERS = 200  # Maximum number of characters of a new tag; tags that a run already has may be longer
N_FREQUENT = 5  # Number of tags that are named for a word that is like no tag
STOP_WORDS = frozenset(re.findall(r"\w+", """
    a an and are as at by for from in into is it near of off on or over the to under with without
    am auf aus bei das dem den der die ein eine im mit oder und vom von zu zum zur
    au aux avec dans de des du en et la le les ou par sur un une con del el los las por y il lo di da
"""))  # fmt: skip
"""Words of English, German, French, Spanish and Italian that a search ignores, unless they are tags."""

MAX_COUNT = 2**53  # Maximum count of images of a tag in a saved vocabulary
_VARIATION_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_PIECE = re.compile(
    r'(?P<inner_quote>(?<=[^\s,;"-])"(?=[^"]*$))'
    r'|(?P<minus>-?)(?:"(?P<quoted>(?:[^"]|"")*)(?:"|$)|(?P<word>[^\s,;"-][^\s,;"]*))'
    r"|[,;-]"
)
"""A word, phrase or separator of a search. The last phrase needs no closing quote. A quote in a word: `inner_quote`."""


class Word(NamedTuple):
    """A word of a search, or a phrase in quotes."""

    text: str
    sign: int  # -1 after a ``-``, else 1


class Vocabulary:
    """Tags and their column numbers; Unicode, and compared without regard to case.

    Two spellings are the same tag if they are equal after normalising (NFC), trimming, folding white space, removing
    invisible characters, and case-folding. The parameters are also attributes.

    Parameters
    ----------
    tags : sequence of str
        The tags as they are displayed, in the order of their columns.
    counts : sequence of int, optional
        Number of images with each tag, stored as int64, shape (n_tags,). Default: zeros.
    aliases : mapping of str to str, optional
        Alternative spelling -> its tag. Every lookup of a tag accepts its aliases.

    Raises
    ------
    DataError
        If a tag is not text, is empty or appears twice, or an alias is itself a tag or its tag does not exist.
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
            first_column = self._columns.setdefault(tag_key(tag), column)
            if first_column != column:
                raise DataError(f"The tags '{self.tags[first_column]}' and '{tag}' are one tag: case is ignored.")

        self.aliases: dict[str, str] = {}
        for alias, tag in (aliases or {}).items():
            tag_column, alias = self._columns.get(tag_key(tag)), clean_tag(alias)
            if tag_column is None:
                raise DataError(f"'{alias}' is an alias of '{tag}', which is not a tag.")
            if self._columns.setdefault(tag_key(alias), tag_column) != tag_column or not alias:
                raise DataError(f"'{alias}' is an alias of '{tag}', but is a tag itself, or empty.")
            if tag_key(alias) != tag_key(tag):
                self.aliases[alias] = self.tags[tag_column]

        self._aliases_of: defaultdict[str, list[str]] = defaultdict(list)
        for alias, tag in self.aliases.items():
            self._aliases_of[tag].append(alias)
        self._max_words = max((tag.count(" ") + 1 for tag in (*self.tags, *self.aliases)), default=0)

    @classmethod
    def from_lists(
        cls, tag_lists: Iterable[Iterable[str]], *, min_count: int = 1, aliases: Mapping[str, str] | None = None
    ) -> Self:
        """Build a vocabulary from the tags of images.

        Parameters
        ----------
        tag_lists : iterable of iterables of str
            The tags given to each image; a tag given twice to one image counts once.
        min_count : int
            Leave out tags that fewer images have.
        aliases : mapping of str to str, optional
            Alternative spelling -> its tag, which must not be an alias itself. An image with an alias counts as having
            the tag. Aliases of tags that are left out are left out too.

        Returns
        -------
        Vocabulary
            Sorted by case-folded tag. Each tag gets its most frequent spelling (on a tie, the first in code-point
            order); a tag with aliases is spelled as in `aliases`.
        """
        if min_count < 1:
            raise UserError(setting="min_count", value=min_count, expected="a whole number of 1 or more")
        tag_of = {tag_key(alias): clean_tag(tag) for alias, tag in (aliases or {}).items()}
        fixed_spellings = {tag_key(tag): tag for tag in tag_of.values()}
        counts: Counter[str] = Counter()
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)

        for tag_list in checked_lists(tag_lists):
            cleaned = [tag_of.get(tag_key(tag), tag) for tag in map(clean_tag, tag_list) if tag]
            for tag in cleaned:
                spellings[tag_key(tag)][tag] += 1
            counts.update({tag_key(tag) for tag in cleaned})

        keys = sorted(key for key, count in counts.items() if count >= min_count)
        tags = [
            fixed_spellings.get(key) or min(spellings[key].items(), key=lambda item: (-item[1], item[0]))[0]
            for key in keys
        ]
        kept_keys = set(keys)
        kept_aliases = {alias: tag for alias, tag in (aliases or {}).items() if tag_key(tag) in kept_keys}
        return cls(tags, [counts[key] for key in keys], kept_aliases)

    def subset(self, columns: Iterable[int], counts: Sequence[int] | NDArray[np.int64] | None = None) -> Self:
        """Return a vocabulary of the tags of `columns` and their aliases, with their old counts or new `counts`."""
        columns = np.fromiter(columns, np.int64)
        tags = [self.tags[column] for column in columns]
        kept_tags = set(tags)
        aliases = {alias: tag for alias, tag in self.aliases.items() if tag in kept_tags}
        return type(self)(tags, self.counts[columns] if counts is None else counts, aliases)

    def with_words(self, words: Iterable[str]) -> Self:
        """Return a vocabulary with new words appended, each with a count of 0; words that it has are ignored."""
        new_words = {tag_key(word): word for word in map(clean_tag, words) if word and word not in self}
        if not new_words:
            return self
        counts = np.concatenate([self.counts, np.zeros(len(new_words), np.int64)])
        return type(self)([*self.tags, *new_words.values()], counts, self.aliases)

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tags)

    def __contains__(self, tag: object) -> bool:
        return isinstance(tag, str) and self.get(tag) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        same_words = self.tags == other.tags and self.aliases == other.aliases
        return same_words and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self)} tags: {', '.join(self.tags[:5])}{', …' if len(self) > 5 else ''}"

    def get(self, tag: str) -> int | None:
        """Return the column of a tag or of an alias, or None."""
        return self._columns.get(tag_key(tag))

    def spellings(self, tag: str) -> list[str]:
        """Return the tag and all its aliases; for a word that is neither a tag nor an alias, only that word."""
        column = self.get(tag)
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
        """Encode the tags of images as a matrix; tags that are not in the vocabulary are ignored.

        Parameters
        ----------
        tag_lists : iterable of iterables of str
            The tags given to each image.
        negatives : iterable of iterables of str, optional
            The tags that each image explicitly does not have. A tag in both lists counts as given.

        Returns
        -------
        csr_array of float32, shape (n_images, n_tags)
            +1: the image has the tag; -1: it explicitly does not.

        Raises
        ------
        ShapeError
            If `negatives` and `tag_lists` have different lengths.
        DataError
            If a list of tags is a single text, or a tag is not text.
        """
        rows = [dict.fromkeys(self._columns_of(tags), 1.0) for tags in checked_lists(tag_lists)]
        if negatives is not None:
            negative_rows = [dict.fromkeys(self._columns_of(tags), -1.0) for tags in checked_lists(negatives)]
            if len(negative_rows) != len(rows):
                raise ShapeError(f"There are tags of {len(rows)} images, but negatives of {len(negative_rows)}.")
            rows = [negative | positive for negative, positive in zip(negative_rows, rows, strict=True)]

        starts = np.cumsum([0, *map(len, rows)])
        indices = np.array([column for row in rows for column in sorted(row)], np.int32)
        values = np.array([row[column] for row in rows for column in sorted(row)], np.float32)
        return sp.csr_array((values, indices, starts.astype(np.int32)), shape=(len(rows), len(self)))

    def _columns_of(self, tags: Iterable[str]) -> list[int]:
        return [column for tag in tags if (column := self.get(tag)) is not None]

    def query(self, search: str | Sequence[str]) -> Query:
        """Find the tags in a search.

        Parameters
        ----------
        search : str or sequence of str
            As typed: ``snow tree -people "polar bear"``. Quotes are optional: the longest tag that matches is used.
            ``-`` excludes images with the tag. In a sequence, each entry is one tag.

        Returns
        -------
        Query
            Weights of +1 and -1, the tags found, and the unknown words.

        Raises
        ------
        UserError
            If the search is empty, or a single quote is inside a word.
        UnknownNameError
            If none of the words is a tag; the message has the nearest tag for each word.
        """
        signed_columns, non_tags = self.parse(search)
        if not signed_columns:
            raise UnknownNameError(self.unknown_words(word.text for word in non_tags))
        return Query(*self.weights_of(signed_columns), [word.text for word in non_tags])

    def parse(
        self, search: str | Sequence[str], others: Mapping[str, str] | None = None, *, phrases: bool = False
    ) -> tuple[list[tuple[int, int]], list[Word]]:
        """Return the tags in a search as (column, 1 or -1), in the order typed, and the words that are not tags.

        Parameters
        ----------
        search : str or sequence of str
        others : mapping of str to str, optional
            More tags, which have no column: key (`tag_key`) -> tag. They are returned with the words that are not tags.
        phrases : bool
            Join consecutive unknown words to one, such as ``golden retriever``; a word after a ``-`` is not joined.

        Raises UserError as `query` does.
        """
        signed_columns: list[tuple[int, int]] = []
        non_tags: list[Word] = []
        others = others or {}
        max_words = max([self._max_words, *(key.count(" ") + 1 for key in others)])

        for words in split_query(search):
            start, end_of_phrase = 0, -1
            while start < len(words):  # match tags, the longest first
                for stop in range(min(len(words), start + max_words), start, -1):
                    key = tag_key(" ".join(word.text for word in words[start:stop]))
                    if key in self._columns:
                        signed_columns.append((self._columns[key], words[start].sign))
                    elif key in others:
                        non_tags.append(Word(others[key], words[start].sign))
                    else:
                        continue
                    start = stop
                    break
                else:
                    if clean_tag(words[start].text):
                        if end_of_phrase == start:
                            non_tags[-1] = non_tags[-1]._replace(text=f"{non_tags[-1].text} {words[start].text}")
                        else:
                            non_tags.append(words[start])
                        end_of_phrase = start + 1 if phrases and words[start].sign > 0 else -1
                    start += 1

        if not signed_columns and not non_tags:
            advice = "Type one or more tags, for example: snow tree -people"
            raise UserError("The search is empty.", setting="words", value=search, advice=advice)
        return signed_columns, non_tags

    def not_tags(self, search: str | Sequence[str]) -> list[str]:
        """Return the keys (`tag_key`) of all words and phrases in a search that are not tags."""
        phrases: dict[str, None] = {}
        for words in split_query(search):
            for start in range(len(words)):
                for stop in range(start + 1, len(words) + 1):
                    phrase = " ".join(word.text for word in words[start:stop])
                    if len(phrase) > MAX_LETTERS:
                        break
                    phrases[tag_key(phrase)] = None
        return [key for key in phrases if key not in self._columns]

    def weights_of(self, signed_columns: Iterable[tuple[int, int]]) -> tuple[sp.csr_array, list[str]]:
        """Return the sum of signs of each column as a matrix, shape (1, n_tags), and the distinct tags."""
        sums: Counter[int] = Counter()
        for column, sign in signed_columns:
            sums[column] += sign
        columns = sorted(column for column, total in sums.items() if total)
        values = np.array([sums[column] for column in columns], np.float32)
        parts = (values, np.array(columns, np.int32), np.array([0, len(columns)], np.int32))
        return sp.csr_array(parts, shape=(1, len(self.tags))), [self.tags[column] for column in sums]

    def unknown_words(self, words: Iterable[str]) -> str:
        """Return the message for unknown words: the tag that was probably meant by each, or the most frequent tags."""
        messages, unmatched_words = [], []
        for word in dict.fromkeys(words):
            if meant := self.nearest_tag(word):
                quoting_hint = f" Type it as {quoted(meant)}." if set('",;') & set(meant) else ""
                messages.append(f"Unknown tag '{word}'. Did you mean '{meant}'?{quoting_hint}")
            else:
                unmatched_words.append(word)
        if unmatched_words:
            order = np.argsort(-self.counts, kind="stable")[:N_FREQUENT]
            plural = "s" if len(unmatched_words) > 1 else ""
            names = ", ".join(f"'{word}'" for word in unmatched_words)
            tags = ", ".join(self.tags[column] for column in order.tolist())
            messages.append(f"Unknown tag{plural} {names}. The most frequent tags are: {tags}.")
        return " ".join(messages)

    def nearest_tag(self, word: str) -> str | None:
        """Return the tag with the most similar spelling; None if none is similar."""
        tag_of_key = {tag_key(tag): tag for tag in self.tags}
        return next((tag_of_key[key] for key in difflib.get_close_matches(tag_key(word), tag_of_key, n=1)), None)

    def to_json(self) -> dict[str, object]:
        """Return the vocabulary as a dict for JSON, as a run saves it."""
        content: dict[str, object] = {"tags": list(self.tags), "counts": self.counts.tolist()}
        return {**content, "aliases": dict(self.aliases)} if self.aliases else content

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Build a vocabulary from the output of `to_json`. Raises DataError if `content` has another form."""
        parts: dict[str, Any] = content if isinstance(content, dict) else {}
        tags, counts, aliases = map(parts.get, ("tags", "counts", "aliases"))
        if not (isinstance(tags, list) and isinstance(counts, list) and isinstance(aliases or {}, dict)):
            raise DataError("is not a vocabulary; expected lists of 'tags' and 'counts', and 'aliases' by name, if any")
        for count in counts:
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                raise DataError(f"a count is {reprlib.repr(count)}; expected a whole number, 0 to {MAX_COUNT}")
        return cls(tags, counts, aliases)


def clean_tag(tag: str) -> str:
    """Return a tag as it is displayed: NFC, trimmed, white space folded to one space; may be empty.

    Invisible characters are removed, unless they change the visible text (`without_invisible`). Undecodable bytes of a
    file name (lone surrogates, in Python) become U+FFFD.
    """
    if not isinstance(tag, str):
        raise DataError(f"A tag is {tag!r}, of type {type(tag).__name__}; expected text.")
    text = tag if tag.isascii() else without_invisible(SURROGATE.sub("\ufffd", tag))
    return " ".join(unicodedata.normalize("NFC", text).split())


def tag_fault(tag: str) -> str | None:
    """Return why a cleaned tag is invalid, as the end of a sentence; None if it is valid.

    The same rule applies to tag files and to tags from people and programs. Characters that change the direction of
    writing are invalid: in an exported table or in JSON they would reverse the text around them.
    """
    if len(tag) > MAX_LETTERS:
        return f"has {len(tag):,} letters; a tag has at most {MAX_LETTERS}. Shorten it, or split it into several tags"
    if tag.startswith("-"):
        return "begins with '-', which means 'not' in searches and tag files. Leave the '-' out"
    if tag.isascii() and tag.isprintable() and tag:
        return None
    for letter in tag:
        if unicodedata.category(letter) == "Cc":
            return f"has the control character U+{ord(letter):04X}, which no XMP file can hold. Remove it"
        if letter in BIDI_CONTROLS:
            return f"has the hidden letter U+{ord(letter):04X}, which turns the direction of writing. Remove it"
    return None if has_visible_characters(tag) else "has no letter that can be seen. Add one, or remove the tag"


def tag_key(tag: str) -> str:
    """Return the key by which tags are compared: the clean tag, case-folded and without variation selectors."""
    text = clean_tag(tag)
    if not text.isascii():
        text = clean_tag(_VARIATION_SELECTORS.sub("", text)) or text
    return unicodedata.normalize("NFC", text.casefold())


def checked_lists(tag_lists: Iterable[Iterable[str]]) -> Iterator[Iterable[str]]:
    """Yield the lists of tags. Raises DataError if one of them is a single text or number instead of a list."""
    for tags in tag_lists:
        if isinstance(tags, str) or not hasattr(tags, "__iter__"):
            parts = [part.strip() for part in re.split(r"[;,|\n]", str(tags)) if part.strip()] or [tags]
            kind = "the text " * isinstance(tags, str)
            raise DataError(f"The tags of an image are {kind}{tags!r}; expected a list of tags, such as {parts}.")
        yield tags


def quoted(tag: str) -> str:
    """Return a tag in quotes, as a search needs it if the tag has commas or quotes."""
    return '"' + tag.replace('"', '""') + '"'


def split_query(search: str | Sequence[str]) -> list[list[Word]]:
    """Split a search such as ``snow tree -people "polar bear"`` into groups of consecutive words.

    A tag of several words is always inside one group; commas, semicolons, quotes and ``-`` end a group. In ``-two
    words`` the sign belongs to the first word, and both words may form one tag. Inside quotes, ``""`` is a quote. Each
    entry of a sequence is one tag, which is excluded if it begins with ``-``. Raises UserError if a single quote is
    inside a word, as in ``sea"x``, or an entry is not text.
    """
    if not isinstance(search, str):
        for entry in search:
            if not isinstance(entry, str):
                raise UserError(f"A word of the search is {entry!r}", setting="words", value=entry, expected="a text")
        tags = map(clean_tag, search)
        return [[Word(tag.removeprefix("-"), -1 if tag.startswith("-") else 1)] for tag in tags]

    groups: list[list[Word]] = [[]]
    for piece in _PIECE.finditer(search):
        sign = -1 if piece["minus"] else 1
        if piece["inner_quote"]:
            problem = f"The search {search} has a quote within a word."
            advice = 'Put the tag in quotes and type its own quotes twice: "sea""x" finds the tag sea"x.'
            raise UserError(problem, setting="words", value=search, advice=advice)
        if piece["quoted"] is not None:
            groups += [[Word(piece["quoted"].replace('""', '"'), sign)], []]
        elif piece["word"] is None:
            groups.append([])
        elif sign < 0:
            groups.append([Word(piece["word"], sign)])
        else:
            groups[-1].append(Word(piece["word"], sign))

    return [group for group in groups if group]
