"""Targets for tags of photos: XMP sidecar files, or the images themselves (with exiftool)."""

from __future__ import annotations

import filecmp
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data import sidecars
from visterm.data.exiftool import ExifTool
from visterm.data.image_folders import DNG, suffix_of
from visterm.data.pillow import is_raw
from visterm.data.xmp import writing
from visterm.data.xmp.keywords import GIVEN, IPTC, Keywords, Mark, read_keywords
from visterm.library.export.items import ExportItem, FileChange

FLAT_FIELD = "dc"  # The only one of `OWN_FIELDS` without paths

_PACKET_INSTRUCTIONS = re.compile(rb"<\?xpacket.*?\?>", re.DOTALL)


def revise(
    content: bytes,
    item: ExportItem,
    marks: Sequence[Mark],
    target: Path,
    iptc: Sequence[str] = (),
    taken_from_iptc: Sequence[str] = (),
) -> tuple[bytes | None, FileChange]:
    """Add tags to the XMP text of the file `target`, and remove rejected tags that visterm wrote.

    `iptc` are the tags that are also added to the image's IPTC keywords, which is recorded in XMP, and
    `taken_from_iptc` those that are removed from them. Returns the new text and the changes. Raises DataError if the
    text is invalid.
    """
    name = str(target)
    writable, left_out = _writable(marks)
    keywords = read_keywords(content, name)
    keys = set(map(tag_key, keywords.tags))
    recorded = {tag_key(mark.tag) for mark in (*keywords.marks, *keywords.copies)}
    rejected = set(map(tag_key, item.rejected))
    removed = tuple(mark.tag for mark in keywords.marks if tag_key(mark.tag) in rejected & keys)
    added = tuple(mark for mark in writable if tag_key(mark.tag) not in keys | recorded)
    left_out += [mark.tag for mark in writable if tag_key(mark.tag) in recorded - keys]

    with_additions = writing.add_tags(content, writable, name, iptc=iptc)
    revised = writing.remove_tags(with_additions, removed, name) if removed else with_additions
    foreign = [tag for tag in keywords.tags if tag_key(tag) in rejected.difference(map(tag_key, removed))]
    taken_off = sidecars.union([*foreign, *taken_from_iptc]) if item.takes_off else []
    if taken_off and revised:
        revised = writing.take_off(revised, foreign, name, iptc=taken_from_iptc)
    remaining = read_keywords(revised, name) if revised else Keywords([], [])
    staying = tuple(tag for tag in remaining.tags if tag_key(tag) in rejected)
    copied = tuple(mark.tag for mark in remaining.copies if mark not in keywords.copies)
    removed_keys = set(map(tag_key, removed))
    visterm_tags = tuple(mark.tag for mark in (*keywords.marks, *added) if tag_key(mark.tag) not in removed_keys)
    changes = (added, removed, tuple(left_out), visterm_tags, copied, tuple(taken_off), staying)
    return revised, FileChange(str(item.path), name, *changes)


def without_tags(content: bytes, image: Path, target: Path) -> tuple[bytes | None, FileChange, list[str], list[str]]:
    """Remove all tags that visterm wrote from the XMP text of the file `target`, and add those that it took off.

    Returns the new text, or None if it has nothing else; the changes; the removed tags that are also in IPTC; and the
    keywords that were taken off from IPTC.
    """
    content, notes = writing.put_back(content, str(target))
    keywords = read_keywords(content, str(target))
    tags, copied = (tuple(mark.tag for mark in marks) for marks in (keywords.marks, keywords.copies))
    in_iptc = [mark.tag for mark in (*keywords.marks, *keywords.copies) if mark.is_in_iptc]
    remaining = writing.remove_tags(content, tags, str(target)) if tags or copied else content
    change = FileChange(
        str(image), str(target), removed=tags, copied=copied, put_back=tuple(sidecars.union(note.tag for note in notes))
    )
    return remaining, change, in_iptc, [note.text for note in notes if note.field == IPTC]


def _writable(marks: Sequence[Mark]) -> tuple[list[Mark], list[str]]:
    """Split tags into those that XML can store and those that it cannot."""
    valid, invalid = [], []
    for mark in marks:
        try:
            writing.check_writable(mark)
        except DataError:
            invalid.append(mark.tag)
        else:
            valid.append(mark)
    return valid, invalid


def _with_image_keywords(marks: Sequence[Mark], embedded: Keywords, rejected: Sequence[str]) -> list[Mark]:
    """Return tags with the image's keywords before them, because programs read only one of several lists of tags."""
    paths = {tag_key(mark.tag): mark.path for mark in marks} | {
        tag_key(path[-1]): path for path in embedded.paths[::-1]
    }
    keys, rejected_keys = set(map(tag_key, embedded.people_tags)), set(map(tag_key, rejected))
    image_marks = [Mark(tag, GIVEN, path=paths.get(tag_key(tag), ())) for tag in embedded.people_tags]
    return [
        *(mark for mark in image_marks if tag_key(mark.tag) not in rejected_keys),
        *[mark for mark in marks if tag_key(mark.tag) not in keys],
    ]


def _flattened(marks: Sequence[Mark], rejected: Sequence[str], flat: bool | None) -> list[Mark]:
    """Return tags without those of parents that the paths of their children already contain.

    Only dc:subject and IPTC get parents as tags: all parents (`flat` is True), those among `marks` (None), or no
    parents (False).
    """
    parents: dict[str, Mark] = {}
    for mark in marks:
        for n, tag in enumerate(mark.path[:-1], 1):
            if tag_key(tag) != tag_key(mark.tag):
                parents.setdefault(tag_key(tag), mark._replace(tag=tag, path=mark.path[:n] if n > 1 else ()))

    own_marks = {tag_key(mark.tag): mark for mark in marks}
    repeated_keys = {False: set(), None: parents.keys() & own_marks.keys(), True: parents.keys()}[flat]
    repeated_keys = repeated_keys - set(map(tag_key, rejected))
    flattened: dict[str, Mark] = {}
    for mark in marks:
        for key in map(tag_key, (*mark.path, mark.tag)):
            if key in repeated_keys:
                flattened.setdefault(key, own_marks.get(key, parents[key])._replace(fields=FLAT_FIELD))
            elif key == tag_key(mark.tag) and key not in parents:
                flattened[key] = mark
    return list(flattened.values())


def _rejected_in(sources: Sequence[Keywords], item: ExportItem) -> tuple[str, ...]:
    """Return the keywords in files that people rejected and visterm did not write."""
    rejected = set(map(tag_key, item.rejected))
    tags = [(tag, source) for source in sources for tag in source.tags if tag_key(tag) in rejected]
    return tuple(
        sidecars.union(tag for tag, source in tags if tag_key(tag) not in {tag_key(mark.tag) for mark in source.marks})
    )


def _has_all(keywords: Keywords, marks: Sequence[Mark]) -> bool:
    keys, keys_with_path = set(map(tag_key, keywords.tags)), {tag_key(path[-1]) for path in keywords.paths}
    return keys.issuperset(tag_key(mark.tag) for mark in marks) and all(
        tag_key(mark.tag) in keys_with_path for mark in marks if mark.path and mark.fields is None
    )


class SidecarTarget:
    """Writes ``photo.jpg.xmp``, or ``photo.xmp`` if that exists; see `Sidecars`.

    A new file also has people's tags, because some programs read either the file or the image; if the image itself
    has all tags, no file is created, unless `always`. For `naming` see `Sidecars.target`, for `flat` see `_flattened`.
    """

    name = "xmp"

    def __init__(self, *, naming: str, always: bool, flat: bool | None) -> None:
        self._naming, self._always, self._flat = naming, always, flat
        self._sidecars = sidecars.Sidecars()

    def export(self, item: ExportItem, marks: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return the changes."""
        path = self._sidecars.target(item.path, self._naming)
        old = sidecars.content_of(path)
        marks = _flattened(marks, item.rejected, self._flat)
        others = [sidecars.read_sidecar(other) for other in self._sidecars.of(item.path) if other != path]
        elsewhere = [*others, sidecars.embedded_keywords(item.path)] if item.rejected else []
        staying = _rejected_in(elsewhere, item)
        if old is None:
            existing = self._sidecars.keywords(item.path)
            if not marks or (not self._always and _has_all(existing, marks)):
                return FileChange(str(item.path), str(path), staying=staying)
            shares_stem = self._sidecars.shares_stem(item.path)
            in_image = sidecars.embedded_keywords(item.path) if shares_stem else existing
            marks = _flattened(_with_image_keywords(marks, in_image, item.rejected), item.rejected, self._flat)

        new, change = revise(old or (writing.SIDECAR if old is None else writing.IN_EMPTY_FILE), item, marks, path)
        if old or change.added:
            self._write(path, old, new, dry_run=dry_run)
        return replace(
            change,
            visterm_tags=(*change.visterm_tags, *(mark.tag for other in others for mark in other.marks)),
            staying=tuple(sidecars.union([*change.staying, *staying])),
        )

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Remove the tags that visterm wrote, and delete files that have nothing else."""
        changes = []
        for path in dict.fromkeys([*self._sidecars.of(image), self._sidecars.target(image)]):
            if (old := sidecars.content_of(path)) is not None:
                new, change, *_ = without_tags(old, image, path)
                self._write(path, old, new, dry_run=dry_run)
                changes.append(change)
        changes = [change for change in changes if change.has_changes]
        tags = {
            kind: tuple(dict.fromkeys(tag for change in changes for tag in getattr(change, kind)))
            for kind in ("removed", "copied", "put_back")
        }
        return FileChange(str(image), changes[0].target if changes else "", **tags)

    def close(self) -> None:
        """Do nothing: no resources are open."""

    def _write(self, path: Path, old: bytes | None, new: bytes | None, *, dry_run: bool) -> None:
        if not dry_run and new != old:
            sidecars.replace_file(path, old, new)


class EmbeddedTarget:
    """Writes XMP and IPTC keywords inside images, without changing anything else in them.

    XMP gets the IPTC keywords too, or programs that prefer XMP would no longer see them. IPTC gets the tags if an
    image has IPTC keywords, or with `iptc` always. RAW files other than DNG are never changed: `raw_sidecars` writes
    their XMP files. `keep_originals` makes a backup of each image (``photo.jpg_original``).
    """

    name = "embed"

    def __init__(
        self, *, keep_originals: bool, iptc: bool, flat: bool | None, raw_sidecars: SidecarTarget | None
    ) -> None:
        self._exiftool, self._flat = ExifTool(), flat
        self._keep, self._iptc, self._sidecars = keep_originals, iptc, raw_sidecars

    def export(self, item: ExportItem, marks: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return the changes."""
        if _is_read_only(item.path):
            if self._sidecars is None:
                raise DataError(f"{item.path} is a RAW file, which visterm never changes. Write an XMP file instead.")
            return self._sidecars.export(item, marks, dry_run=dry_run)
        old = self._read(item.path)
        in_image = sidecars.embedded_keywords(item.path)
        xmp = read_keywords(old or writing.PACKET, str(item.path))
        marks = _flattened(marks, item.rejected, self._flat)
        if _has_all(in_image, marks) and not xmp.tags and not self._iptc:
            marks = []  # nothing to do: the image has all tags, and no XMP that would hide IPTC
        elif marks:
            marks = _flattened(_with_image_keywords(marks, in_image, item.rejected), item.rejected, self._flat)

        iptc = self._for_iptc(item, marks, xmp) if marks else []
        taken_from_iptc = self._rejected_in_iptc(item, xmp)
        new, change = revise(
            old or writing.PACKET, item, marks, item.path, iptc, taken_from_iptc if item.takes_off else ()
        )
        removed_from_iptc = [mark.tag for mark in xmp.marks if mark.tag in change.removed and mark.is_in_iptc]
        if item.takes_off:
            removed_from_iptc += taken_from_iptc
        if (new != (old or writing.PACKET) or removed_from_iptc) and not dry_run:
            self._write(item.path, new, iptc, removed_from_iptc, keep=self._keep)
        taken_keys = set(map(tag_key, change.taken_off)) - set(map(tag_key, sidecars.windows_keywords(item.path)))
        staying = [tag for tag in _rejected_in([in_image], item) if tag_key(tag) not in taken_keys]
        return replace(change, staying=tuple(sidecars.union([*change.staying, *staying])))

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Remove the tags that visterm wrote, and restore the original if nothing else was changed."""
        if self._sidecars is not None and _is_read_only(image):
            return self._sidecars.undo(image, dry_run=dry_run)
        old = self._read(image) if image.exists() else None
        if old is None:
            return FileChange(str(image), str(image))
        new, change, in_iptc, taken_from_iptc = without_tags(old, image, image)
        if change.has_changes and not dry_run:
            self._write(image, new, taken_from_iptc, in_iptc)
            self._restore(image, old, new, in_iptc, taken_from_iptc)
        return change

    def close(self) -> None:
        """Stop exiftool."""
        self._exiftool.close()

    def _read(self, image: Path) -> bytes | None:
        """Return the XMP of an image, in the form in which exiftool writes it back; None if the image has no XMP."""
        packet = self._exiftool.read_packet(image)
        if packet is not None and b"HasExtendedXMP" in packet:
            raise DataError(
                f"{image} has XMP in several pieces (extended XMP), which cannot be written back completely. Write an "
                "XMP file instead."
            )
        return writing.as_packet(packet, f"the XMP in {image}") if packet else None

    def _for_iptc(self, item: ExportItem, marks: Sequence[Mark], xmp: Keywords) -> list[str]:
        """Return the tags to add to IPTC keywords, if the image has IPTC or `iptc` is set.

        IPTC in another encoding is not changed, and tags that are too long for IPTC are only in XMP.
        """
        iptc = sidecars.read_iptc(item.path)
        if not iptc.is_writable or not (iptc.is_present or self._iptc):
            return []
        recorded = {tag_key(mark.tag) for mark in (*xmp.marks, *xmp.copies) if mark.is_in_iptc}
        removed_keys = {tag_key(mark.tag) for mark in xmp.marks} - set(map(tag_key, xmp.tags))
        excluded = {*map(tag_key, (*iptc.keywords, *item.rejected)), *recorded, *removed_keys}
        tags = sidecars.union([*xmp.tags, *(mark.tag for mark in _writable(marks)[0])])
        return [tag for tag in tags if tag_key(tag) not in excluded and len(tag.encode()) <= sidecars.MAX_IPTC_BYTES]

    def _rejected_in_iptc(self, item: ExportItem, xmp: Keywords) -> list[str]:
        """Return the IPTC keywords that people rejected and visterm did not write, if they can be removed."""
        iptc = sidecars.read_iptc(item.path) if item.rejected else sidecars.Iptc([])
        by_visterm = {tag_key(mark.tag) for mark in (*xmp.marks, *xmp.copies) if mark.is_in_iptc}
        rejected = set(map(tag_key, item.rejected)) - by_visterm
        return [tag for tag in iptc.keywords if iptc.is_writable and tag_key(tag) in rejected]

    def _write(
        self, image: Path, packet: bytes | None, added: Sequence[str], removed: Sequence[str], *, keep: bool = False
    ) -> None:
        """Write XMP into an image, and add tags to its IPTC keywords and remove others from them."""
        sidecars.check_stays_inside(image)
        arguments = [f"-IPTC:Keywords-={tag}" for tag in removed] + [f"-IPTC:Keywords+={tag}" for tag in added]
        if arguments:
            iptc = sidecars.read_iptc(image)
            remaining = set(iptc.keywords) - set(removed)
            if not (remaining or added) and iptc.only_keywords:
                arguments = ["-IPTC:all="]
            elif not iptc.is_utf8 and not all(map(str.isascii, added)):
                arguments.append("-IPTC:CodedCharacterSet=UTF8")
        self._exiftool.write_packet(image, packet, keep_original=keep, more=arguments)

    def _restore(
        self, image: Path, written: bytes, new: bytes | None, in_iptc: Sequence[str], taken_from_iptc: Sequence[str]
    ) -> None:
        """Replace an image by its backup, if repeating all changes on the backup gives the same bytes as the image.

        Otherwise both are kept: another program has changed the image, or the backup belongs to another program.
        """
        backup = image.with_name(f"{image.name}_original")
        if backup.is_symlink() or image.is_symlink() or not backup.is_file():
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copyfile(backup, Path(folder) / f"copy{image.suffix}"))
            # Ignore processing instructions and white space around XMP, which exiftool rewrites
            before, after = (_PACKET_INSTRUCTIONS.sub(b"", packet or b"").strip() for packet in (self._read(copy), new))
            self._write(copy, written, in_iptc, taken_from_iptc)
            self._write(copy, new, taken_from_iptc, in_iptc)
            if before == after and filecmp.cmp(copy, image, shallow=False):
                backup.replace(image)


def _is_read_only(image: Path) -> bool:
    """Return whether an image is a RAW file that visterm never changes: any format except DNG."""
    return is_raw(image) and suffix_of(image) != DNG
