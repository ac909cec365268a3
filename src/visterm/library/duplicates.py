"""Duplicates in a catalogue: groups of pictures that look the same, and the one of each to keep; nothing is deleted."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

from visterm.core.checks import check_choice
from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.remote import check_named, is_remote, start_of_paths
from visterm.core.types import Skipped
from visterm.data.image_folders import is_video
from visterm.data.images import decode_images
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageRecord

DISTANCE = 6  # Bits of 64 that may differ: photos at half the size and quality 60 do in 0 to 6, others hardly ever in 8

MOST = 12

SAME_SHAPE = math.log(1.05)  # How far log(width / height) may be apart: copies are scaled, never stretched

RULES = ("largest", "oldest", "most tags", "folder")  # Which picture of a group to keep, see `keeper_by`

NearPlaces: TypeAlias = Callable[[int], Iterator[tuple[int, int]]]
"""Yields the places of pictures that are near one, itself among them, and in how many bits they differ."""

# The picture is reduced to 32 by 32 grey levels; the 8 by 8 lowest frequencies are kept (Zauner 2010, phash.org).
SIDE, FREQUENCIES = 32, 8

FLAT = 0  # The hash of a picture without contrast: it says nothing, so it is like no other

# Standard deviation, in grey levels, below which a picture is flat: its frequencies are noise of the compression
LEAST_CONTRAST = 2.0

# How far the frequencies are from their median, by the median, below which a picture has no structure; and that as a
# share of the contrast (standard deviation). In clear skies, fog, vignettes and drawn gradients a few frequencies hold
# all contrast, so the bits of the others are noise, or the same in all of them: shares of 0 to 0.3, deviations of 0 to
# 2 by the noise of cameras and JPEG. Of the 4,999 photos of Corel 5k 19 have a smaller share (the median is 1.2), and
# none a smaller deviation (the least is 4.6).
LEAST_DEVIATION, LEAST_SHARE = 3.0, 0.3

CHUNK = 256  # Pictures hashed between two commits: what a kill loses at most
HASHED_SIDE = 8 * SIDE  # Longest side at which pictures are decoded to be hashed: quick for JPEG, and the same hash
# What paths of copies say: ``Backup/1.jpg``, ``1 copy.jpg``, ``1 - Kopie.jpg``, ``1 (2).jpg``
_COPY = re.compile(
    r"(?<![a-z])(backups?|copy|copies?|kopien?|copia|duplicates?|sicherung(en)?)(?![a-z])|\(\d+\)", re.IGNORECASE
)

_SCREENSHOT = re.compile(r"screen[ _-]?(shot|cap)|bildschirmfoto|capture d.[eé]cran|captura", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Copy:
    """A picture that looks like the one to keep."""

    image: ImageRecord
    distance: int  # Bits in which its hash differs
    same_bytes: bool  # Whether the files are the same, byte for byte


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Pictures that look the same."""

    keeper: ImageRecord
    """That with the most pixels; then the most tags and the most bytes. Of equal ones that whose path does not say
    backup or copy, the shortest path, the oldest file."""
    copies: list[Copy]  # The others, nearest first

    def as_dict(self) -> dict[str, object]:
        """Return the group as it stands in JSON."""
        copies = [
            {**_as_dict(copy.image), "distance": copy.distance, "same_bytes": copy.same_bytes} for copy in self.copies
        ]
        return {"keep": _as_dict(self.keeper), "copies": copies}


@dataclass(frozen=True, slots=True)
class AlikeGroup:
    """Pictures that look alike and are no copies, so that none of them can be left out for another."""

    kind: str  # "series" or "screenshots": shots taken one after another, or pictures of a screen
    images: list[ImageRecord]  # By date and name

    def as_dict(self) -> dict[str, object]:
        """Return the group as it stands in JSON."""
        return {"kind": self.kind, "images": [_as_dict(image) for image in self.images]}


class Duplicates(NamedTuple):
    """Copies, pictures that only look alike, and pictures that could not be read."""

    groups: list[DuplicateGroup]  # Largest first
    alike: list[AlikeGroup]  # Largest first; without the copies in `groups`, but with the pictures to keep
    skipped: list[Skipped]  # Pictures that could not be read (any more); files of the same bytes are found even so

    def kept_by(self, rule: str, tags: Mapping[int, Sequence[str]], folder: str = "") -> list[DuplicateGroup]:
        """Return the groups with the picture to keep chosen by a rule, without those where it chooses none.

        See `keeper_by`. Distances stay those from the picture that was to be kept before.
        """
        groups = []
        for group in self.groups:
            kept = keeper_by(rule, [group.keeper, *(copy.image for copy in group.copies)], tags, folder)
            if kept is not None:
                first = Copy(group.keeper, 0, any(c.image is kept and c.same_bytes for c in group.copies))
                others = [copy for copy in group.copies if copy.image is not kept]
                groups.append(DuplicateGroup(kept, [first, *others] if kept is not group.keeper else others))
        return groups


def find_duplicates(
    stored: StoredCatalogue,
    distance: int = DISTANCE,
    *,
    look: bool = True,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
    stop: Callable[[], bool] = lambda: False,
) -> Duplicates:
    """Group the pictures of a catalogue that look the same: whose hashes differ in at most `distance` bits.

    Of 64 bits 0 to 12 may differ: 0 finds copies that were scaled or recompressed gently; 10 also some pictures that
    only look alike. Each copy is near the one to keep itself, not only near another copy. Shots of a series and
    screenshots, which look alike and differ in what matters, are no copies of each other unless the files are the same.

    Hashes are kept in the catalogue: only pictures without one are read, and after a kill it goes on. Without `look`
    none is read; of those without a hash, files of the same bytes are found. `stop` is called between two chunks of
    pictures that are read; if it returns True, no more are.
    """
    if not 0 <= distance <= MOST:
        raise UserError(setting="distance", value=distance, expected=f"0 to {MOST} bits")
    skipped = _hash_what_has_none(stored, n_jobs, progress, stop) if look else []
    tags = stored.tags.held()

    def rank(image: ImageRecord) -> tuple[object, ...]:
        size = (-image.width * image.height, -len(tags.get(image.id, ())), -image.n_bytes)
        return (*size, bool(_COPY.search(image.name)), len(image.path or image.name), image.mtime_ns, image.id)

    images = sorted(stored.images.all(), key=rank)
    near_places = _near_places(images, distance)

    groups: list[DuplicateGroup] = []
    taken: set[int] = set()
    for position, image in enumerate(images):
        if position in taken:
            continue
        near = {
            other: bits
            for other, bits in near_places(position)
            if other not in taken and other != position and kind_of_alike(image, images[other]) is None
        }
        if near:
            taken.update(near, [position])
            copies = [
                Copy(images[other], near[other], images[other].sha256 == image.sha256)
                for other in sorted(near, key=lambda other: (near[other], other))
            ]
            groups.append(DuplicateGroup(image, copies))

    copies_of_all = {copy.image.id for group in groups for copy in group.copies}
    remaining = {position for position, image in enumerate(images) if image.id not in copies_of_all}
    alike = _alike(images, near_places, remaining)
    return Duplicates(sorted(groups, key=lambda group: (-len(group.copies), group.keeper.id)), alike, skipped)


def keeper_by(
    rule: str, images: Sequence[ImageRecord], tags: Mapping[int, Sequence[str]], folder: str = ""
) -> ImageRecord | None:
    """Choose the picture to keep of some that look the same, by one of `RULES`; of equal ones the first.

    `tags` are the tags of pictures by id. Of the rule "folder" it is the first in a folder, given by its path in full
    or as names begin with it; None if none is there. Raises UserError if there is no such rule.
    """
    if rule == "folder":
        inside, named = start_of_paths(folder), folder.replace(os.sep, "/").rstrip("/") + "/"
        kept = (one for one in images if start_of_paths(one.folder).startswith(inside) or one.name.startswith(named))
        return next(kept, None)
    orders: dict[str, Callable[[ImageRecord], tuple[object, ...]]] = {
        "largest": lambda one: (-one.width * one.height, -one.n_bytes),
        "oldest": lambda one: (one.taken or "9999", one.mtime_ns),
        "most tags": lambda one: (-len(tags.get(one.id, ())),),
    }
    check_choice(rule, "rule", RULES)
    return min(images, key=orders[rule])


def kind_of_alike(a: ImageRecord, b: ImageRecord) -> str | None:
    """Return what two pictures that look alike are, "series" or "screenshots"; None for copies of one picture.

    Copies keep the camera's date, so that another date means another shot. Of one second, shots have the same size and
    names of their own, where copies are scaled, or named after each other (``1.jpg`` and ``1 copy.jpg``).
    """
    if a.sha256 == b.sha256:
        return None
    if _SCREENSHOT.search(a.name) and _SCREENSHOT.search(b.name):
        return "screenshots"
    if a.taken is None or b.taken is None:
        return None
    stems = sorted((PurePath(image.name).stem.casefold() for image in (a, b)), key=len)
    same_name = stems[1].startswith(stems[0])
    return "series" if a.taken != b.taken or ((a.width, a.height) == (b.width, b.height) and not same_name) else None


def _alike(images: list[ImageRecord], near_places: NearPlaces, remaining: set[int]) -> list[AlikeGroup]:
    groups = []
    for position, image in enumerate(images):
        kinds: defaultdict[str, list[int]] = defaultdict(list)
        for other, _ in near_places(position) if position in remaining else ():
            kind = kind_of_alike(image, images[other])
            if kind is not None and other in remaining:
                kinds[kind].append(other)
        for kind, others in kinds.items():
            remaining.difference_update(others, [position])
            alike = [images[at] for at in (position, *others)]
            groups.append(AlikeGroup(kind, sorted(alike, key=lambda one: (one.taken or "", one.name))))
    return sorted(groups, key=lambda group: (-len(group.images), group.images[0].id))


def _near_places(images: list[ImageRecord], distance: int) -> NearPlaces:
    """Compare pictures once for each content, however many files hold it."""
    by_content: defaultdict[str, list[int]] = defaultdict(list)
    for position, image in enumerate(images):
        by_content[image.sha256].append(position)
    places = list(by_content.values())
    content_of = {position: content for content, together in enumerate(places) for position in together}
    hashes = np.array([images[together[0]].phash or FLAT for together in places], np.int64)
    shapes = np.array([images[together[0]].width / images[together[0]].height for together in places])

    bits_between: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (a, b), bits in near_pairs(hashes, distance):
        if abs(math.log(shapes[a] / shapes[b])) <= SAME_SHAPE:
            bits_between[a][b] = bits_between[b][a] = bits

    def near(position: int) -> Iterator[tuple[int, int]]:
        content = content_of[position]
        for other, bits in {content: 0, **bits_between[content]}.items():
            for at in places[other]:
                yield at, bits

    return near


def _hash_what_has_none(
    stored: StoredCatalogue, n_jobs: int | None, progress: Progress, stop: Callable[[], bool]
) -> list[Skipped]:
    """Read the pictures that have no hash yet, and keep their hashes; return those that cannot be read."""
    missing, skipped = [], []
    for image in stored.images.all():
        if image.path is None or image.phash is not None or is_video(image.path):
            continue
        try:
            if is_remote(image.path):
                check_named(image.path)
        except UserError as error:  # a catalogue may name any store
            skipped.append(Skipped(image.name, str(error)))
        else:
            missing.append(image)

    with reported(progress, "look at photos", len(missing)):
        for start in range(0, len(missing), CHUNK):
            if stop():
                break
            chunk = missing[start : start + CHUNK]
            hashes = []
            read = decode_images([image.path or "" for image in chunk], max_side=HASHED_SIDE, n_jobs=n_jobs)
            for image, decoded in zip(chunk, read, strict=True):
                if isinstance(decoded, Skipped):
                    skipped.append(decoded)
                else:
                    hashes.append((image.id, perceptual_hash(decoded.pixels)))
                progress.advance()
            stored.images.set_phashes(hashes)
    return skipped


def _as_dict(image: ImageRecord) -> dict[str, object]:
    return {
        "id": image.id, "image": image.name, "path": image.path, "width": image.width, "height": image.height,
        "bytes": image.n_bytes,
    }  # fmt: skip


def perceptual_hash(pixels: NDArray[np.uint8]) -> int:
    """Return the 64 bits of a picture as a signed number: which low frequencies are above their median.

    The pixels are uint8, (height, width, 3). The number lies from -2⁶³ to 2⁶³ - 1; `FLAT` of a picture without
    contrast. One without structure has bits of a checksum of its pixels, which only the same pixels share.
    """
    small = Image.fromarray(pixels).convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    grey = np.asarray(small, dtype=np.float64)
    if grey.std() < LEAST_CONTRAST:
        return FLAT
    low = dctn(grey, norm="ortho")[:FREQUENCIES, :FREQUENCIES].ravel()
    low[0] = 0.0  # how light it is on the whole does not matter
    level = np.median(low)
    if np.median(np.abs(low - level)) < max(LEAST_DEVIATION, LEAST_SHARE * grey.std()):
        return int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:8], "big", signed=True)
    return int(np.packbits(low > level).view(">i8")[0])


def near_pairs(hashes: NDArray[np.int64], distance: int) -> list[tuple[tuple[int, int], int]]:
    """Find all pairs of hashes, int64 of shape (n,), that differ in at most `distance` bits, 0 to 63.

    Hashes that differ in at most d bits agree in one of d + 1 pieces, so only those that agree in a piece are compared.
    Returns two places in `hashes`, the smaller first, and the number of bits, in order; flat ones are in no pair.
    """
    bits = hashes.view(np.uint64)
    usable = np.flatnonzero(hashes != FLAT)
    edges = np.linspace(0, 64, distance + 2).astype(np.uint64)
    of_pieces = [np.empty((0, 2), np.int64)]
    for first, last in pairwise(edges):
        piece = (bits[usable] >> first) & np.uint64((1 << int(last - first)) - 1)
        order = np.argsort(piece, kind="stable")
        members, values = usable[order], piece[order]
        # Neighbours 1, 2, 3, ... places on, until none shares its piece any more: no pair of a piece is left out.
        shift, starts = 1, np.arange(len(members))
        while True:
            starts = starts[starts + shift < len(members)]
            starts = starts[values[starts] == values[starts + shift]]
            if not len(starts):
                break
            a, b = members[starts], members[starts + shift]
            near = np.bitwise_count(bits[a] ^ bits[b]) <= distance
            of_pieces.append(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1)[near])
            shift += 1
    pairs = np.unique(np.concatenate(of_pieces), axis=0)
    apart = np.bitwise_count(bits[pairs[:, 0]] ^ bits[pairs[:, 1]])
    return list(zip(map(tuple, pairs.tolist()), apart.tolist(), strict=True))
