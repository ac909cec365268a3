"""Tags written as XMP: into files beside the images, which stay as they are, or by exiftool into the images."""

from __future__ import annotations

import filecmp
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.embedded import embedded_keywords
from visterm.data.exiftool import ExifTool
from visterm.data.sidecars import Sidecars, check_stays_inside, content_of, read_sidecar, replace_file
from visterm.data.xmp.keywords import GIVEN, Mark, read_keywords
from visterm.data.xmp.writing import PACKET, SIDECAR, add_tags, check_writable, remove_tags
from visterm.library.export.items import Change, ExportItem

EXTENDED = b"HasExtendedXMP"

_AROUND = re.compile(rb"<\?xpacket.*?\?>", re.DOTALL)


class Revised(NamedTuple):
    """An XMP text with its changes: what is in it now, what was put in and out, and what was not."""

    content: bytes | None
    added: tuple[Mark, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def change_of(self, image: Path, target: Path) -> Change | None:
        """Return the changes of an image's file; None where nothing is changed and nothing of visterm is found."""
        change = Change(str(image), str(target), self.added, self.removed, self.left_out, self.found)
        return change if change.is_one or change.found else None


def revise(content: bytes, wanted: Sequence[Mark], rejected: Sequence[str], where: str) -> Revised:
    """Put tags into an XMP text, called `where` in messages, and take back rejected ones that visterm wrote.

    Raises DataError if the text cannot be understood.
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


def _with_own(wanted: Sequence[Mark], own: Sequence[str], rejected: Sequence[str]) -> list[Mark]:
    """Put an image's own keywords before the tags that begin a list: programs read one of several lists only."""
    paths = {tag_key(mark.tag): mark.path for mark in wanted}
    keys, not_there = set(map(tag_key, own)), set(map(tag_key, rejected))
    given = [Mark(tag, GIVEN, path=paths.get(tag_key(tag))) for tag in own if tag_key(tag) not in not_there]
    return [*given, *(mark for mark in wanted if tag_key(mark.tag) not in keys)]


class SidecarTarget:
    """Writes ``photo.jpg.xmp``, or ``photo.xmp`` where that is there; see `Sidecars`.

    A new file has the tags of people too, as some programs read either the file or the image; but where the image has
    all tags in itself, no file is made. With `follow_links`, links are written through that lead out of a photo's
    folder.
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
            wanted = _with_own(wanted, embedded_keywords(item.path).of_people, item.rejected)
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
        return new.change_of(image, path)


class EmbeddedTarget:
    """Writes the XMP inside of images; everything else in them stays, the pixels too.

    With `keep_originals`, each image stays as it was beside it (``photo.jpg_original``). With `follow_links`, images
    are written that are links out of their folder.
    """

    name = "embed"

    def __init__(self, *, keep_originals: bool = True, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._exiftool = ExifTool()
        self._keep = keep_originals

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""
        old = self._read(item.path)
        there = embedded_keywords(item.path)
        elsewhere = {tag_key(tag) for tag in there.tags}  # in IPTC, say: a person's, and there
        new = [mark for mark in wanted if mark.source != GIVEN or tag_key(mark.tag) not in elsewhere]
        inside = read_keywords(old or PACKET, str(item.path))
        ours = {tag_key(mark.tag) for mark in inside.marks}
        if (new or inside.tags) and all(tag_key(tag) in ours for tag in inside.tags):
            new = _with_own(new, there.of_people, item.rejected)  # the list in XMP is visterm's alone
        revised = revise(old or PACKET, new, item.rejected, str(item.path))
        return self._put(item.path, revised, dry_run=dry_run, keep_original=self._keep)

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote, and put the original back in its place where nothing else has changed."""
        old = self._read(image)
        if old is None:
            return None
        new = taken_back(old, str(image))
        change = self._put(image, new, dry_run=dry_run, keep_original=False)
        if new.removed and not dry_run:
            self._restore(image, old, new.content)
        return change

    def close(self) -> None:
        """End exiftool."""
        self._exiftool.close()

    def _read(self, image: Path) -> bytes | None:
        packet = self._exiftool.read_packet(image)
        if packet is not None and EXTENDED in packet:
            raise DataError(
                f"{image} has XMP in several pieces (extended XMP), which cannot be written back whole. Write an XMP "
                "file beside it: --to xmp."
            )
        return packet

    def _restore(self, image: Path, written: bytes, taken_back: bytes | None) -> None:
        """Replace an image by its backup, if doing to the backup what was done to the image gives the same bytes.

        Otherwise another program has changed the image since, or the backup is somebody else's: both stay.
        """
        backup = image.with_name(f"{image.name}_original")
        if backup.is_symlink() or image.is_symlink() or not backup.is_file():
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copyfile(backup, Path(folder) / f"copy{image.suffix}"))
            same = _bare(self._exiftool.read_packet(copy)) == _bare(taken_back)
            for packet in (written, taken_back):
                self._exiftool.write_packet(copy, packet, keep_original=False)
            same = same and filecmp.cmp(copy, image, shallow=False)
        if same:
            backup.replace(image)

    def _put(self, image: Path, new: Revised, *, dry_run: bool, keep_original: bool) -> Change | None:
        if (new.added or new.removed) and not dry_run:
            if not self._follow_links:
                check_stays_inside(image)
            self._exiftool.write_packet(image, new.content, keep_original=keep_original)
        return new.change_of(image, image)


def _bare(packet: bytes | None) -> bytes:
    """Return XMP without the instructions and white space around it, which exiftool writes anew."""
    return _AROUND.sub(b"", packet or b"").strip()
