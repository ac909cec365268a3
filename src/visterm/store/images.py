"""The images of a catalogue: what is known of each, and where it is now; frames of videos; files that were left out.

A frame is an image that has a row and is found as its video, at the moment that it shows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Skipped
from visterm.store.database import CatalogueTable, as_text, now

ImageFile: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8]"  # or the pixels themselves

COLUMNS = (
    "id, path, name, folder, n_bytes, mtime_ns, sha256, width, height, file_type, taken, added, seen, phash, state, "
    "reviewed, camera, latitude, longitude"
)
LISTED = "IN (SELECT value FROM json_each(?))"  # What `as_list` gave
AMONG = f"id {LISTED}"
FRAME = "frame"  # The state of moments of videos, and their type in place of a file's


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image of a catalogue, as the tables hold it."""

    id: int  # Its number, which is never used again: what rows, requests and feedback mean it by
    path: str | None  # The file, in full; None for an image that was given as an array
    name: str  # What searches show
    folder: str  # Of the file, in full
    n_bytes: int
    mtime_ns: int
    sha256: str
    width: int
    height: int
    file_type: str  # As the ending of the name says: "jpeg", "png"
    taken: str | None  # ISO 8601, as the camera's clock said
    # UTC: when it came in, and when it was last found unchanged
    added: str
    seen: str
    phash: int | None  # Perceptual hash, 64 bits, signed
    state: str  # "here", "gone", or "frame" for a moment of a video
    reviewed: str | None  # When a person last reviewed its tags
    camera: str | None = None  # Its maker and model; empty if its file names none, None of an array
    # Where it was taken, degrees north and east
    latitude: float | None = None
    longitude: float | None = None


class ImageState(NamedTuple):
    """What tells whether a file has changed."""

    id: int
    n_bytes: int
    mtime_ns: int
    sha256: str


class Images(CatalogueTable):
    """The table of images. Ids that are not there are left out of the answers."""

    def add(self, records: Iterable[NewImage]) -> list[int]:
        """Take images in, and return their ids: one more than the largest so far, and so on."""
        at = now()
        with self._database.transaction() as connection:
            first = connection.execute("SELECT coalesce(max(id) + 1, 0) FROM images").fetchone()[0]
            values = [(first + i, *_values(record), at, at) for i, record in enumerate(records)]
            connection.executemany(
                "INSERT INTO images (id, path, name, folder, n_bytes, mtime_ns, sha256, width, height, file_type, "
                "taken, phash, camera, latitude, longitude, added, seen) VALUES "
                "(?, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        return [value[0] for value in values]

    def update(self, image_id: int, record: NewImage) -> None:
        """Put in what is known of a file whose content or place has changed; id, date of entry and tags stay."""
        self._database.write(
            "UPDATE images SET path = CAST(? AS TEXT), name = CAST(? AS TEXT), folder = CAST(? AS TEXT), n_bytes = ?, "
            "mtime_ns = ?, sha256 = ?, width = ?, height = ?, file_type = ?, taken = ?, phash = ?, camera = ?, "
            "latitude = ?, longitude = ?, seen = ?, state = 'here' WHERE id = ?",
            (*_values(record), now(), image_id),
        )

    def move(self, image_id: int, path: str | os.PathLike[str], name: str, mtime_ns: int) -> None:
        """Set where an image lies now, and its name; it is there (again). Files beside it may stay where it was."""
        folder = os.path.dirname(os.fspath(path))
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO left_places SELECT target, path, image_id FROM written_tags JOIN images "
                "ON images.id = image_id WHERE image_id = ? AND path IS NOT NULL",
                (image_id,),
            )
            connection.execute(
                "UPDATE images SET path = CAST(? AS TEXT), name = CAST(? AS TEXT), folder = CAST(? AS TEXT), "
                "mtime_ns = ?, seen = ? WHERE id = ?",
                (as_text(path), as_text(name), as_text(folder), mtime_ns, now(), image_id),
            )
            self.mark([image_id], "here")

    def mark(self, image_ids: Iterable[int], state: str) -> None:
        """Mark images as "here" or "gone", videos with their frames.

        Use `StoredCatalogue.mark`, which tells searches too.
        """
        listed = as_list(image_ids)
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE images SET state = ? WHERE {AMONG}", (state, listed))
            connection.execute(
                "UPDATE images SET state = ? WHERE id IN "
                f"(SELECT image_id FROM frames WHERE image_id != video_id AND video_id {LISTED})",
                (FRAME if state == "here" else state, listed),
            )

    def hide(self, image_ids: Iterable[int], hidden: bool = True) -> None:
        """Note that images, which are marked as gone, stay so while their files are as they were; or forget it."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'hidden'").fetchone()
            kept, listed = set(json.loads(row[0]) if row else []), set(map(int, image_ids))
            kept = kept | listed if hidden else kept - listed
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('hidden', ?)", (json.dumps(sorted(kept)),))

    def hidden(self) -> list[ImageRecord]:
        """Return the images that were hidden, by id."""
        kept = "SELECT value FROM json_each((SELECT value FROM meta WHERE key = 'hidden'))"
        return self._select(f"WHERE state = 'gone' AND id IN ({kept}) ORDER BY id")

    def mark_seen(self, image_ids: Iterable[int]) -> None:
        """Note that images were found unchanged just now."""
        self._database.write(f"UPDATE images SET seen = ? WHERE {AMONG}", (now(), as_list(image_ids)))

    def mark_reviewed(self, image_ids: Iterable[int], reviewed: bool = True) -> None:
        """Note that a person has looked at the tags of images just now, or take that back."""
        at = now() if reviewed else None
        self._database.write(f"UPDATE images SET reviewed = ? WHERE {AMONG}", (at, as_list(image_ids)))

    def set_phashes(self, phashes: Iterable[tuple[int, int]]) -> None:
        """Keep perceptual hashes, pairs of an image's id and 64 bits as a signed number."""
        self._database.write_many("UPDATE images SET phash = ? WHERE id = ?", ((h, i) for i, h in phashes))

    def get(self, image_id: int) -> ImageRecord | None:
        """Return one image, here or gone; None where the id is not known."""
        return next(iter(self.get_many([image_id])), None)

    def get_many(self, image_ids: Iterable[int]) -> list[ImageRecord]:
        """Return images by id, in the order of the ids given."""
        requested = list(image_ids)
        by_id = {image.id: image for image in self._select(f"WHERE {AMONG}", as_list(requested))}
        return [by_id[int(i)] for i in requested if int(i) in by_id]

    def by_path(self, path: str | os.PathLike[str]) -> ImageRecord | None:
        """Return the image that lies at a path now; None where there is none."""
        return next(iter(self._select("WHERE path = CAST(? AS TEXT) AND state = 'here'", as_text(path))), None)

    def all(self, state: str = "here") -> list[ImageRecord]:
        """Return all images of a state, by id."""
        return self._select("WHERE state = ? ORDER BY id", state)

    def files(self) -> dict[str, ImageState]:
        """Return all files that are here, by path: what an update compares folders with."""
        statement = "SELECT path, id, n_bytes, mtime_ns, sha256 FROM images WHERE state = 'here' AND path IS NOT NULL"
        return {path: ImageState(*state) for path, *state in self._database.rows(statement)}

    def without_rows(self, run_id: int) -> list[int]:
        """Return the ids of images that are here and have no row yet of a run, or of the one whose rows serve it."""
        rows_of = "(SELECT coalesce(rows_of, id) FROM runs WHERE id = ?)"
        rows = self._database.rows(
            "SELECT id FROM images WHERE state = 'here' AND NOT EXISTS "
            f"(SELECT 1 FROM rows WHERE rows.run_id = {rows_of} AND rows.image_id = images.id) ORDER BY id",
            (run_id,),
        )
        return [image_id for (image_id,) in rows]

    def count(self, state: str = "here") -> int:
        """Count the images of a state, a video once."""
        statement = "SELECT count(*) FROM images WHERE state = ? AND file_type != ?"
        return int(self._database.value(statement, (state, FRAME)))

    def _select(self, where: str, *values: object) -> list[ImageRecord]:
        return self._records(ImageRecord, f"SELECT {COLUMNS} FROM images {where}", values)


def as_list(ids: Iterable[int]) -> str:
    """Return ids as the one parameter that ``json_each(?)`` takes."""
    return json.dumps([int(i) for i in ids])


def _values(record: NewImage) -> tuple[object, ...]:
    folder = os.path.dirname(record.path) if record.path else ""
    return (
        as_text(record.path) if record.path else None, as_text(record.name), as_text(folder), record.n_bytes,
        record.mtime_ns, record.sha256, record.width, record.height, record.file_type, record.taken, record.phash,
        record.camera, record.latitude, record.longitude,
    )  # fmt: skip


class SkippedFiles(CatalogueTable):
    """The table of files that were left out."""

    def add(self, skipped: Iterable[Skipped]) -> None:
        """Write files down with their reasons; the latest reason of each counts."""
        self._database.write_many(
            "INSERT INTO skipped (path, reason, at) VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?) "
            "ON CONFLICT DO UPDATE SET reason = excluded.reason, at = excluded.at",
            ((as_text(item.image), as_text(item.reason), now()) for item in skipped),
        )

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files that could be read now, or that are gone."""
        values = ((as_text(path),) for path in paths)
        self._database.write_many("DELETE FROM skipped WHERE path = CAST(? AS TEXT)", values)

    def all(self) -> list[Skipped]:
        """List all of them by path."""
        return self._records(Skipped, "SELECT path, reason FROM skipped ORDER BY path")

    def count(self) -> int:
        """Count them."""
        return int(self._database.value("SELECT count(*) FROM skipped"))


@dataclass(frozen=True, slots=True)
class NewImage:
    """One image, before it has a number in a catalogue."""

    name: str  # As it was given: what searches show
    path: str | None  # The file, in full, or the address of an object; None for an image that was given as an array
    n_bytes: int  # Size of the file, or of the array
    # Pixels of the upright image
    width: int
    height: int
    sha256: str  # Hash of the file's bytes, or of the array's; of an object, what stands for it (`content_hash`)
    tags: tuple[str, ...] = ()  # Those that people gave
    mtime_ns: int = 0  # When the file was last changed, in nanoseconds; 0 for an array
    file_type: str = ""  # The ending of its name, in small letters; "jpeg" for .jpg. Empty for an array.
    taken: str | None = None  # ISO 8601, as the camera's clock said; None where that is not known
    phash: int | None = None  # Perceptual hash: 64 bits as a signed number
    camera: str | None = None  # Empty if the file names none; None if that was not read
    # Degrees north and east
    latitude: float | None = None
    longitude: float | None = None


def file_type_of(path: str | os.PathLike[str]) -> str:
    """Return the type of a file as the ending of its name says, in small letters: "jpeg" for .jpg."""
    ending = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    return {"jpg": "jpeg", "jpe": "jpeg", "tif": "tiff", "heif": "heic"}.get(ending, ending)


class Frame(NamedTuple):
    """An image that is a moment of a video; the first frame is the video's own image."""

    image_id: int
    video_id: int
    at: float  # Seconds from the beginning


class Frames(CatalogueTable):
    """The table of frames."""

    def of(self, video_ids: Iterable[int]) -> list[Frame]:
        """Return the frames of some videos, by video and moment; of images that are no videos there are none."""
        if not self.known:
            return []
        statement = f"SELECT image_id, video_id, at FROM frames WHERE video_id {LISTED} ORDER BY video_id, at"
        return self._records(Frame, statement, (as_list(video_ids),))

    def by_video(self, video_ids: Iterable[int]) -> dict[int, list[Frame]]:
        """Return the frames of those of some images that are videos."""
        return {video: list(group) for video, group in groupby(self.of(video_ids), key=attrgetter("video_id"))}

    def get(self, image_id: int) -> Frame | None:
        """Return which moment of a video an image is; None of a photo."""
        statement = "SELECT image_id, video_id, at FROM frames WHERE image_id = ?"
        return next(iter(self._records(Frame, statement, (image_id,))), None)

    @property
    def known(self) -> bool:
        """Whether there is any video."""
        return bool(self._database.keep("videos", lambda: self._database.value("SELECT EXISTS (SELECT 1 FROM frames)")))

    def with_frames(self, image_ids: Sequence[int]) -> list[int]:
        """Return images and, after them, the other frames of those that are videos."""
        return [*image_ids, *(frame.image_id for frame in self.of(image_ids) if frame.image_id != frame.video_id)]

    def videos_of(self, image_ids: Sequence[int]) -> list[int]:
        """Return the video of each image that is a frame, and each other image itself."""
        if not self.known:
            return list(image_ids)
        videos = dict(
            self._database.rows(f"SELECT image_id, video_id FROM frames WHERE image_id {LISTED}", (as_list(image_ids),))
        )
        return [videos.get(image_id, image_id) for image_id in image_ids]

    def set(self, video_id: int, video: NewImage, moments: Sequence[float]) -> list[int]:
        """Keep the moments of a video, in seconds, in place of those it had; return the image of each.

        The rows of those that it had are dead.
        """
        with self._database.transaction() as connection:
            old = as_list(frame.image_id for frame in self.of([video_id]) if frame.image_id != video_id)
            dead = f"SELECT segment_id, row FROM rows WHERE image_id {LISTED}"
            connection.execute(f"INSERT INTO dead_rows {dead}", (old,))
            for table in ("rows", "features", "predictions"):
                connection.execute(f"DELETE FROM {table} WHERE image_id {LISTED}", (old,))
            connection.execute(f"UPDATE images SET state = 'gone' WHERE {AMONG}", (old,))  # no id is used again
            connection.execute("DELETE FROM frames WHERE video_id = ?", (video_id,))
            others = Images(self._database).add(frame_record(video, at) for at in moments[1:])
            connection.execute(f"UPDATE images SET state = '{FRAME}' WHERE {AMONG}", (as_list(others),))
            ids = [video_id, *others]
            connection.executemany(
                "INSERT INTO frames VALUES (?, ?, ?)",
                [(image_id, video_id, at) for image_id, at in zip(ids, moments, strict=True)],
            )
        return ids


def frame_record(video: NewImage, at: float) -> NewImage:
    """Return what is known of a frame: it has no file of its own, and its hash tells video and moment."""
    sha256 = hashlib.sha256(f"{video.sha256} {at:.3f}".encode()).hexdigest()
    name = f"{video.name} at {moment(at)}"
    return replace(video, name=name, path=None, n_bytes=0, mtime_ns=0, sha256=sha256, tags=(), file_type=FRAME)


def moment(at: float) -> str:
    """Return a moment of a video as people write it: 1:05, or 1:02:05 after an hour."""
    minutes, seconds = divmod(int(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
