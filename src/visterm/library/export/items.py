"""The tags to write per image, given by people or predicted by a run; the resulting changes; and parents of tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import UserError
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.data.tag_tree import TagTree, own_names
from visterm.data.xmp.keywords import GIVEN, PREDICTED, Mark
from visterm.tagging.tagger import Tagger


class Predicted(NamedTuple):
    """A predicted tag of an image; `confidence` is None if the run is not calibrated."""

    tag: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class ExportItem:
    """One image, with the tags to write."""

    path: Path  # The file
    given: tuple[str, ...] = ()  # Tags by people: from a tag file or the image itself, or accepted
    predicted: tuple[Predicted, ...] = ()  # Best first
    rejected: tuple[str, ...] = ()  # Tags that people rejected: not written, and removed if visterm wrote them
    name: str = ""  # For tables and changes: path in the indexed folder; empty: use `path`
    takes_off: bool = False  # Whether rejected keywords of other programs are removed, too

    def marks_to_write(self, run: str | None, parents: Parents) -> list[Mark]:
        """Return the tags to write, without duplicates and rejected tags, people's tags first."""
        marks: dict[str, Mark] = {tag_key(tag): Mark(tag, GIVEN) for tag in self.given}
        for tag, confidence in self.predicted:
            marks.setdefault(tag_key(tag), Mark(tag, PREDICTED, confidence, run))
        for tag in self.rejected:
            marks.pop(tag_key(tag), None)
        return [
            mark._replace(
                tag=parents.own_name(mark.tag), path=parents.path(mark.tag, is_predicted=mark.source == PREDICTED)
            )
            for mark in marks.values()
        ]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The changes of one file."""

    image: str
    target: str  # The file that is written
    added: tuple[Mark, ...] = ()  # Added tags
    removed: tuple[str, ...] = ()  # Removed tags, which visterm had written
    left_out: tuple[str, ...] = ()  # Not written: a person removed them, or the file format cannot store them
    visterm_tags: tuple[str, ...] = field(default=(), compare=False)  # All tags by visterm in the changed file
    copied: tuple[str, ...] = ()  # Tags by other programs that were copied to more fields, or removed from them
    taken_off: tuple[str, ...] = ()  # Keywords by other programs that people rejected and visterm removed
    staying: tuple[str, ...] = ()  # Such keywords that are still in files
    put_back: tuple[str, ...] = ()  # Such keywords that an undo added again

    @property
    def is_write(self) -> bool:
        """Whether a file is changed."""
        return bool(self.added or self.removed or self.copied or self.taken_off or self.put_back)

    @property
    def has_changes(self) -> bool:
        """Whether any tags are changed or left out."""
        return self.is_write or bool(self.left_out or self.staying)

    def as_dict(self) -> dict[str, object]:
        """Return the change as JSON data."""
        added = [
            {"tag": mark.tag, "source": mark.source}
            | ({"path": mark.path_text} if mark.path else {})
            | ({} if mark.confidence is None else {"confidence": round(mark.confidence, 4)})
            for mark in self.added
        ]
        kinds = ("removed", "left_out", "copied", "taken_off", "staying", "put_back")
        tags = {kind: list(getattr(self, kind)) for kind in kinds}
        return {"image": self.image, "target": self.target, "added": added, **tags}


class Parents:
    """The parents of a run's tags, for hierarchical keywords: from a tree, or from (child, parent) pairs.

    If a tag has several parents, the first is used. Pairs may include words that are not in `tags`; paths do not
    contain these words. `branch` is a path under which all predicted tags are, without their own
    parents.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]] = (),
        tags: Iterable[str] = (),
        tree: TagTree | None = None,
        branch: tuple[str, ...] = (),
    ) -> None:
        self._tree, self._branch = tree, branch
        self._tag_of_key = {tag_key(tag): tag for tag in tags}
        self._parent_keys: defaultdict[str, list[str]] = defaultdict(list)
        for child, parent in pairs:
            self._parent_keys[tag_key(child)].append(tag_key(parent))

    @classmethod
    def of_run(cls, tagger: Tagger, branch: tuple[str, ...] = ()) -> Parents:
        """Use the tag tree of a run, or its is-a relations if it has no tree."""
        if tagger.tree is not None:
            return cls(tree=tagger.tree.words, branch=branch)
        return cls(tagger.relations.is_a, tagger.vocabulary, branch=branch)

    def path(self, tag: str, *, is_predicted: bool = False) -> tuple[str, ...]:
        """Return the path of a tag, from its topmost parent to the tag itself; empty if it has no parent.

        If the tree has the tag ``birds/crane``, to distinguish it from another crane, the path has ``crane``.
        """
        if is_predicted and self._branch:
            return (*self._branch, self.own_name(tag))
        if self._tree is not None:
            names = self._tree.path(tag)
            return own_names(names) if len(names) > 1 else ()
        names, visited = [tag], {tag_key(tag)}  # relations may be circular
        queue = self._parent_keys[tag_key(tag)]
        while queue:
            key, *queue = queue
            if key in visited:
                continue
            visited.add(key)
            is_nearest = key in self._tag_of_key
            if is_nearest:
                names.append(self._tag_of_key[key])
            queue = [*(() if is_nearest else queue), *self._parent_keys[key]]
        return own_names(reversed(names)) if len(names) > 1 else ()

    def own_name(self, tag: str) -> str:
        """Return the name of a tag in files: the last name of its path."""
        return (self.path(tag) or (tag,))[-1]


def branch_path(text: str | None) -> tuple[str, ...]:
    """Return the path of a tag above predictions, such as ``visterm/auto``; empty without one.

    Raises UserError if a part of it is not a valid tag.
    """
    parts = tuple(map(clean_tag, (text or "").split("/"))) if text and text.strip() else ()
    for part in parts:
        fault = tag_fault(part) if part else "has an empty part"
        if fault is not None:
            raise UserError(
                f"`parent` {text!r} {fault}", setting="parent", value=text, expected="a tag such as visterm"
            )
    return parts
