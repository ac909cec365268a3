"""What other programs read: for each, where tags go, under which file name, and which setting it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from visterm.core.errors import UserError
from visterm.data.file_kinds import DNG, suffix_of
from visterm.data.pillow import is_raw
from visterm.data.sidecars import FOUND, FULL, STEM, STEM_FOUND
from visterm.data.xmp.keywords import Mark
from visterm.library.export.items import Change, ExportItem
from visterm.library.export.xmp_targets import EmbeddedTarget, SidecarTarget


@dataclass(frozen=True, slots=True)
class Profile:
    """How tags are written for one program; the fields of keywords are always the same, see `OWN_FIELDS`."""

    name: str  # As it is typed
    program: str
    to: str  # "xmp" or "embed"
    naming: str = FOUND  # Of XMP files, see `Sidecars.target`
    raw: bool = False  # Whether RAW files get an XMP file, where all others are written into
    iptc: bool = False  # Whether every image gets IPTC keywords
    flat: bool = False
    """Whether dc:subject and IPTC have the tags above a tag, too, as the program itself writes them, or needs them."""
    then: str = ""  # What people do in that program afterwards


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "lightroom", "Lightroom", "embed", STEM, raw=True, flat=True,
            then="In Lightroom Classic, select the photos and choose Metadata > Read Metadata from Files.",
        ),
        Profile(
            "digikam", "digiKam", "xmp", STEM_FOUND,
            then="In digiKam, switch on 'Read from sidecar files' (Settings > Configure digiKam > Metadata > "
            "Sidecars), then read the photos' metadata again.",
        ),
        Profile(
            "darktable", "darktable", "xmp", FULL, flat=True,
            then="darktable reads the files as it imports photos. Photos that it has: switch on 'look for updated XMP "
            "files on startup'; first let it write its own XMP files, as it takes a photo's edits from them, too.",
        ),
        Profile(
            "immich", "Immich", "xmp",
            then="In Immich, run the jobs 'Sidecar metadata' (Discover and Sync) and then 'Extract metadata'.",
        ),
        Profile(
            "photoprism", "PhotoPrism", "embed", iptc=True, flat=True,
            then="In PhotoPrism, index the folder again: photoprism index, or Library > Index.",
        ),
    )
}  # fmt: skip


def target_for(
    profile: Profile, *, keep_originals: bool = True, follow_links: bool = False
) -> SidecarTarget | EmbeddedTarget | RawApartTarget:
    """Return the target of a profile; parameters and errors are those of `make_target`."""
    if not keep_originals and profile.to != EmbeddedTarget.name:
        raise UserError(f"--overwrite is for tags inside of photos, and --to {profile.name} leaves photos as they are.")
    beside = SidecarTarget(naming=profile.naming, always=True, flat=profile.flat, follow_links=follow_links)
    if profile.to == SidecarTarget.name:
        return beside
    inside = EmbeddedTarget(
        keep_originals=keep_originals, iptc=profile.iptc, flat=profile.flat, follow_links=follow_links
    )
    return RawApartTarget(inside, beside) if profile.raw else inside


class RawApartTarget:
    """Writes into images, but for RAW files, which get an XMP file each; DNG is written into."""

    name = EmbeddedTarget.name

    def __init__(self, inside: EmbeddedTarget, beside: SidecarTarget) -> None:
        self._inside, self._beside = inside, beside

    def export(self, item: ExportItem, wanted: Sequence[Mark], *, dry_run: bool) -> Change | None:
        """Write the tags of an image; None where nothing is changed and nothing of visterm is found."""
        return self._of(item.path).export(item, wanted, dry_run=dry_run)

    def undo(self, image: Path, *, dry_run: bool) -> Change | None:
        """Take back what visterm wrote."""
        return self._of(image).undo(image, dry_run=dry_run)

    def close(self) -> None:
        """End exiftool."""
        self._inside.close()

    def _of(self, image: Path) -> SidecarTarget | EmbeddedTarget:
        return self._beside if is_raw(image) and suffix_of(image) != DNG else self._inside
