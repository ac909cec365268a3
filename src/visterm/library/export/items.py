"""What there is to write of each image: the tags that people gave and that a run predicts; and what that changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from visterm.core.vocabulary import tag_key
from visterm.data.tag_tree import TagTree, own_names
from visterm.data.xmp.keywords import GIVEN, PREDICTED, Mark
from visterm.tagging.tagger import Tagger


class Predicted(NamedTuple):
    """A tag that a run gives to an image; the confidence is None where the run has no calibration."""

    tag: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class ExportItem:
    """One image, with the tags to write."""

    path: Path  # The file
    given: tuple[str, ...] = ()  # From people: a tag file, the image itself, or accepted
    predicted: tuple[Predicted, ...] = ()  # Best first
    rejected: tuple[str, ...] = ()  # By a person: not written, and taken back if visterm had written it
    name: str = ""  # In tables and changes: its path inside the folder that was indexed. Empty: by its path.

    def wanted(self, run: str | None, parents: Parents) -> list[Mark]:
        """Return the tags to write, each once, those of people first and none that is rejected."""
        marks: dict[str, Mark] = {tag_key(tag): Mark(tag, GIVEN) for tag in self.given}
        for tag, confidence in self.predicted:
            marks.setdefault(tag_key(tag), Mark(tag, PREDICTED, confidence, run))
        no = set(map(tag_key, self.rejected))
        wanted = [mark for key, mark in marks.items() if key not in no]
        return [mark._replace(tag=parents.own_name(mark.tag), path=parents.path(mark.tag)) for mark in wanted]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The changes of one file."""

    image: str
    target: str  # The file that is written
    added: tuple[Mark, ...] = ()  # Tags that are put in
    removed: tuple[str, ...] = ()  # Tags of visterm that are taken back
    left_out: tuple[str, ...] = ()  # Not written: a person took them out since, or the file cannot hold them
    found: tuple[str, ...] = field(default=(), compare=False)  # All that the file says are visterm's, after the changes
    copied: tuple[str, ...] = ()  # Of other programs: put into more fields, for every program, or taken out again

    @property
    def is_one(self) -> bool:
        """Whether anything is changed or left out."""
        return bool(self.added or self.removed or self.left_out or self.copied)

    def as_dict(self) -> dict[str, object]:
        """Return the change as it stands in JSON."""
        added = [
            {"tag": mark.tag, "source": mark.source}
            | ({"path": mark.path_text} if mark.path else {})
            | ({} if mark.confidence is None else {"confidence": round(mark.confidence, 4)})
            for mark in self.added
        ]
        return {
            "image": self.image, "target": self.target, "added": added, "removed": list(self.removed),
            "left_out": list(self.left_out), "copied": list(self.copied),
        }  # fmt: skip


class Parents:
    """The tags above each tag of a run, for hierarchical keywords: from a tree, or from pairs (child, parent).

    Of several parents the first counts. Of pairs, steps may lead over words that are none of the `tags`, which are left
    out.
    """

    def __init__(
        self, pairs: Iterable[tuple[str, str]] = (), tags: Iterable[str] = (), tree: TagTree | None = None
    ) -> None:
        self._tree = tree
        self._shown = {tag_key(tag): tag for tag in tags}
        self._above: dict[str, list[str]] = {}
        for child, parent in pairs:
            self._above.setdefault(tag_key(child), []).append(tag_key(parent))

    @classmethod
    def of_run(cls, tagger: Tagger) -> Parents:
        """Take the tree of a run; of a run without one, what its tags are kinds of."""
        if tagger.tree is not None:
            return cls(tree=tagger.tree.words)
        return cls(tagger.relations.is_a, tagger.vocabulary)

    def path(self, tag: str) -> tuple[str, ...]:
        """Return a tag after the tags above it, the topmost first; empty where there are none.

        What a tree calls ``birds/crane``, to tell it from another crane, is crane in its path.
        """
        if self._tree is not None:
            names = self._tree.path(tag)
            return own_names(names) if len(names) > 1 else ()
        names, seen = [tag], {tag_key(tag)}
        above = self._nearest(tag_key(tag), seen)
        while above is not None:
            names.append(self._shown[above])
            above = self._nearest(above, seen)
        return own_names(reversed(names)) if len(names) > 1 else ()

    def own_name(self, tag: str) -> str:
        """Return a tag as it stands in a file: the last of its path."""
        return (self.path(tag) or (tag,))[-1]

    def _nearest(self, key: str, seen: set[str]) -> str | None:
        """Return the nearest tag above, and remember where the search has been: relations may go in circles."""
        waiting = list(self._above.get(key, ()))
        while waiting:
            above = waiting.pop(0)
            if above in seen:
                continue
            seen.add(above)
            if above in self._shown:
                return above
            waiting += self._above.get(above, ())
        return None
