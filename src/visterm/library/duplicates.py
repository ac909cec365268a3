"""Duplicates in a catalogue: groups of pictures that look the same, and which picture to keep; nothing is deleted."""

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

from visterm.core.checks import check_choice
from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.remote import check_named, is_remote, start_of_paths
from visterm.core.types import Skipped
from visterm.data.image_folders import is_video
from visterm.data.images import decode_images
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageRecord

DEFAULT_DISTANCE = 6  # Half-size copies at quality 60 differ in 0 to 6 of 64 bits, other pictures rarely in 8

MAX_DISTANCE = 12

MAX_SHAPE_DIFFERENCE = math.log(1.05)  # Of two values of log(width / height): copies are scaled, never stretched

KEEPER_RULES = ("largest", "oldest", "most tags", "folder")  # Which picture of a group to keep, see `keeper_by`

NearPictures: TypeAlias = Callable[[int], Iterator[tuple[int, int]]]
"""Position of a picture -> (position, differing bits) of the pictures near it, including itself."""

# Pictures are reduced to 32 x 32 grey levels, and their 8 x 8 lowest frequencies are used (Zauner 2010, phash.org)
GREY_SIDE, N_FREQUENCIES = 32, 8

FLAT_HASH = 0  # Hash of all pictures without contrast, which are never compared

MIN_CONTRAST = 2.0  # Standard deviation of grey levels; below it, frequencies are compression noise

# A picture has no structure if the median absolute deviation of its frequencies is lower, absolutely or as a share of
# the contrast (standard deviation). In clear skies, fog, vignettes and drawn gradients, a few frequencies have all the
# contrast, and the other bits are noise or always the same: shares of 0 to 0.3, and deviations of 0 to 2 from camera
# and JPEG noise. In Corel 5k, 19 of 4,999 photos have a smaller share (median 1.2), and none has a smaller deviation
# (minimum 4.6).
MIN_DEVIATION, MIN_DEVIATION_SHARE = 3.0, 0.3

PICTURES_PER_COMMIT = 256
HASHED_SIDE = 8 * GREY_SIDE  # Maximum side of decoded pictures: faster for JPEG, with the same hash

# Matches paths of copies: ``Backup/1.jpg``, ``1 copy.jpg``, ``1 - Kopie.jpg``, ``1 (2).jpg``
_COPY = re.compile(
    r"(?<![a-z])(backups?|copy|copies?|kopien?|copia|duplicates?|sicherung(en)?)(?![a-z])|\(\d+\)", re.IGNORECASE
)

_SCREENSHOT = re.compile(r"screen[ _-]?(shot|cap)|bildschirmfoto|capture d.[eé]cran|captura", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Copy:
    """A picture that looks like the one to keep."""

    image: ImageRecord
    distance: int  # Number of bits in which its hash differs
    same_bytes: bool  # Whether the files are identical


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Pictures that look the same."""

    keeper: ImageRecord
    """The picture with the most pixels; ties are broken by the most tags, the most bytes, a path that does not contain
    "backup" or "copy", the shortest path, and the oldest file."""
    copies: list[Copy]  # The other pictures, nearest first

    def as_dict(self) -> dict[str, object]:
        """Return the group as JSON data."""
        copies = [
            {**_as_dict(copy.image), "distance": copy.distance, "same_bytes": copy.same_bytes} for copy in self.copies
        ]
        return {"keep": _as_dict(self.keeper), "copies": copies}


@dataclass(frozen=True, slots=True)
class AlikeGroup:
    """Similar pictures that are not copies, so that none of them replaces another."""

    kind: str  # "series" or "screenshots": shots taken one after another, or pictures of a screen
    images: list[ImageRecord]  # Sorted by date and name

    def as_dict(self) -> dict[str, object]:
        """Return the group as JSON data."""
        return {"kind": self.kind, "images": [_as_dict(image) for image in self.images]}


class Duplicates(NamedTuple):
    """Groups of copies, groups of similar pictures that are not copies, and unreadable pictures."""

    groups: list[DuplicateGroup]  # Largest first
    alike: list[AlikeGroup]  # Largest first; includes keepers, but no copies of `groups`
    skipped: list[Skipped]  # Unreadable pictures; identical files among them are still found

    def kept_by(self, rule: str, tags: Mapping[int, Sequence[str]], folder: str = "") -> list[DuplicateGroup]:
        """Return the groups with the keeper chosen by a rule; groups where the rule chooses none are left out.

        See `keeper_by`. Distances are still measured from the original keeper.
        """
        groups = []
        for group in self.groups:
            keeper = keeper_by(rule, [group.keeper, *(copy.image for copy in group.copies)], tags, folder)
            if keeper is not None:
                original = Copy(group.keeper, 0, any(c.image is keeper and c.same_bytes for c in group.copies))
                others = [copy for copy in group.copies if copy.image is not keeper]
                groups.append(DuplicateGroup(keeper, [original, *others] if keeper is not group.keeper else others))
        return groups


def find_duplicates(
    stored: StoredCatalogue,
    distance: int = DEFAULT_DISTANCE,
    *,
    hash_new: bool = True,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
    stop: Callable[[], bool] = lambda: False,
) -> Duplicates:
    """Group the pictures of a catalogue whose hashes differ in at most `distance` bits.

    `distance` is 0 to 12 of 64 bits: 0 finds copies that were scaled or slightly recompressed; 10 also finds some
    pictures that are merely similar. Each copy is near the keeper, not only near another copy. Series of shots and
    screenshots are similar but differ in important details, so they only count as copies if the files are identical.

    Hashes are stored in the catalogue, so that only pictures without a hash are read. Without `hash_new`, no picture is
    read, and pictures without a hash are only compared by content. `stop` is called between chunks of pictures; when it
    returns True, no more pictures are read.
    """
    if not 0 <= distance <= MAX_DISTANCE:
        raise UserError(setting="distance", value=distance, expected=f"0 to {MAX_DISTANCE} bits")
    skipped = _hash_new_pictures(stored, n_jobs, progress, stop) if hash_new else []
    tags = stored.tags.held()

    def keeper_order(image: ImageRecord) -> tuple[object, ...]:
        size = (-image.width * image.height, -len(tags.get(image.id, ())), -image.n_bytes)
        return (*size, bool(_COPY.search(image.name)), len(image.path or image.name), image.mtime_ns, image.id)

    images = sorted(stored.images.all(), key=keeper_order)
    near_pictures = _near_pictures(images, distance)

    groups: list[DuplicateGroup] = []
    grouped_positions: set[int] = set()
    for position, image in enumerate(images):
        if position in grouped_positions:
            continue
        bits_of_near = {
            other: bits
            for other, bits in near_pictures(position)
            if other not in grouped_positions and other != position and kind_of_similarity(image, images[other]) is None
        }
        if bits_of_near:
            grouped_positions.update(bits_of_near, [position])
            copies = [
                Copy(images[other], bits_of_near[other], images[other].sha256 == image.sha256)
                for other in sorted(bits_of_near, key=lambda other: (bits_of_near[other], other))
            ]
            groups.append(DuplicateGroup(image, copies))

    copy_ids = {copy.image.id for group in groups for copy in group.copies}
    not_copies = {position for position, image in enumerate(images) if image.id not in copy_ids}
    alike = _group_similar(images, near_pictures, not_copies)
    return Duplicates(sorted(groups, key=lambda group: (-len(group.copies), group.keeper.id)), alike, skipped)


def keeper_by(
    rule: str, images: Sequence[ImageRecord], tags: Mapping[int, Sequence[str]], folder: str = ""
) -> ImageRecord | None:
    """Choose the picture to keep among copies by one of `KEEPER_RULES`; the first one if there is a tie.

    `tags` are the tags of pictures by id. The rule "folder" chooses the first picture in `folder`, an absolute path or
    the start of names, or None if there is no picture in it. Raises UserError if the rule is invalid.
    """
    if rule == "folder":
        path_prefix, prefix = start_of_paths(folder), folder.replace(os.sep, "/").rstrip("/") + "/"
        matches = (i for i in images if start_of_paths(i.folder).startswith(path_prefix) or i.name.startswith(prefix))
        return next(matches, None)
    orders: dict[str, Callable[[ImageRecord], tuple[object, ...]]] = {
        "largest": lambda image: (-image.width * image.height, -image.n_bytes),
        "oldest": lambda image: (image.taken or "9999", image.mtime_ns),
        "most tags": lambda image: (-len(tags.get(image.id, ())),),
    }
    check_choice(rule, "rule", KEEPER_RULES)
    return min(images, key=orders[rule])


def kind_of_similarity(a: ImageRecord, b: ImageRecord) -> str | None:
    """Return why two similar pictures are not copies, "series" or "screenshots"; None if they are copies.

    Copies keep the camera's date, so different dates mean different shots. Shots from the same second have the same
    size and unrelated names, while copies are scaled or have related names (``1.jpg`` and ``1 copy.jpg``).
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


def _group_similar(images: list[ImageRecord], near_pictures: NearPictures, remaining: set[int]) -> list[AlikeGroup]:
    groups = []
    for position, image in enumerate(images):
        kinds: defaultdict[str, list[int]] = defaultdict(list)
        for other, _ in near_pictures(position) if position in remaining else ():
            kind = kind_of_similarity(image, images[other])
            if kind is not None and other in remaining:
                kinds[kind].append(other)
        for kind, others in kinds.items():
            remaining.difference_update(others, [position])
            similar = [images[i] for i in (position, *others)]
            groups.append(AlikeGroup(kind, sorted(similar, key=lambda image: (image.taken or "", image.name))))
    return sorted(groups, key=lambda group: (-len(group.images), group.images[0].id))


def _near_pictures(images: list[ImageRecord], distance: int) -> NearPictures:
    """Compare all pictures, and return a function that lists the pictures near a picture."""
    by_content: defaultdict[str, list[int]] = defaultdict(list)
    for position, image in enumerate(images):
        by_content[image.sha256].append(position)
    contents = list(by_content.values())
    content_of = {position: content for content, positions in enumerate(contents) for position in positions}
    hashes = np.array([images[positions[0]].phash or FLAT_HASH for positions in contents], np.int64)
    shapes = np.array([images[positions[0]].width / images[positions[0]].height for positions in contents])

    bits_between: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (a, b), bits in near_pairs(hashes, distance):
        if abs(math.log(shapes[a] / shapes[b])) <= MAX_SHAPE_DIFFERENCE:
            bits_between[a][b] = bits_between[b][a] = bits

    def near(position: int) -> Iterator[tuple[int, int]]:
        content = content_of[position]
        for other, bits in {content: 0, **bits_between[content]}.items():
            for other_position in contents[other]:
                yield other_position, bits

    return near


def _hash_new_pictures(
    stored: StoredCatalogue, n_jobs: int | None, progress: Progress, stop: Callable[[], bool]
) -> list[Skipped]:
    """Read the pictures without a hash and store their hashes; return the unreadable pictures."""
    unhashed, skipped = [], []
    for image in stored.images.all():
        if image.path is None or image.phash is not None or is_video(image.path):
            continue
        try:
            if is_remote(image.path):
                check_named(image.path)
        except UserError as error:  # a catalogue may name any store
            skipped.append(Skipped(image.name, str(error)))
        else:
            unhashed.append(image)

    with reported(progress, "look at photos", len(unhashed)):
        for start in range(0, len(unhashed), PICTURES_PER_COMMIT):
            if stop():
                break
            chunk = unhashed[start : start + PICTURES_PER_COMMIT]
            hashes = []
            decoded_pictures = decode_images([image.path or "" for image in chunk], max_side=HASHED_SIDE, n_jobs=n_jobs)
            for image, picture in zip(chunk, decoded_pictures, strict=True):
                if isinstance(picture, Skipped):
                    skipped.append(picture)
                else:
                    hashes.append((image.id, perceptual_hash(picture.pixels)))
                progress.advance()
            stored.images.set_phashes(hashes)
    return skipped


def _as_dict(image: ImageRecord) -> dict[str, object]:
    return {
        "id": image.id, "image": image.name, "path": image.path, "width": image.width, "height": image.height,
        "bytes": image.n_bytes,
    }  # fmt: skip


def perceptual_hash(pixels: NDArray[np.uint8]) -> int:
    """Return 64 bits as a signed number: a bit is set if a low frequency of the picture is above the median.

    `pixels` are uint8, shape (height, width, 3). The result is from -2⁶³ to 2⁶³ - 1; `FLAT_HASH` for a picture without
    contrast. For a picture without structure it is a checksum of the pixels, which only identical pixels share.
    """
    small = Image.fromarray(pixels).convert("L").resize((GREY_SIDE, GREY_SIDE), Image.Resampling.LANCZOS)
    grey = np.asarray(small, dtype=np.float64)
    if grey.std() < MIN_CONTRAST:
        return FLAT_HASH
    from scipy.fft import dctn  # here, as most processes that import this module never need it

    frequencies = dctn(grey, norm="ortho")[:N_FREQUENCIES, :N_FREQUENCIES].ravel()
    frequencies[0] = 0.0  # ignore the overall brightness
    median = np.median(frequencies)
    if np.median(np.abs(frequencies - median)) < max(MIN_DEVIATION, MIN_DEVIATION_SHARE * grey.std()):
        return int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:8], "big", signed=True)
    return int(np.packbits(frequencies > median).view(">i8")[0])


def near_pairs(hashes: NDArray[np.int64], distance: int) -> list[tuple[tuple[int, int], int]]:
    """Find all pairs of hashes (int64, shape (n,)) that differ in at most `distance` bits, 0 to 63.

    Hashes that differ in at most d bits agree in at least one of d + 1 pieces, so only such hashes are compared.
    Returns sorted ((i, j), differing bits) with positions i < j in `hashes`; flat hashes are left out.
    """
    bits = hashes.view(np.uint64)
    usable_positions = np.flatnonzero(hashes != FLAT_HASH)
    edges = np.linspace(0, 64, distance + 2).astype(np.uint64)
    piece_pairs = [np.empty((0, 2), np.int64)]
    for start, stop in pairwise(edges):
        piece = (bits[usable_positions] >> start) & np.uint64((1 << int(stop - start)) - 1)
        order = np.argsort(piece, kind="stable")
        members, values = usable_positions[order], piece[order]
        # Compare each member with the next, second next, ... member, while they share a piece: this visits all pairs
        shift, starts = 1, np.arange(len(members))
        while True:
            starts = starts[starts + shift < len(members)]
            starts = starts[values[starts] == values[starts + shift]]
            if not len(starts):
                break
            a, b = members[starts], members[starts + shift]
            is_near = np.bitwise_count(bits[a] ^ bits[b]) <= distance
            piece_pairs.append(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1)[is_near])
            shift += 1
    pairs = np.unique(np.concatenate(piece_pairs), axis=0)
    distances = np.bitwise_count(bits[pairs[:, 0]] ^ bits[pairs[:, 1]])
    return list(zip(map(tuple, pairs.tolist()), distances.tolist(), strict=True))
