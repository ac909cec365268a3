"""What an export changes in one file, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.xmp.keywords import Mark, read_keywords
from visterm.data.xmp.writing import add_tags, check_writable, remove_tags
from visterm.library.export.items import ExportItem


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one file.

    Attributes
    ----------
    image : str
    target : str
        The file that is written.
    added : tuple of Mark
        Tags that are put in.
    removed : tuple of str
        Tags of visterm that are taken back.
    left_out : tuple of str
        Tags that are not written: a person has taken them out of the file since visterm wrote them, or the file cannot
        hold them.
    found : tuple of str
        All tags that the file says are visterm's, after the changes.
    """

    image: str
    target: str
    added: tuple[Mark, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    found: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_one(self) -> bool:
        """Whether anything is changed or left out."""
        return bool(self.added or self.removed or self.left_out)

    def as_dict(self) -> dict[str, Any]:
        """Return the change as it stands in JSON."""
        added = [
            {"tag": mark.tag, "source": mark.source}
            | ({} if mark.confidence is None else {"confidence": round(mark.confidence, 4)})
            | ({} if mark.path is None else {"path": mark.path})
            for mark in self.added
        ]
        return {
            "image": self.image, "target": self.target, "added": added, "removed": list(self.removed),
            "left_out": list(self.left_out),
        }  # fmt: skip


class Target(Protocol):
    """A place where the tags of an image are written, such as its XMP file."""

    name: str

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote; None where it wrote nothing."""

    def close(self) -> None:
        """Let go of what is open."""


class Revised(NamedTuple):
    """An XMP text with its changes: what is in it now, what was put in and out, and what was not."""

    content: bytes | None
    added: tuple[Mark, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


def revise(content: bytes, wanted: Sequence[Mark], rejected: Sequence[str], where: str) -> Revised:
    """Put tags into an XMP text, and take rejected ones back.

    Parameters
    ----------
    content : bytes
    wanted : sequence of Mark
    rejected : sequence of str
        Taken back if visterm wrote them.
    where : str
        What the text is called in messages.

    Raises
    ------
    DataError
        If the text cannot be understood.
    """
    writable, left_out = _writable(wanted)
    there = read_keywords(content, where)
    keys, marked = set(map(tag_key, there.tags)), {tag_key(mark.tag) for mark in there.marks}
    not_there = set(map(tag_key, rejected))
    removed = tuple(mark.tag for mark in there.marks if tag_key(mark.tag) in not_there & keys)
    added = tuple(mark for mark in writable if tag_key(mark.tag) not in keys | marked)
    left_out += [mark.tag for mark in writable if tag_key(mark.tag) in marked - keys]
    more = add_tags(content, writable, where)
    revised = remove_tags(more, removed, where) if removed else more
    gone = set(map(tag_key, removed))
    found = (mark.tag for mark in (*there.marks, *added) if tag_key(mark.tag) not in gone)
    return Revised(revised, added, removed, tuple(left_out), tuple(found))


def taken_back(content: bytes, where: str) -> Revised:
    """Take all tags that visterm wrote out of an XMP text; the content is None where nothing else was in it."""
    tags = tuple(mark.tag for mark in read_keywords(content, where).marks)
    return Revised(remove_tags(content, tags, where) if tags else content, removed=tags)


def _writable(wanted: Sequence[Mark]) -> tuple[list[Mark], list[str]]:
    """Part the tags that XML can hold from those that it cannot."""
    good, bad = [], []
    for mark in wanted:
        try:
            check_writable(mark.tag)
        except DataError:
            bad.append(mark.tag)
        else:
            good.append(mark)
    return good, bad
