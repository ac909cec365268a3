"""Tags written into XMP files beside the images, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from visterm.core.vocabulary import tag_key
from visterm.data.sidecars import Sidecars, content_of, read_sidecar, replace_file
from visterm.data.xmp.keywords import Mark
from visterm.data.xmp.writing import SIDECAR
from visterm.library.export.changes import Change, Revised, revise, taken_back
from visterm.library.export.items import ExportItem


class SidecarTarget:
    """Writes ``photo.jpg.xmp``, or ``photo.xmp`` where that is there; see `Sidecars`.

    A new file has the tags of people too, as some programs read either the file or the image; but where the image has
    all tags in itself, no file is made.

    Parameters
    ----------
    follow_links : bool
        Write through links that lead out of a photo's folder.
    """

    name = "xmp"

    def __init__(self, *, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._sidecars = Sidecars()

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""
        path = self._sidecars.target(item.path)
        old = content_of(path)
        if old is None:
            there = {tag_key(tag) for tag in self._sidecars.keywords(item.path).tags}
            if all(tag_key(mark.tag) in there for mark in wanted):
                return None
        change = self._put(
            item.path, path, old, revise(old or SIDECAR, wanted, item.rejected, str(path)), dry_run=dry_run
        )
        others = (read_sidecar(other) for other in self._sidecars.of(item.path) if other != path)
        elsewhere = tuple(mark.tag for other in others for mark in other.marks)
        if not elsewhere:
            return change
        change = change or Change(str(item.path), str(path))
        return replace(change, found=(*change.found, *elsewhere))

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote; a file that holds nothing else is removed."""
        there = [(path, content_of(path)) for path in [*self._sidecars.of(image), self._sidecars.target(image)]]
        changes = [
            self._put(image, path, old, taken_back(old, str(path)), dry_run=dry_run)
            for path, old in dict(there).items()
            if old is not None
        ]
        made = [change for change in changes if change is not None]
        removed = dict.fromkeys(tag for change in made for tag in change.removed)
        return Change(str(image), made[0].target, removed=tuple(removed)) if made else None

    def close(self) -> None:
        """Nothing is open."""

    def _put(self, image: Path, path: Path, old: bytes | None, new: Revised, *, dry_run: bool) -> Change | None:
        empty = old is None and not new.added
        if not dry_run and not empty and new.content != old:
            replace_file(path, old, new.content, follow_links=self._follow_links)
        changed = Change(str(image), str(path), new.added, new.removed, new.left_out, new.found)
        return changed if changed.is_one or changed.found else None
