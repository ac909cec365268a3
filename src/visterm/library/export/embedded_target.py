"""Tags written into the images themselves, by exiftool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.embedded import embedded_keywords
from visterm.data.exiftool import ExifTool
from visterm.data.sidecars import check_stays_inside
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.data.xmp.writing import PACKET
from visterm.library.export.changes import Change, Revised, revise, taken_back
from visterm.library.export.items import ExportItem

EXTENDED = b"HasExtendedXMP"


class EmbeddedTarget:
    """Writes the XMP inside of images; everything else in them stays, the pixels too.

    Parameters
    ----------
    keep_originals : bool
        Leave each image as it was beside it (``photo.jpg_original``).
    follow_links : bool
        Write into images that are links out of their folder.
    """

    name = "embed"

    def __init__(self, *, keep_originals: bool = True, follow_links: bool = False) -> None:
        self._follow_links = follow_links
        self._exiftool = ExifTool()
        self._keep = keep_originals

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""
        old = self._read(item.path)
        elsewhere = {tag_key(tag) for tag in embedded_keywords(item.path).tags}  # in IPTC, say: a person's, and there
        new = [mark for mark in wanted if mark.source != GIVEN or tag_key(mark.tag) not in elsewhere]
        return self._put(item.path, old, revise(old or PACKET, new, item.rejected, str(item.path)), dry_run=dry_run)

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote."""
        old = self._read(image)
        return None if old is None else self._put(image, old, taken_back(old, str(image)), dry_run=dry_run)

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

    def _put(self, image: Path, old: bytes | None, new: Revised, *, dry_run: bool) -> Change | None:
        if (new.added or new.removed) and not dry_run:
            if not self._follow_links:
                check_stays_inside(image)
            self._exiftool.write_packet(image, new.content, keep_original=self._keep)
        changed = Change(str(image), str(image), new.added, new.removed, new.left_out, new.found)
        return changed if changed.is_one or changed.found else None
