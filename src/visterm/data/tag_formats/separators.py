"""Split the text of a cell into tags: each cell by what the whole file shows, or by the separator that people give."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from visterm.core.errors import TagFileError, UserError

LINE_END = r"\r\n|\r|\n"

_CELL_END = re.compile(rf"{LINE_END}|\t")  # Separates tags in every cell: no tag can hold a line end or a tab
USUAL = ";,|/、，；"  # What separates tags in the files of other programs
_NEVER_IN_TAGS = frozenset(";、，；")
"""Separators that stand in no tag, unlike those of places (Paris, France) and of kinds (animal|dog)."""

_RATIO = 3
"""How much more frequent commas are in cells without ``;`` than in tags of other cells before they are separators."""

_SHOWN = 3


def separator_pattern(separator: str) -> re.Pattern[str]:
    """Return the pattern of a separator: a text, several of the usual separators (``;,``), or a pattern (``[;|]``).

    Raises UserError if it is empty, a word, no pattern, or a pattern that cuts words.
    """
    expected = "expected characters such as ';', several such as ';,', or a pattern such as '[;|]'"
    if not separator:
        raise UserError(f"The separator is empty; {expected}.")
    if separator.isalnum():
        raise UserError(f"The separator '{separator}' is a word, which tags may contain; {expected}.")
    if len(set(separator)) > 1 and set(separator) <= set(USUAL):
        return re.compile(f"[{separator}]")
    if "\\" not in separator and not re.search(r"\[.+\]", separator):
        return re.compile(re.escape(separator))
    try:
        pattern = re.compile(separator)
    except re.error as error:
        raise UserError(f"The separator '{separator}' is no valid pattern ({error}); {expected}.") from error
    if pattern.search("aZ5é"):
        raise UserError(f"The separator '{separator}' would cut words into pieces; {expected}.")
    return pattern


class Splitter:
    """Splits the cells of a file into tags; with a separator (see `separator_pattern`), there and nowhere else.

    Without a separator, a cell with ``;`` is split there. Of the others, one with commas is a list in a file without
    any ``;``. In a file with both, a comma may separate tags (``beach, sea``) or belong to one (``Washington, D.C.``):
    such a cell is a list if most of its parts are tags elsewhere in the file, and otherwise if most cells with commas
    are. `cells` returns the cells of the file, and is called up to three times; with a separator it is not called.
    """

    def __init__(self, cells: Callable[[], Iterable[str]], separator: str | None = None) -> None:
        self._pattern = None if separator is None else separator_pattern(separator)
        self._is_mixed = separator is None and _has_both(cells())
        if self._is_mixed:
            self._learn(cells)

    def split(self, cell: str) -> list[str]:
        """Return the tags of a cell, as they are written; some may be empty."""
        lines = _CELL_END.split(cell)
        if self._pattern is not None:
            return [tag for line in lines for tag in self._pattern.sub("\n", line).split("\n")]
        return [tag for line in lines for tag in (line.split(",") if self._is_comma_list(line) else line.split(";"))]

    def _learn(self, cells: Callable[[], Iterable[str]]) -> None:
        """Collect the tags that no separator makes doubtful, then count which cells with commas are lists."""
        alone: set[str] = set()
        before: set[str] = set()
        last: set[str] = set()
        self._with_comma: set[str] = set()  # tags between semicolons
        n_semicolons = n_commas = n_single = n_parts = 0
        for line in _lines(cells()):
            if ";" not in line and "," in line:
                n_commas += 1
                parts = _keys(line, ",")
                before.update(parts[:-1])
                last.update(parts[-1:])
                continue
            parts = _keys(line, ";")
            n_semicolons += ";" in line
            n_parts += len(parts) if ";" in line else 0
            n_single += ";" not in line
            for tag in parts:
                (self._with_comma if "," in tag else alone).add(tag)
        self._known = alone | (before & last)  # in lists a tag stands anywhere, in "Rome, Italy" Italy is always last
        lists = tags = n_inside = 0
        for line in _lines(cells()):
            if ";" in line:
                n_inside += sum("," in tag and not self._mostly_known(tag) for tag in _keys(line, ";"))
            elif "," in line:
                is_tag = self._with_comma.issuperset(_keys(line, ";"))
                tags += is_tag
                lists += not is_tag and self._mostly_known(line)
        self._lists_prevail = lists > tags + n_inside
        # if commas belonged to tags, they would be as frequent in tags between semicolons as in cells without any
        too_frequent = n_commas * n_parts > _RATIO * n_inside * (n_commas + n_single)
        self._commas_prevail = n_commas >= n_semicolons and (lists >= tags + n_inside or too_frequent)

    def _is_comma_list(self, line: str) -> bool:
        if not self._is_mixed or ";" in line or "," not in line:
            return "," in line and ";" not in line
        if self._with_comma.issuperset(_keys(line, ";")):
            return False
        has_known = not self._known.isdisjoint(_keys(line, ","))
        return self._mostly_known(line) or self._commas_prevail or (has_known and self._lists_prevail)

    def _mostly_known(self, line: str) -> bool:
        parts = _keys(line, ",")
        return sum(part in self._known for part in parts) > len(parts) / 2


class TagsRead(NamedTuple):
    """What was understood of the tags of a file, for people to check."""

    n_tags: int
    n_separated: int  # Tags that contain a usual separator
    n_once: int  # Tags that are used once
    n_lists: int
    """Tags that look like lists: most of their parts are tags, too, or what separates them stands in no tag."""
    lists: tuple[str, ...]  # The first of these

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> TagsRead:
        """Look through tags and how often each is used; spellings that differ in case count as one."""
        found: Counter[str] = Counter()
        spelled: dict[str, str] = {}
        for tag, count in counts.items():
            found[tag.casefold()] += count
            spelled.setdefault(tag.casefold(), tag)
        parts = {key: _keys(key, f"[{USUAL}]") for key in found if not _USUAL.isdisjoint(key)}
        before = {part for several in parts.values() for part in several[:-1]}
        last = {several[-1] for several in parts.values() if several}
        known = (found.keys() - parts.keys()) | (before & last)
        lists = [
            spelled[key]
            for key, several in parts.items()
            if len(several) > 1
            and (not _NEVER_IN_TAGS.isdisjoint(key) or sum(part in known for part in several) > len(several) / 2)
        ]
        once = sum(count == 1 for count in found.values())
        return cls(len(found), len(parts), once, len(lists), tuple(lists[:_SHOWN]))

    @classmethod
    def in_lists(cls, tag_lists: Iterable[Iterable[str]], *, paths: bool = False) -> TagsRead:
        """Look through the tags of images; if they may be paths (``animals/dog``), a ``/`` separates no tags."""
        tags = chain.from_iterable(tag_lists)
        return cls.of(Counter((tag.replace("/", " ") for tag in tags) if paths else tags))

    def line(self) -> str:
        """Return what was understood, as a line for people."""
        facts = [f"{self.n_tags:,} {'tag' if self.n_tags == 1 else 'tags'}"]
        if self.n_separated:
            facts.append(f"{self.n_separated:,} {'contains' if self.n_separated == 1 else 'contain'} a separator")
        facts.append(f"{self.n_once:,} on one photo only")
        if self.n_lists:
            looks = "looks like a list" if self.n_lists == 1 else "look like lists"
            facts.append(f"{self.n_lists:,} {looks} ({self._examples()})")
        return f"Read {'; '.join(facts)}."

    def facts(self) -> dict[str, Any]:
        """Return the same for JSON, and to keep with a run."""
        return {
            "tags read": self.n_tags,
            "tags with a separator": self.n_separated,
            "tags used once": self.n_once,
            "tags like lists": self.n_lists,
            "lists such as": list(self.lists),
        }

    def check(self, separator: str | None, *, in_file: bool = True) -> None:
        """Refuse tags of which most look like lists, unless people said what separates them.

        Raises TagFileError if they do.
        """
        if separator is not None or 2 * self.n_lists <= self.n_tags:
            return
        what = f"{self.n_lists:,} of {self.n_tags:,} tags look like lists, such as {self._examples()}."
        if not in_file:
            parts = [part.strip() for part in re.split(f"[{USUAL}]", self.lists[0]) if part.strip()]
            raise TagFileError(f"{what} Pass them as lists: {parts}.")
        (best, _), *_ = Counter(letter for tag in self.lists for letter in tag if letter in _USUAL).most_common(1)
        raise TagFileError(
            f"{what} Say what separates them in a file of tag rules (--tag-rules FILE): separator = '{best}'; or, to "
            "keep them as they are, a separator that they don't contain."
        )

    def _examples(self) -> str:
        rest = ", ..." if self.n_lists > len(self.lists) else ""
        return ", ".join(f"'{tag[:60]}'" for tag in self.lists) + rest


_USUAL = frozenset(USUAL)


def _has_both(cells: Iterable[str]) -> bool:
    semicolon = comma = False
    for line in _lines(cells):
        semicolon |= ";" in line
        comma |= "," in line and ";" not in line
        if semicolon and comma:
            return True
    return False


def _lines(cells: Iterable[str]) -> Iterator[str]:
    for cell in cells:
        yield from _CELL_END.split(cell)


def _keys(text: str, separator: str) -> list[str]:
    """Return the parts of a text, small and trimmed; a leading ``-`` says that an image does not have the tag."""
    parts = (part.strip().lstrip("- ").casefold() for part in re.split(separator, text))
    return [part for part in parts if part]
