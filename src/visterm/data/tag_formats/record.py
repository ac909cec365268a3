"""What a tag file says of one image: its tags, negative tags, split and owner."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from visterm.core.errors import TagFileError
from visterm.core.types import Skipped
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.program_tags import of_people

STANDARD = frozenset({"train", "valid", "test"})  # The names of splits; others may be used, too
_SPLITS = {"training": "train", "val": "valid", "validation": "valid", "dev": "valid", "testing": "test"}
"""Other spellings of them."""


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
    given = of_people(tag for tag in cleaned if not tag.startswith("-"))
    negatives = list(dict.fromkeys(filter(None, (without_minus(tag) for tag in cleaned if tag.startswith("-")))))
    for tag in (*given, *negatives):
        fault = tag_fault(tag)
        if fault is not None:
            raise TagFileError(_why_no_tag(tag, fault, place or image))
    return TagRecord(image, given, negatives, split, user)


def usable_keywords(keywords: Iterable[str], place: str, refused: list[str]) -> list[str]:
    """Return those keywords of a photo that can be tags, and append to `refused` what is wrong with each other one."""
    usable = []
    for keyword in map(clean_tag, keywords):
        fault = tag_fault(without_minus(keyword))
        if fault is None:
            usable.append(keyword)
        elif without_minus(keyword):
            refused.append(_why_no_tag(keyword, fault, place))
    return usable


def refused_remarks(refused: Sequence[str]) -> list[str]:
    """Return a line that counts the keywords that were left out, with the first of them; nothing if there are none."""
    if not refused:
        return []
    return [f"Left out: {count_of(len(refused), 'keyword')} that cannot be tags, such as in {refused[0]}"]


def _why_no_tag(tag: str, fault: str, place: str) -> str:
    return f"{place}: the tag {tag[:40]!r}{' …' if len(tag) > 40 else ''} {fault}."


class Contradictions:
    """Tags that an image both has and hasn't (``sea;-sea``): nothing is known of these, and they are counted."""

    def __init__(self) -> None:
        self._n, self._example = 0, ""

    def left_out(self, row: TagRecord) -> TagRecord:
        """Return a record without such tags."""
        both = {tag_key(tag) for tag in row.tags} & {tag_key(tag) for tag in row.negatives} if row.negatives else set()
        if not both:
            return row
        self._n += len(both)
        tags, negatives = ([tag for tag in some if tag_key(tag) not in both] for some in (row.tags, row.negatives))
        tag = next(tag for tag in row.tags if tag_key(tag) in both)
        self._example = self._example or f"'{tag}' and '-{tag}' of '{row.image}'"
        return row._replace(tags=tags, negatives=negatives)

    def remarks(self) -> list[str]:
        """Return a line that counts them, with the first; nothing where there are none."""
        if not self._n:
            return []
        return [f"Left out: {count_of(self._n, 'tag')} that a photo both has and hasn't (such as {self._example})."]


def without_minus(tag: str) -> str:
    """Return the tag that a text of a tag file names: a ``-`` before it says that the image does not have it."""
    return tag.lstrip("- ")


def merged_by_image(records: Iterable[TagRecord], *, split_by_split: bool = False) -> list[TagRecord]:
    """Join the records of one image, in the order of the first of each.

    With `split_by_split`, those of one split: for images whose tags, not they themselves, are in the splits. Raises
    TagFileError if an image is in two splits otherwise.
    """
    groups: dict[tuple[str, str | None], list[TagRecord]] = {}
    for new in records:
        groups.setdefault((new.image, new.split if split_by_split else None), []).append(new)
    return [_joined(group) for group in groups.values()]


def _joined(group: list[TagRecord]) -> TagRecord:
    """Join records of one image; of several users none is kept."""
    image = group[0].image
    splits = list(dict.fromkeys(row.split for row in group if row.split))
    if len(splits) > 1:
        raise TagFileError(
            f"The image {image} is in two splits, '{splits[0]}' and '{splits[1]}'; expected one. "
            "Leave one of its rows out."
        )
    tags = dict.fromkeys(tag for row in group for tag in row.tags)
    negatives = dict.fromkeys(tag for row in group for tag in row.negatives)
    users = {row.user for row in group if row.user}
    user = users.pop() if len(users) == 1 else None
    return TagRecord(image, list(tags), list(negatives), splits[0] if splits else None, user)


def listed(text: str) -> list[Any] | None:
    """Read a list in JSON or as Python prints it (``['sea', 'sky']``); None where the text is no such list."""
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
