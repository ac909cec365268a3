"""Duplicates in a catalogue: groups of pictures that look the same, and the one of each to keep; nothing is deleted."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from visterm.core.errors import UserError
from visterm.core.object_stores import check_named
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.remote import is_remote
from visterm.core.types import Skipped
from visterm.data.images import decode_images
from visterm.data.perceptual_hash import FLAT, SIDE, near_pairs, perceptual_hash
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageRecord

DISTANCE = 6
"""Bits of 64 that may differ: photos at half the size and JPEG quality 60 differ in 0 to 6, others hardly ever in 8."""

MOST = 12

SAME_SHAPE = math.log(1.05)
"""How far the logarithms of width to height may be apart: copies are scaled, whole pixels aside, never stretched."""

CHUNK = 256
"""Pictures hashed between two commits: what a kill loses at most."""

HASHED_SIDE = 8 * SIDE
"""Longest side at which pictures are decoded to be hashed: quick for JPEG, and the same hash."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A picture that looks like the one to keep.

    Attributes
    ----------
    image : ImageRecord
    distance : int
        Bits in which its hash differs.
    same_bytes : bool
        Whether the files are the same, byte for byte.
    """

    image: ImageRecord
    distance: int
    same_bytes: bool


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Pictures that look the same.

    Attributes
    ----------
    keeper : ImageRecord
        That with the most pixels; then the most tags, the most bytes, and the one that came first.
    copies : list of Copy
        The others, nearest first.
    """

    keeper: ImageRecord
    copies: list[Copy]

    def as_dict(self) -> dict[str, Any]:
        """Return the group as it stands in JSON."""
        copies = [
            {**_as_dict(copy.image), "distance": copy.distance, "same_bytes": copy.same_bytes} for copy in self.copies
        ]
        return {"keep": _as_dict(self.keeper), "copies": copies}


def find_duplicates(
    stored: StoredCatalogue,
    distance: int = DISTANCE,
    *,
    look: bool = True,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> tuple[list[DuplicateGroup], list[Skipped]]:
    """Group the pictures of a catalogue that look the same.

    Each copy is near the one to keep itself, not only near another copy, so that a series of shots does not chain into
    one group. Hashes are kept in the catalogue: only pictures without one are read, and after a kill it goes on.

    Parameters
    ----------
    distance : int
        Bits of 64 in which hashes may differ, 0 to 12. 0 finds copies that were scaled or recompressed gently; 10 also
        shots of a series and some pictures that only look alike.
    look : bool
        Whether to read the pictures that have no hash yet; of those that were not, files of the same bytes are found.

    Returns
    -------
    groups : list of DuplicateGroup
        Largest first.
    skipped : list of Skipped
        Pictures that could not be read (any more); files of the same bytes are found even so.
    """
    if not 0 <= distance <= MOST:
        raise UserError(f"distance is {distance}; expected 0 to {MOST} bits.")
    skipped = _hash_what_has_none(stored, n_jobs, progress) if look else []
    images = _best_first(stored)
    contents = _Contents(images, distance)
    groups: list[DuplicateGroup] = []
    taken: set[int] = set()
    for place, image in enumerate(images):
        if place in taken:
            continue
        near = {other: bits for other, bits in contents.near(place) if other not in taken and other != place}
        if near:
            taken.update(near, [place])
            order = sorted(near, key=lambda other: (near[other], other))
            copies = [Copy(images[other], near[other], images[other].sha256 == image.sha256) for other in order]
            groups.append(DuplicateGroup(image, copies))
    return sorted(groups, key=lambda group: (-len(group.copies), group.keeper.id)), skipped


class _Contents:
    """Which pictures are near which: compared once for each content, however many files hold it."""

    def __init__(self, images: list[ImageRecord], distance: int) -> None:
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, image in enumerate(images):
            places[image.sha256].append(place)
        self._places = list(places.values())
        self._content = {place: content for content, together in enumerate(self._places) for place in together}
        hashes = np.array([images[together[0]].phash or FLAT for together in self._places], np.int64)
        self._bits: defaultdict[int, dict[int, int]] = defaultdict(dict)
        shapes = np.array([images[together[0]].width / images[together[0]].height for together in self._places])
        for (a, b), bits in near_pairs(hashes, distance):
            if abs(math.log(shapes[a] / shapes[b])) > SAME_SHAPE:
                continue
            self._bits[a][b] = self._bits[b][a] = bits

    def near(self, place: int) -> Iterator[tuple[int, int]]:
        """Yield the places that are near one, itself among them, and in how many bits they differ."""
        content = self._content[place]
        for other, bits in {content: 0, **self._bits[content]}.items():
            for at in self._places[other]:
                yield at, bits


def _hash_what_has_none(stored: StoredCatalogue, n_jobs: int | None, progress: Progress) -> list[Skipped]:
    known = {image_id for image_id, _ in stored.images.phashes()}
    missing, skipped = [], []
    for image in stored.images.all():
        if image.path is None or image.id in known:
            continue
        try:
            if is_remote(image.path):
                check_named(image.path)
        except UserError as error:  # a catalogue may name any store
            skipped.append(Skipped(image.name, str(error)))
        else:
            missing.append(image)
    with reported(progress, "look at pictures", len(missing)):
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            hashes = []
            paths = [image.path or "" for image in chunk]
            for image, decoded in zip(chunk, decode_images(paths, max_side=HASHED_SIDE, n_jobs=n_jobs), strict=True):
                if isinstance(decoded, Skipped):
                    skipped.append(decoded)
                else:
                    hashes.append((image.id, perceptual_hash(decoded.pixels)))
                progress.advance()
            stored.images.set_phashes(hashes)
    return skipped


def _best_first(stored: StoredCatalogue) -> list[ImageRecord]:
    tags = stored.tags.held()
    return sorted(
        stored.images.all(),
        key=lambda image: (-image.width * image.height, -len(tags.get(image.id, ())), -image.n_bytes, image.id),
    )


def _as_dict(image: ImageRecord) -> dict[str, Any]:
    return {
        "id": image.id,
        "image": image.name,
        "path": image.path,
        "width": image.width,
        "height": image.height,
        "bytes": image.n_bytes,
    }
