"""The tags of one image in a tag file, and how a cell is split into tags, based on all cells of the file."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from visterm.core.errors import TagFileError, UserError
from visterm.core.types import Skipped
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.program_tags import PROGRAM_PREFIX, people_tags

STANDARD_SPLITS = frozenset({"train", "valid", "test"})  # Standard names of splits; other names are allowed

# Other spellings of the standard names
_SPLITS = {"training": "train", "val": "valid", "validation": "valid", "dev": "valid", "testing": "test"}
LINE_END = r"\r\n|\r|\n"
_CELL_END = re.compile(rf"{LINE_END}|\t")  # Separates tags in every cell: no tag can contain a line end or a tab
USUAL_SEPARATORS = ";,|/、，；"  # Characters that separate tags in the files of other programs
_NEVER_IN_TAGS = frozenset(";、，；")  # Unlike ``,`` in places (Paris, France) and ``|`` in paths (animal|dog)
# Commas are separators if they are more frequent by this factor in cells without ``;`` than in tags of other cells
_MIN_COMMA_RATIO = 3
_SEPARATORS = frozenset(USUAL_SEPARATORS)


class TagRecord(NamedTuple):
    """The entry of one image in a tag file."""

    image: str  # The file's name as in the tag file, or its path inside the image folder, with forward slashes
    tags: list[str]  # Positive tags
    negatives: list[str]  # Tags that the image explicitly does not have: written with ``-`` before the tag
    split: str | None  # "train", "valid", "test" or another name; None if not given
    user: str | None = None  # The owner of the image; None if not given, or if the image has several owners
    is_known: bool = True  # Not if its cell or text is empty, which doesn't say that it has none of the tags


class TagsFound(NamedTuple):
    """The tags that were read for a folder, with remarks."""

    records: list[TagRecord]  # One for each named image
    remarks: list[str]  # Lines that say what ``"auto"`` found, and what is not used
    untagged_reason: str = "not named by the tags"  # Describes the images without a record
    tree: Sequence[tuple[str, str]] = ()  # Child and parent of tags that are written as paths
    skipped: Sequence[Skipped] = ()  # Folders that cannot be listed, and files without permission to read, with reasons
    aliases: Mapping[str, str] = {}  # Synonym -> its tag


def record(
    image: str, tags: Iterable[str], split: str | None, user: str | None = None, *, source: str = ""
) -> TagRecord:
    """Separate positive tags from negatives (written ``-tag``); drop empty tags and repetitions.

    Tags that programs write for their own use are left out. Raises TagFileError if a text is not a valid tag (see
    `tag_fault`); the message begins with `source`, the file and line.
    """
    cleaned = dict.fromkeys(filter(None, map(clean_tag, tags)))
    positive_tags = [tag for tag in cleaned if not tag.startswith("-")]
    if any(map(PROGRAM_PREFIX.match, positive_tags)):  # only for few images
        positive_tags = people_tags(positive_tags)
    negatives = list(dict.fromkeys(filter(None, (without_minus(tag) for tag in cleaned if tag.startswith("-")))))
    for tag in (*positive_tags, *negatives):
        if (fault := tag_fault(tag)) is not None:
            raise TagFileError(_invalid_tag_text(tag, fault, source or image))
    return TagRecord(image, positive_tags, negatives, split, user)


def usable_keywords(keywords: Iterable[str], source: str, invalid_keywords: list[str]) -> list[str]:
    """Return the keywords of a photo that are valid tags; append the others, with the reason, to `invalid_keywords`."""
    usable = []
    for keyword in map(clean_tag, keywords):
        if (fault := tag_fault(without_minus(keyword))) is None:
            usable.append(keyword)
        elif without_minus(keyword):
            invalid_keywords.append(_invalid_tag_text(keyword, fault, source))
    return usable


def refused_remarks(invalid_keywords: Sequence[str]) -> list[str]:
    """Return a line with the number of keywords that were left out and the first one; no line if all are valid."""
    n_keywords = count_of(len(invalid_keywords), "keyword")
    return [f"Left out: {n_keywords} that cannot be tags, such as in {invalid_keywords[0]}"] if invalid_keywords else []


def _invalid_tag_text(tag: str, fault: str, source: str) -> str:
    return f"{source}: the tag {tag[:40]!r}{' …' if len(tag) > 40 else ''} {fault}."


def without_contradictions(row: TagRecord, contradictions: list[str]) -> TagRecord:
    """Return a record without the tags that are both positive and negative (``sea;-sea``).

    Each contradiction is appended to `contradictions`, for `contradiction_remarks`.
    """
    keys = {tag_key(tag) for tag in row.tags} & {tag_key(tag) for tag in row.negatives} if row.negatives else set()
    if not keys:
        return row
    tags, negatives = ([tag for tag in group if tag_key(tag) not in keys] for group in (row.tags, row.negatives))
    contradictions += [f"'{tag}' and '-{tag}' of '{row.image}'" for tag in row.tags if tag_key(tag) in keys]
    return row._replace(tags=tags, negatives=negatives)


def contradiction_remarks(contradictions: Sequence[str]) -> list[str]:
    """Return a line with the number of contradictory tags and an example; no line without contradictions."""
    n_tags = count_of(len(contradictions), "tag")
    example = f"(such as {contradictions[0]})" if contradictions else ""
    return [f"Left out: {n_tags} that a photo both has and hasn't {example}."] if contradictions else []


def without_minus(tag: str) -> str:
    """Remove the ``-`` before a tag, which says that the image does not have it."""
    return tag.lstrip("- ")


def merged_by_image(records: Iterable[TagRecord], *, per_split: bool = False) -> list[TagRecord]:
    """Merge the records of each image, in order of first appearance; several different users become None.

    With `per_split`, only records of the same split are merged: the tags, not the images, are split. Without it,
    raises TagFileError if an image is in two splits.
    """
    groups: dict[tuple[str, str | None], list[TagRecord]] = {}
    for row in records:
        groups.setdefault((row.image, row.split if per_split else None), []).append(row)

    result = []
    for (image, _), group in groups.items():
        splits = [*dict.fromkeys(row.split for row in group if row.split), None]
        if len(splits) > 2:
            raise TagFileError(
                f"The image {image} is in two splits, '{splits[0]}' and '{splits[1]}'; expected one. "
                "Leave one of its rows out."
            )
        tags = dict.fromkeys(tag for row in group for tag in row.tags)
        negatives = dict.fromkeys(tag for row in group for tag in row.negatives)
        users = {row.user for row in group if row.user}
        user, is_known = users.pop() if len(users) == 1 else None, any(row.is_known for row in group)
        result.append(TagRecord(image, [*tags], [*negatives], splits[0], user, is_known))
    return result


def parse_list(text: str) -> list[object] | None:
    """Parse a list in JSON or as Python prints it (``['sea', 'sky']``); None if the text is not a list."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, list) else None
    return None


def split_name(text: str | None) -> str | None:
    """Return the standard spelling of a split; None if the text is empty."""
    name = (text or "").strip().casefold()
    return _SPLITS.get(name, name) or None


def separator_pattern(separator: str) -> re.Pattern[str]:
    """Return the pattern of a separator: a text, several of the usual separators (``;,``), or a pattern (``[;|]``).

    Raises UserError if it is empty, a word, not a valid pattern, or a pattern that matches inside words.
    """
    problem = ""
    if not separator or separator.isalnum():
        problem = f"The separator '{separator}' is empty, or a word, which tags may contain."
    elif len(set(separator)) > 1 and set(separator) <= set(USUAL_SEPARATORS):
        return re.compile(f"[{separator}]")
    elif "\\" not in separator and not re.search(r"\[.+\]", separator):
        return re.compile(re.escape(separator))

    try:
        pattern = re.compile(separator)
        if not problem and pattern.search("aZ5é"):
            problem = f"The separator '{separator}' would cut words into pieces."
    except re.error as error:
        problem = f"The separator '{separator}' is not a valid pattern ({error})."

    if problem:
        expected = "characters such as ';', several such as ';,', or a pattern such as '[;|]'"
        raise UserError(problem, setting="separator", value=separator, expected=expected)
    return pattern


class Splitter:
    """Splits the cells of a file into tags; with a separator (see `separator_pattern`), only at the separator.

    Without a separator, a cell with ``;`` is split at ``;``. In a file without any ``;``, cells are split at commas. In
    a file with both, a comma may separate tags (``beach, sea``) or belong to a tag (``Washington, D.C.``): a cell with
    commas is a list if most of its parts are tags elsewhere in the file, or if most cells with commas are lists.
    `cells` returns the cells of the file, and is called up to three times; with a separator it is not called.
    """

    def __init__(self, cells: Callable[[], Iterable[str]], separator: str | None = None) -> None:
        self._pattern = None if separator is None else separator_pattern(separator)
        has_semicolons = has_commas = False
        for cell in cells() if separator is None else ():
            has_semicolons = has_semicolons or ";" in cell
            has_commas = has_commas or any("," in line and ";" not in line for line in _CELL_END.split(cell))
            if has_semicolons and has_commas:
                break
        self._has_both_separators = has_semicolons and has_commas
        if self._has_both_separators:
            self._learn(cells)

    def split(self, cell: str) -> list[str]:
        """Return the tags of a cell, as they are written; tags may be empty."""
        tags: list[str] = []
        for line in _CELL_END.split(cell):
            if self._pattern is not None:
                tags += self._pattern.sub("\n", line).split("\n")
            elif ";" in line or "," not in line:
                tags += line.split(";")
            elif not self._has_both_separators:
                tags += line.split(",")
            else:
                has_known = not self._known_tags.isdisjoint(_keys(line, ","))
                commas_separate = self._commas_prevail or (has_known and self._lists_prevail)
                is_tag = self._tags_with_commas.issuperset(_keys(line, ";"))
                tags += line.split("," if not is_tag and (commas_separate or self._mostly_known(line)) else ";")
        return tags

    def _learn(self, cells: Callable[[], Iterable[str]]) -> None:
        """Collect the unambiguous tags, then count how many cells with commas are lists."""
        plain_tags: set[str] = set()
        inner_tags: set[str] = set()
        last_tags: set[str] = set()
        self._tags_with_commas: set[str] = set()  # tags between semicolons
        n_semicolons = n_commas = n_plain = n_parts = 0
        for line in chain.from_iterable(map(_CELL_END.split, cells())):
            if ";" not in line and "," in line:
                n_commas += 1
                *inner_parts, last_part = _keys(line, ",") or [""]
                inner_tags.update(inner_parts)
                last_tags.add(last_part)
                continue
            parts = _keys(line, ";")
            n_semicolons += ";" in line
            n_plain += ";" not in line
            n_parts += len(parts) if ";" in line else 0
            self._tags_with_commas.update(tag for tag in parts if "," in tag)
            plain_tags.update(tag for tag in parts if "," not in tag)

        self._known_tags = plain_tags | (inner_tags & last_tags)  # "Italy" of "Rome, Italy" is never an inner tag
        n_lists = n_tags = n_commas_inside = 0
        for line in chain.from_iterable(map(_CELL_END.split, cells())):
            if ";" in line:
                n_commas_inside += sum("," in tag and not self._mostly_known(tag) for tag in _keys(line, ";"))
            elif "," in line:
                is_tag = self._tags_with_commas.issuperset(_keys(line, ";"))
                n_tags += is_tag
                n_lists += not is_tag and self._mostly_known(line)

        self._lists_prevail = n_lists > n_tags + n_commas_inside
        # if commas belonged to tags, they would be equally frequent in tags between semicolons and in other cells
        are_too_frequent = n_commas * n_parts > _MIN_COMMA_RATIO * n_commas_inside * (n_commas + n_plain)
        self._commas_prevail = n_commas >= n_semicolons and (n_lists >= n_tags + n_commas_inside or are_too_frequent)

    def _mostly_known(self, line: str) -> bool:
        parts = _keys(line, ",")
        return sum(part in self._known_tags for part in parts) > len(parts) / 2


class TagCounts(NamedTuple):
    """Counts of the tags of a file, with which people can check how the tags were understood."""

    n_tags: int
    n_separated: int  # Tags that contain a usual separator
    n_once: int  # Tags that are used once
    n_lists: int  # Tags that look like lists: most parts are tags too, or a separator is never part of a tag
    lists: tuple[str, ...]  # The first tags that look like lists

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> TagCounts:
        """Make the counts from the number of uses of each tag; spellings that differ only in case are one tag."""
        uses: Counter[str] = Counter()
        spellings: dict[str, str] = {}
        for tag, count in counts.items():
            uses[tag.casefold()] += count
            spellings.setdefault(tag.casefold(), tag)

        parts = {key: _keys(key, f"[{USUAL_SEPARATORS}]") for key in uses if not _SEPARATORS.isdisjoint(key)}
        inner_parts = {part for words in parts.values() for part in words[:-1]}
        last_parts = {words[-1] for words in parts.values() if words}
        vocabulary = (uses.keys() - parts.keys()) | (inner_parts & last_parts)
        lists = [
            spellings[key]
            for key, words in parts.items()
            if len(words) > 1
            and (not _NEVER_IN_TAGS.isdisjoint(key) or sum(part in vocabulary for part in words) > len(words) / 2)
        ]
        n_once = sum(count == 1 for count in uses.values())
        return cls(len(uses), len(parts), n_once, len(lists), tuple(lists[:3]))

    @classmethod
    def in_lists(cls, tag_lists: Iterable[Iterable[str]], *, paths: bool = False) -> TagCounts:
        """Make the counts from the tags of images; with `paths` (``animals/dog``), ``/`` is not a separator."""
        tags = chain.from_iterable(tag_lists)
        return cls.of(Counter((tag.replace("/", " ") for tag in tags) if paths else tags))

    def line(self) -> str:
        """Return the counts as one line for people."""
        facts = [f"{self.n_tags:,} {'tag' if self.n_tags == 1 else 'tags'}"]
        if self.n_separated:
            facts.append(f"{self.n_separated:,} {'contains' if self.n_separated == 1 else 'contain'} a separator")
        facts.append(f"{self.n_once:,} on one photo only")
        if self.n_lists:
            looks = "looks like a list" if self.n_lists == 1 else "look like lists"
            facts.append(f"{self.n_lists:,} {looks} ({self._examples()})")
        return f"Read {'; '.join(facts)}."

    def facts(self) -> dict[str, object]:
        """Return the counts for JSON, as stored with a run."""
        return {
            "tags read": self.n_tags,
            "tags with a separator": self.n_separated,
            "tags used once": self.n_once,
            "tags like lists": self.n_lists,
            "lists such as": list(self.lists),
        }

    def check(self, separator: str | None) -> None:
        """Check that most tags do not look like lists, unless a separator was given.

        Raises TagFileError if they do.
        """
        if separator is not None or 2 * self.n_lists <= self.n_tags:
            return
        problem = f"{self.n_lists:,} of {self.n_tags:,} tags look like lists, such as {self._examples()}."
        best = Counter(letter for tag in self.lists for letter in tag if letter in _SEPARATORS).most_common(1)[0][0]
        advice = f"Say what separates them in `tag_rules`: separator = '{best}'; or, to keep them as they are, one "
        advice += "that they don't contain. In Python, pass a list for each image."
        raise TagFileError(problem, setting="separator", advice=advice)

    def _examples(self) -> str:
        ellipsis = ", ..." if self.n_lists > len(self.lists) else ""
        return ", ".join(f"'{tag[:60]}'" for tag in self.lists) + ellipsis


def _keys(text: str, separator: str) -> list[str]:
    """Return the parts of a text, trimmed, in lower case and without the leading ``-`` of negatives."""
    parts = (part.strip().lstrip("- ").casefold() for part in re.split(separator, text))
    return [part for part in parts if part]


def likely_paths(tag_lists: Iterable[Iterable[str]]) -> list[str]:
    """Return the tags that look like paths: at least two share the word before the ``/``, unlike ``AC/DC``."""
    tags_under: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for tag in dict.fromkeys(tag for tags in tag_lists for tag in tags if "/" in tag):
        parts = list(filter(None, map(clean_tag, tag.split("/"))))
        if len(parts) > 1:
            tags_under[tag_key(parts[0])].setdefault(tag_key(tag), tag)
    return [tag for tags in tags_under.values() if len(tags) > 1 for tag in tags.values()]
