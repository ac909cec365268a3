"""What a tag file says of one image, and how the text of a cell is split into tags: by what the whole file shows."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from visterm.core.errors import TagFileError, UserError
from visterm.core.types import Skipped
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.program_tags import MAY_BE_A_PROGRAMS, of_people

STANDARD = frozenset({"train", "valid", "test"})  # The names of splits; others may be used, too

# Other spellings of them
_SPLITS = {"training": "train", "val": "valid", "validation": "valid", "dev": "valid", "testing": "test"}
LINE_END = r"\r\n|\r|\n"
_CELL_END = re.compile(rf"{LINE_END}|\t")  # Separates tags in every cell: no tag can hold a line end or a tab
USUAL = ";,|/、，；"  # What separates tags in the files of other programs
_NEVER_IN_TAGS = frozenset(";、，；")  # Unlike the separators of places (Paris, France) and of kinds (animal|dog)
# How much more frequent commas are in cells without ``;`` than in tags of other cells before they are separators
_RATIO = 3
_USUAL = frozenset(USUAL)


class TagRecord(NamedTuple):
    """What a tag file says of one image."""

    image: str  # The file's name as the tag file has it, or its path inside the image folder, with forward slashes
    tags: list[str]  # Given
    negatives: list[str]  # Explicitly not there: written with ``-`` before the tag
    split: str | None  # "train", "valid", "test" or another name; None where nothing is said
    user: str | None = None  # Whose image it is; None where nothing is said, or several are named


class TagsFound(NamedTuple):
    """Tags, and where they come from."""

    records: list[TagRecord]  # One for each image named
    remarks: list[str]  # What ``"auto"`` found, and what of it is not used: a line each
    untagged: str = "not named by the tags"  # What images are that have no record
    tree: Sequence[tuple[str, str]] = ()  # Child and parent of tags that are written with those above them
    skipped: Sequence[Skipped] = ()  # Folders that cannot be listed, and files that may not be read, with reasons


def record(
    image: str, tags: Iterable[str], split: str | None, user: str | None = None, *, place: str = ""
) -> TagRecord:
    """Sort tags into those given and, by their ``-``, those explicitly not; empty ones and repetitions go.

    What programs wrote for themselves is left out. Raises TagFileError if a text cannot be a tag, see `tag_fault`; the
    message begins with `place`: the file, and its line.
    """
    cleaned = dict.fromkeys(filter(None, map(clean_tag, tags)))
    positive_tags = [tag for tag in cleaned if not tag.startswith("-")]
    if any(map(MAY_BE_A_PROGRAMS.match, positive_tags)):  # as few are
        positive_tags = of_people(positive_tags)
    negatives = list(dict.fromkeys(filter(None, (without_minus(tag) for tag in cleaned if tag.startswith("-")))))
    for tag in (*positive_tags, *negatives):
        if (fault := tag_fault(tag)) is not None:
            raise TagFileError(_why_no_tag(tag, fault, place or image))
    return TagRecord(image, positive_tags, negatives, split, user)


def usable_keywords(keywords: Iterable[str], place: str, refused: list[str]) -> list[str]:
    """Return those keywords of a photo that can be tags, and append to `refused` what is wrong with each other one."""
    usable = []
    for keyword in map(clean_tag, keywords):
        if (fault := tag_fault(without_minus(keyword))) is None:
            usable.append(keyword)
        elif without_minus(keyword):
            refused.append(_why_no_tag(keyword, fault, place))
    return usable


def refused_remarks(refused: Sequence[str]) -> list[str]:
    """Return a line that counts the keywords that were left out, with the first of them; nothing if there are none."""
    n_refused = count_of(len(refused), "keyword")
    return [f"Left out: {n_refused} that cannot be tags, such as in {refused[0]}"] if refused else []


def _why_no_tag(tag: str, fault: str, place: str) -> str:
    return f"{place}: the tag {tag[:40]!r}{' …' if len(tag) > 40 else ''} {fault}."


def without_contradictions(row: TagRecord, contradictions: list[str]) -> TagRecord:
    """Return a record without the tags that its image both has and hasn't (``sea;-sea``): nothing is known of these.

    Each is appended to `contradictions`, for `contradiction_remarks`.
    """
    both = {tag_key(tag) for tag in row.tags} & {tag_key(tag) for tag in row.negatives} if row.negatives else set()
    if not both:
        return row
    tags, negatives = ([tag for tag in group if tag_key(tag) not in both] for group in (row.tags, row.negatives))
    contradictions += [f"'{tag}' and '-{tag}' of '{row.image}'" for tag in row.tags if tag_key(tag) in both]
    return row._replace(tags=tags, negatives=negatives)


def contradiction_remarks(contradictions: Sequence[str]) -> list[str]:
    """Return a line that counts the tags that photos both have and haven't, with the first; nothing without any."""
    n_tags = count_of(len(contradictions), "tag")
    example = f"(such as {contradictions[0]})" if contradictions else ""
    return [f"Left out: {n_tags} that a photo both has and hasn't {example}."] if contradictions else []


def without_minus(tag: str) -> str:
    """Return the tag that a text of a tag file names: a ``-`` before it says that the image does not have it."""
    return tag.lstrip("- ")


def merged_by_image(records: Iterable[TagRecord], *, split_by_split: bool = False) -> list[TagRecord]:
    """Join the records of one image, in the order of the first of each; the user is dropped if there are several.

    With `split_by_split`, those of one split: for images whose tags, not they themselves, are in the splits. Raises
    TagFileError if an image is in two splits otherwise.
    """
    groups: dict[tuple[str, str | None], list[TagRecord]] = {}
    for new in records:
        groups.setdefault((new.image, new.split if split_by_split else None), []).append(new)

    joined = []
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
        joined.append(TagRecord(image, [*tags], [*negatives], splits[0], users.pop() if len(users) == 1 else None))
    return joined


def listed(text: str) -> list[object] | None:
    """Read a list in JSON or as Python prints it (``['sea', 'sky']``); None if the text is no list."""
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
    """Return the one spelling of a split; None if nothing is said."""
    name = (text or "").strip().casefold()
    return _SPLITS.get(name, name) or None


def separator_pattern(separator: str) -> re.Pattern[str]:
    """Return the pattern of a separator: a text, several of the usual separators (``;,``), or a pattern (``[;|]``).

    Raises UserError if it is empty, a word, no pattern, or a pattern that cuts words.
    """
    problem = ""
    if not separator:
        problem = "The separator is empty."
    elif separator.isalnum():
        problem = f"The separator '{separator}' is a word, which tags may contain."
    elif len(set(separator)) > 1 and set(separator) <= set(USUAL):
        return re.compile(f"[{separator}]")
    elif "\\" not in separator and not re.search(r"\[.+\]", separator):
        return re.compile(re.escape(separator))

    try:
        pattern = re.compile(separator)
        if not problem and pattern.search("aZ5é"):
            problem = f"The separator '{separator}' would cut words into pieces."
    except re.error as error:
        problem = f"The separator '{separator}' is no valid pattern ({error})."
    if problem:
        expected = "characters such as ';', several such as ';,', or a pattern such as '[;|]'"
        raise UserError(problem, setting="separator", value=separator, expected=expected)
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
        has_semicolons = has_commas = False
        for cell in cells() if separator is None else ():
            has_semicolons = has_semicolons or ";" in cell
            has_commas = has_commas or any("," in line and ";" not in line for line in _CELL_END.split(cell))
            if has_semicolons and has_commas:
                break
        self._is_mixed = has_semicolons and has_commas
        if self._is_mixed:
            self._learn(cells)

    def split(self, cell: str) -> list[str]:
        """Return the tags of a cell, as they are written; some may be empty."""
        tags: list[str] = []
        for line in _CELL_END.split(cell):
            if self._pattern is not None:
                tags += self._pattern.sub("\n", line).split("\n")
            elif ";" in line or "," not in line:
                tags += line.split(";")
            elif not self._is_mixed:
                tags += line.split(",")
            else:
                has_known = not self._known.isdisjoint(_keys(line, ","))
                prevails = self._commas_prevail or (has_known and self._lists_prevail)
                is_tag = self._with_comma.issuperset(_keys(line, ";"))
                tags += line.split("," if not is_tag and (prevails or self._mostly_known(line)) else ";")
        return tags

    def _learn(self, cells: Callable[[], Iterable[str]]) -> None:
        """Collect tags whose separator is beyond doubt, then count which cells with commas are lists."""
        alone: set[str] = set()
        before: set[str] = set()
        last: set[str] = set()
        self._with_comma: set[str] = set()  # tags between semicolons
        n_semicolons = n_commas = n_single = n_parts = 0
        for line in _lines(cells()):
            if ";" not in line and "," in line:
                n_commas += 1
                *others, end = _keys(line, ",") or [""]
                before.update(others)
                last.add(end)
                continue
            parts = _keys(line, ";")
            n_semicolons += ";" in line
            n_single += ";" not in line
            n_parts += len(parts) if ";" in line else 0
            self._with_comma.update(tag for tag in parts if "," in tag)
            alone.update(tag for tag in parts if "," not in tag)

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

    def _mostly_known(self, line: str) -> bool:
        parts = _keys(line, ",")
        return sum(part in self._known for part in parts) > len(parts) / 2


class TagsRead(NamedTuple):
    """What was understood of the tags of a file, for people to check."""

    n_tags: int
    n_separated: int  # Tags that contain a usual separator
    n_once: int  # Tags that are used once
    n_lists: int  # Tags that look like lists: most of their parts are tags, too, or their separators stand in no tag
    lists: tuple[str, ...]  # The first of these

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> TagsRead:
        """Look through tags and how often each is used; spellings that differ in case count as one."""
        uses: Counter[str] = Counter()
        spelled: dict[str, str] = {}
        for tag, count in counts.items():
            uses[tag.casefold()] += count
            spelled.setdefault(tag.casefold(), tag)

        parts = {key: _keys(key, f"[{USUAL}]") for key in uses if not _USUAL.isdisjoint(key)}
        before = {part for several in parts.values() for part in several[:-1]}
        last = {several[-1] for several in parts.values() if several}
        known = (uses.keys() - parts.keys()) | (before & last)
        lists = [
            spelled[key]
            for key, several in parts.items()
            if len(several) > 1
            and (not _NEVER_IN_TAGS.isdisjoint(key) or sum(part in known for part in several) > len(several) / 2)
        ]
        once = sum(count == 1 for count in uses.values())
        return cls(len(uses), len(parts), once, len(lists), tuple(lists[:3]))

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

    def facts(self) -> dict[str, object]:
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
        problem = f"{self.n_lists:,} of {self.n_tags:,} tags look like lists, such as {self._examples()}."
        if not in_file:
            parts = [part.strip() for part in re.split(f"[{USUAL}]", self.lists[0]) if part.strip()]
            raise TagFileError(f"{problem} Pass them as lists: {parts}.")
        best = Counter(letter for tag in self.lists for letter in tag if letter in _USUAL).most_common(1)[0][0]
        advice = f"Say what separates them in `tag_rules`: separator = '{best}'; or, to keep them as they are, one "
        raise TagFileError(problem, setting="separator", advice=f"{advice}that they don't contain.")

    def _examples(self) -> str:
        rest = ", ..." if self.n_lists > len(self.lists) else ""
        return ", ".join(f"'{tag[:60]}'" for tag in self.lists) + rest


def _lines(cells: Iterable[str]) -> Iterator[str]:
    for cell in cells:
        yield from _CELL_END.split(cell)


def _keys(text: str, separator: str) -> list[str]:
    """Return the parts of a text, small and trimmed; a leading ``-`` says that an image does not have the tag."""
    parts = (part.strip().lstrip("- ").casefold() for part in re.split(separator, text))
    return [part for part in parts if part]


def likely_paths(tag_lists: Iterable[Iterable[str]]) -> list[str]:
    """Return the tags that look like paths: several begin with the same word before a ``/``, unlike ``AC/DC``."""
    under: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for tag in dict.fromkeys(tag for tags in tag_lists for tag in tags if "/" in tag):
        parts = list(filter(None, map(clean_tag, tag.split("/"))))
        if len(parts) > 1:
            under[tag_key(parts[0])].setdefault(tag_key(tag), tag)
    return [tag for tags in under.values() if len(tags) > 1 for tag in tags.values()]
