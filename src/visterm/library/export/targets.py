"""Where the tags of photos are written: XMP files beside the images, the images themselves (by exiftool), or texts."""

from __future__ import annotations

import filecmp
import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.exiftool import ExifTool
from visterm.data.image_folders import DNG, suffix_of
from visterm.data.pillow import is_raw
from visterm.data.sidecars import (
    FOUND,
    MOST_IPTC,
    Sidecars,
    check_stays_inside,
    content_of,
    embedded_keywords,
    read_iptc,
    read_sidecar,
    replace_file,
    union,
)
from visterm.data.tag_formats.texts import MOST_TEXT, SUFFIX, TextNote, TextNotes, sidecar, text_tags
from visterm.data.text_files import read_text
from visterm.data.xmp.keywords import GIVEN, Keywords, Mark, read_keywords
from visterm.data.xmp.writing import PACKET, SIDECAR, add_tags, as_packet, check_writable, remove_tags
from visterm.library.export.items import ExportItem, FileChange

_PARTING = frozenset(";,\n\r")  # What no line of a text can hold
FLAT = "dc"  # The one of `OWN_FIELDS` that has no paths

_AROUND = re.compile(rb"<\?xpacket.*?\?>", re.DOTALL)


def revise(
    content: bytes, item: ExportItem, wanted: Sequence[Mark], target: Path, iptc: Sequence[str] = ()
) -> tuple[bytes | None, FileChange]:
    """Put tags into an XMP text, that of the file `target`, and take back rejected ones that visterm wrote.

    `iptc` are tags that are put into the image's IPTC keywords as well, which is noted beside them. Returns the new
    text, and what is changed. Raises DataError if the text cannot be understood.
    """
    where = str(target)
    writable, left_out = _writable(wanted)
    existing = read_keywords(content, where)
    keys, marked = set(map(tag_key, existing.tags)), {tag_key(mark.tag) for mark in (*existing.marks, *existing.copies)}
    rejected = set(map(tag_key, item.rejected))
    removed = tuple(mark.tag for mark in existing.marks if tag_key(mark.tag) in rejected & keys)
    added = tuple(mark for mark in writable if tag_key(mark.tag) not in keys | marked)
    left_out += [mark.tag for mark in writable if tag_key(mark.tag) in marked - keys]

    more = add_tags(content, writable, where, iptc=iptc)
    revised = remove_tags(more, removed, where) if removed else more
    copies = read_keywords(revised, where).copies if revised else ()
    copied = tuple(mark.tag for mark in copies if mark not in existing.copies)
    gone = set(map(tag_key, removed))
    ours = tuple(mark.tag for mark in (*existing.marks, *added) if tag_key(mark.tag) not in gone)
    return revised, FileChange(str(item.path), where, added, removed, tuple(left_out), ours, copied)


def taken_back(content: bytes, image: Path, target: Path) -> tuple[bytes | None, FileChange, list[str]]:
    """Take all tags that visterm wrote out of an XMP text, that of the file `target`.

    Returns the new text, None where nothing else was in it; what is changed; and the tags that are in IPTC, too.
    """
    existing = read_keywords(content, str(target))
    tags, copied = (tuple(mark.tag for mark in marks) for marks in (existing.marks, existing.copies))
    in_iptc = [mark.tag for mark in (*existing.marks, *existing.copies) if mark.is_in_iptc]
    remaining = remove_tags(content, tags, str(target)) if tags or copied else content
    return remaining, FileChange(str(image), str(target), removed=tags, copied=copied), in_iptc


def _writable(wanted: Sequence[Mark]) -> tuple[list[Mark], list[str]]:
    """Part the tags that XML can hold from those that it cannot."""
    good, bad = [], []
    for mark in wanted:
        try:
            check_writable(mark)
        except DataError:
            bad.append(mark.tag)
        else:
            good.append(mark)
    return good, bad


def _with_own(wanted: Sequence[Mark], embedded: Keywords, rejected: Sequence[str]) -> list[Mark]:
    """Put an image's own keywords before the tags that begin a list: programs read one of several lists only."""
    paths = {tag_key(mark.tag): mark.path for mark in wanted} | {
        tag_key(path[-1]): path for path in embedded.paths[::-1]
    }
    keys, not_there = set(map(tag_key, embedded.of_people)), set(map(tag_key, rejected))
    given = [Mark(tag, GIVEN, path=paths.get(tag_key(tag), ())) for tag in embedded.of_people]
    return [
        *(mark for mark in given if tag_key(mark.tag) not in not_there),
        *[mark for mark in wanted if tag_key(mark.tag) not in keys],
    ]


def _flattened(wanted: Sequence[Mark], rejected: Sequence[str], flat: bool | None) -> list[Mark]:
    """Leave tags that lie above others out of the fields of paths, where the paths of these name them.

    By themselves they are in dc:subject, and so in IPTC: all (`flat`), those that are among the tags (None), or none.
    """
    above: dict[str, Mark] = {}
    for mark in wanted:
        for n, tag in enumerate(mark.path[:-1], 1):
            if tag_key(tag) != tag_key(mark.tag):
                above.setdefault(tag_key(tag), mark._replace(tag=tag, path=mark.path[:n] if n > 1 else ()))

    themselves = {tag_key(mark.tag): mark for mark in wanted}
    repeated = {False: set(), None: above.keys() & themselves.keys(), True: above.keys()}[flat]
    repeated = repeated - set(map(tag_key, rejected))
    flattened: dict[str, Mark] = {}
    for mark in wanted:
        for key in map(tag_key, (*mark.path, mark.tag)):
            if key in repeated:
                flattened.setdefault(key, themselves.get(key, above[key])._replace(fields=FLAT))
            elif key == tag_key(mark.tag) and key not in above:
                flattened[key] = mark
    return list(flattened.values())


def _has_all(keywords: Keywords, wanted: Sequence[Mark]) -> bool:
    keys, placed = set(map(tag_key, keywords.tags)), {tag_key(path[-1]) for path in keywords.paths}
    return keys.issuperset(tag_key(mark.tag) for mark in wanted) and all(
        tag_key(mark.tag) in placed for mark in wanted if mark.path and mark.fields is None
    )


class SidecarTarget:
    """Writes ``photo.jpg.xmp``, or ``photo.xmp`` where that is there; see `Sidecars`.

    A new file has the tags of people too, as some programs read either the file or the image; but where the image has
    all tags in itself, no file is made, unless `always`. `naming` is that of `Sidecars.target`, `flat` that of
    `_flattened`. With `follow_links`, links are written through that lead out of a photo's folder.
    """

    name = "xmp"

    def __init__(
        self, *, naming: str = FOUND, always: bool = False, flat: bool | None = None, follow_links: bool = False
    ) -> None:
        self._naming, self._always, self._flat = naming, always, flat
        self._follow_links = follow_links
        self._sidecars = Sidecars()

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return what is changed."""
        path = self._sidecars.target(item.path, self._naming)
        old = content_of(path)
        wanted = _flattened(wanted, item.rejected, self._flat)
        if old is None:
            existing = self._sidecars.keywords(item.path)
            if not wanted or (not self._always and _has_all(existing, wanted)):
                return FileChange(str(item.path), str(path))
            shares_stem = self._sidecars.shares_stem(item.path)
            in_image = embedded_keywords(item.path) if shares_stem else existing
            wanted = _flattened(_with_own(wanted, in_image, item.rejected), item.rejected, self._flat)
        new, change = revise(old or SIDECAR, item, wanted, path)
        if old is not None or change.added:
            self._write(path, old, new, dry_run=dry_run)
        others = (read_sidecar(other) for other in self._sidecars.of(item.path) if other != path)
        return replace(change, found=(*change.found, *(mark.tag for other in others for mark in other.marks)))

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Take back what visterm wrote; a file that holds nothing else is removed."""
        changes = []
        for path in dict.fromkeys([*self._sidecars.of(image), self._sidecars.target(image)]):
            if (old := content_of(path)) is not None:
                new, change, _ = taken_back(old, image, path)
                self._write(path, old, new, dry_run=dry_run)
                changes.append(change)
        changes = [change for change in changes if change.is_one]
        removed, copied = (
            tuple(dict.fromkeys(tag for change in changes for tag in tags(change)))
            for tags in (attrgetter("removed"), attrgetter("copied"))
        )
        return FileChange(str(image), changes[0].target if changes else "", removed=removed, copied=copied)

    def close(self) -> None:
        """Nothing is open."""

    def _write(self, path: Path, old: bytes | None, new: bytes | None, *, dry_run: bool) -> None:
        if not dry_run and new != old:
            replace_file(path, old, new, follow_links=self._follow_links)


class EmbeddedTarget:
    """Writes the XMP inside of images, and their IPTC keywords; everything else in them stays, the pixels too.

    XMP gets the keywords of IPTC, which programs that prefer XMP would no longer see. Keywords go into IPTC where an
    image has any; with `iptc`, into each that can have it. RAW files, but for DNG, are not written: with `beside` they
    get what that writes. With `keep_originals`, each image stays as it was beside it (``photo.jpg_original``). With
    `follow_links`, images are written that are links out of their folder.
    """

    name = "embed"

    def __init__(
        self,
        *,
        keep_originals: bool = True,
        iptc: bool = False,
        flat: bool | None = None,
        beside: SidecarTarget | None = None,
        follow_links: bool = False,
    ) -> None:
        self._follow_links, self._flat = follow_links, flat
        self._exiftool = ExifTool()
        self._keep, self._iptc, self._beside = keep_originals, iptc, beside

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return what is changed."""
        if _is_closed(item.path):
            if self._beside is None:
                raise DataError(f"{item.path} is a RAW file, and none is written into. Write an XMP file beside it.")
            return self._beside.export(item, wanted, dry_run=dry_run)
        old = self._read(item.path)
        in_image = embedded_keywords(item.path)
        inside = read_keywords(old or PACKET, str(item.path))
        wanted = _flattened(wanted, item.rejected, self._flat)
        if _has_all(in_image, wanted) and not inside.tags and not self._iptc:
            wanted = []  # it has them all, and no program that prefers XMP finds less there
        elif wanted:
            wanted = _flattened(_with_own(wanted, in_image, item.rejected), item.rejected, self._flat)

        iptc = self._for_iptc(item, wanted, inside) if wanted else []
        new, change = revise(old or PACKET, item, wanted, item.path, iptc)
        gone = [mark.tag for mark in inside.marks if mark.tag in change.removed and mark.is_in_iptc]
        if (new != (old or PACKET) or gone) and not dry_run:
            self._write(item.path, new, iptc, gone, keep=self._keep)
        return change

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Take back what visterm wrote, and put the original back in its place where nothing else has changed."""
        if self._beside is not None and _is_closed(image):
            return self._beside.undo(image, dry_run=dry_run)
        old = self._read(image) if image.exists() else None
        if old is None:
            return FileChange(str(image), str(image))
        new, change, in_iptc = taken_back(old, image, image)
        if change.is_one and not dry_run:
            self._write(image, new, (), in_iptc)
            self._restore(image, old, new, in_iptc)
        return change

    def close(self) -> None:
        """End exiftool."""
        self._exiftool.close()

    def _read(self, image: Path) -> bytes | None:
        """Return the XMP of an image as exiftool writes it back; None where it has none."""
        packet = self._exiftool.read_packet(image)
        if packet is not None and b"HasExtendedXMP" in packet:
            raise DataError(
                f"{image} has XMP in several pieces (extended XMP), which cannot be written back whole. Write an XMP "
                "file beside it."
            )
        return as_packet(packet, f"the XMP in {image}") if packet else None

    def _for_iptc(self, item: ExportItem, wanted: Sequence[Mark], inside: Keywords) -> list[str]:
        """Return the tags that IPTC keywords lack: where an image has IPTC, or all are to have it.

        IPTC that is in another encoding stays as it is, and tags that are too long for it are in XMP only.
        """
        iptc = read_iptc(item.path)
        if not iptc.is_writable or not (iptc.is_there or self._iptc):
            return []
        noted = {tag_key(mark.tag) for mark in (*inside.marks, *inside.copies) if mark.is_in_iptc}
        taken_out = {tag_key(mark.tag) for mark in inside.marks} - set(map(tag_key, inside.tags))
        excluded = {*map(tag_key, (*iptc.keywords, *item.rejected)), *noted, *taken_out}
        tags = union([*inside.tags, *(mark.tag for mark in _writable(wanted)[0])])
        return [tag for tag in tags if tag_key(tag) not in excluded and len(tag.encode()) <= MOST_IPTC]

    def _write(
        self, image: Path, packet: bytes | None, more: Sequence[str], less: Sequence[str], *, keep: bool = False
    ) -> None:
        """Write XMP into an image, and put tags into its IPTC keywords, and others out of them."""
        if not self._follow_links:
            check_stays_inside(image)
        arguments = [f"-IPTC:Keywords-={tag}" for tag in less] + [f"-IPTC:Keywords+={tag}" for tag in more]
        if arguments:
            iptc = read_iptc(image)
            remaining = set(iptc.keywords) - set(less)
            if not (remaining or more) and iptc.only_keywords:
                arguments = ["-IPTC:all="]
            elif not iptc.is_utf8 and not all(map(str.isascii, more)):
                arguments.append("-IPTC:CodedCharacterSet=UTF8")
        self._exiftool.write_packet(image, packet, keep_original=keep, more=arguments)

    def _restore(self, image: Path, written: bytes, new: bytes | None, in_iptc: Sequence[str]) -> None:
        """Replace an image by its backup, if doing to the backup what was done to the image gives the same bytes.

        Otherwise another program has changed the image since, or the backup is somebody else's: both stay.
        """
        backup = image.with_name(f"{image.name}_original")
        if backup.is_symlink() or image.is_symlink() or not backup.is_file():
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copyfile(backup, Path(folder) / f"copy{image.suffix}"))
            # Without the instructions and white space around XMP, which exiftool writes anew
            before, after = (_AROUND.sub(b"", packet or b"").strip() for packet in (self._read(copy), new))
            self._write(copy, written, in_iptc, ())
            self._write(copy, new, (), in_iptc)
            if before == after and filecmp.cmp(copy, image, shallow=False):
                backup.replace(image)


def _is_closed(image: Path) -> bool:
    """Return whether an image is a RAW file that nothing is written into: all but DNG."""
    return is_raw(image) and suffix_of(image) != DNG


class TextTarget:
    """Writes ``photo.txt``, or ``photo.jpg.txt`` where two images share the name; lines that are there stay.

    With `follow_links`, links are written through that lead out of a photo's folder.
    """

    name = "txt"

    def __init__(self, *, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._sidecars = Sidecars()
        self._notes: dict[Path, TextNotes] = {}
        self._moved: dict[Path, TextNote] = {}  # By the text as it is called now

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return what is changed."""
        path = self._path(item.path)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old)
        existing = set(map(tag_key, text_tags(read_text(path, limit=MOST_TEXT)))) if old is not None else set()
        ours = note.tags if note else []
        noted = set(map(tag_key, ours))
        unwritable = {mark.tag for mark in wanted if _PARTING & set(mark.tag) or mark.tag.startswith("-")}
        rejected = set(map(tag_key, item.rejected)) & noted & existing
        added = tuple(
            mark for mark in wanted if tag_key(mark.tag) not in existing | noted and mark.tag not in unwritable
        )
        left_out = tuple(mark.tag for mark in wanted if mark.tag in unwritable or tag_key(mark.tag) in noted - existing)
        removed = tuple(tag for tag in ours if tag_key(tag) in rejected)
        if (added or removed) and not dry_run:
            new = _without(old or b"", rejected)
            if added:
                lines = "".join(f"{mark.tag}\n" for mark in added)
                new += (b"\n" if new and not new.endswith(b"\n") else b"") + lines.encode()
            if not self._follow_links:
                check_stays_inside(path)  # before it is noted
            notes.put(_noted(path, note, old, new, added, rejected))
            replace_file(path, old, new, follow_links=self._follow_links)
            notes.is_done(path)

        ours = [*(tag for tag in ours if tag not in removed), *(mark.tag for mark in added)]
        return FileChange(str(item.path), str(path), added, removed, left_out, tuple(ours))

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Take back what visterm wrote; a text that it made is removed, if nobody has added to it."""
        path = self._path(image)
        notes, old = self._notes_of(path), content_of(path)
        note = notes.of(path, old) or self._moved.get(path)
        removed: list[str] = []
        if note is not None and old is not None:
            removed = note.tags
            if note.length is not None and hashlib.sha256(old).hexdigest() == note.sha256:
                new = None if note.made else old[: note.length]
            else:
                remaining = _without(old, set(map(tag_key, removed)))
                new = None if note.made and not remaining.strip() else remaining
            if not dry_run:
                replace_file(path, old, new, follow_links=self._follow_links)
        if not dry_run:
            notes.forget(path)
        return FileChange(str(image), str(path), removed=tuple(removed))

    def follow(self, image: Path, formerly: Sequence[Path]) -> None:
        """Find the note of a text that moved along with its image: it is still in a folder where both lay."""
        for before in formerly:
            for text in (before.with_name(f"{before.name}{SUFFIX}"), before.with_suffix(SUFFIX)):
                note = None if text.exists() else self._notes_of(text).of(text, None)
                if note is not None:
                    self._moved[self._path(image)] = note

    def close(self) -> None:
        """Remove the notes of folders where all was taken back."""
        for notes in self._notes.values():
            notes.clean()

    def _path(self, image: Path) -> Path:
        return sidecar(image) or (
            image.with_name(f"{image.name}{SUFFIX}") if self._sidecars.shares_stem(image) else image.with_suffix(SUFFIX)
        )

    def _notes_of(self, text: Path) -> TextNotes:
        if text.parent not in self._notes:
            self._notes[text.parent] = TextNotes(text.parent, follow_links=self._follow_links)
        return self._notes[text.parent]


def _without(content: bytes, keys: set[str]) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if tag_key(line.decode("utf-8-sig")) not in keys)


def _noted(
    path: Path, note: TextNote | None, old: bytes | None, new: bytes, added: Sequence[Mark], rejected: set[str]
) -> TextNote:
    given = [mark.tag for mark in added if mark.source == GIVEN]
    predicted = [mark.tag for mark in added if mark.source != GIVEN]
    made, length = old is None, len(old or b"")
    if note is not None:
        given = [*(tag for tag in note.given if tag_key(tag) not in rejected), *given]
        predicted = [*(tag for tag in note.predicted if tag_key(tag) not in rejected), *predicted]
        made = note.made
        untouched = old is not None and hashlib.sha256(old).hexdigest() == note.sha256
        length = note.length if untouched and note.length is not None else -1
    return TextNote(path.name, given, predicted, made, None if length < 0 else length, hashlib.sha256(new).hexdigest())
