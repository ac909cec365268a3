"""The tables of images with their files and metadata, of frames of videos, and of skipped files.

A frame is an image with its own row; searches return it as its video, with the time of the frame.
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

ImageFile: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8]"  # A path, or pixels

COLUMNS = (
    "id, path, name, folder, n_bytes, mtime_ns, sha256, width, height, file_type, taken, added, seen, phash, state, "
    "reviewed, camera, latitude, longitude"
)
LISTED = "IN (SELECT value FROM json_each(?))"  # Takes the result of `as_list`
AMONG = f"id {LISTED}"
FRAME = "frame"  # State of frames, and their file type


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image of a catalogue, as stored in the tables."""

    id: int  # Never reused; rows, requests and feedback refer to it
    path: str | None  # Absolute path of the file; None for an image passed as an array
    name: str  # For display
    folder: str  # Absolute path of the file's folder
    n_bytes: int
    mtime_ns: int
    sha256: str
    width: int
    height: int
    file_type: str  # From the suffix of the file name: "jpeg", "png"
    taken: str | None  # ISO 8601, in the camera's local time
    # UTC: when it was added, and when its file last changed or moved
    added: str
    seen: str
    phash: int | None  # Perceptual hash: 64 bits as a signed number
    state: str  # "here", "gone", or "frame" for a moment of a video
    reviewed: str | None  # When a person last reviewed its tags
    camera: str | None = None  # Maker and model; empty if the file has none, None for an array
    # Where it was taken, in degrees north and east
    latitude: float | None = None
    longitude: float | None = None


class ImageState(NamedTuple):
    """Path, id, size, time, hash and name of a file, to detect changes."""

    path: str
    id: int
    n_bytes: int
    mtime_ns: int
    sha256: str
    name: str


class Images(CatalogueTable):
    """The table of images. Results leave out unknown ids."""

    def add(self, records: Iterable[NewImage]) -> list[int]:
        """Add images, and return their ids: consecutive numbers above the largest id so far."""
        at = now()
        with self._database.transaction() as connection:
            first_id = connection.execute("SELECT coalesce(max(id) + 1, 0) FROM images").fetchone()[0]
            values = [(first_id + i, *_values(record), at, at) for i, record in enumerate(records)]
            connection.executemany(
                "INSERT INTO images (id, path, name, folder, n_bytes, mtime_ns, sha256, width, height, file_type, "
                "taken, phash, camera, latitude, longitude, place, added, seen) VALUES "
                "(?, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        return [value[0] for value in values]

    def update(self, image_id: int, record: NewImage) -> None:
        """Update the data of a file that was changed or moved; its id, date added and tags stay the same."""
        self._database.write(
            "UPDATE images SET path = CAST(? AS TEXT), name = CAST(? AS TEXT), folder = CAST(? AS TEXT), n_bytes = ?, "
            "mtime_ns = ?, sha256 = ?, width = ?, height = ?, file_type = ?, taken = ?, phash = ?, camera = ?, "
            "latitude = ?, longitude = ?, place = ?, seen = ?, state = 'here' WHERE id = ?",
            (*_values(record), now(), image_id),
        )

    def move(self, image_id: int, path: str | os.PathLike[str], name: str, mtime_ns: int) -> None:
        """Set a moved image's path and name, and mark it as "here"; its sidecar files may still be at the old path."""
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

        Use `StoredCatalogue.mark` instead, which also updates searches.
        """
        id_list = as_list(image_ids)
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE images SET state = ? WHERE {AMONG}", (state, id_list))
            connection.execute(
                "UPDATE images SET state = ? WHERE id IN "
                f"(SELECT image_id FROM frames WHERE image_id != video_id AND video_id {LISTED})",
                (FRAME if state == "here" else state, id_list),
            )

    def hide(self, image_ids: Iterable[int], hidden: bool = True) -> None:
        """Hide images, marked as gone, for as long as their files are unchanged; or stop hiding them."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'hidden'").fetchone()
            hidden_ids, changed_ids = set(json.loads(row[0]) if row else []), set(map(int, image_ids))
            hidden_ids = hidden_ids | changed_ids if hidden else hidden_ids - changed_ids
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('hidden', ?)", (json.dumps(sorted(hidden_ids)),))

    def hidden(self) -> list[ImageRecord]:
        """Return the hidden images, by id."""
        hidden_ids = "SELECT value FROM json_each((SELECT value FROM meta WHERE key = 'hidden'))"
        return self._select(f"WHERE state = 'gone' AND id IN ({hidden_ids}) ORDER BY id")

    def mark_reviewed(self, image_ids: Iterable[int], reviewed: bool = True) -> None:
        """Record that a person has just reviewed the tags of images, or undo that."""
        at = now() if reviewed else None
        self._database.write(f"UPDATE images SET reviewed = ? WHERE {AMONG}", (at, as_list(image_ids)))

    def set_phashes(self, phashes: Iterable[tuple[int, int]]) -> None:
        """Store perceptual hashes, as (image id, 64 bits as a signed number)."""
        self._database.write_many("UPDATE images SET phash = ? WHERE id = ?", ((h, i) for i, h in phashes))

    def get(self, image_id: int) -> ImageRecord | None:
        """Return one image in any state; None if the id is unknown."""
        return next(iter(self.get_many([image_id])), None)

    def get_many(self, image_ids: Iterable[int]) -> list[ImageRecord]:
        """Return images in the order of `image_ids`."""
        requested = list(image_ids)
        by_id = {image.id: image for image in self._select(f"WHERE {AMONG}", as_list(requested))}
        return [by_id[int(i)] for i in requested if int(i) in by_id]

    def by_path(self, path: str | os.PathLike[str]) -> ImageRecord | None:
        """Return the image that is at a path now, or None."""
        return next(iter(self._select("WHERE path = CAST(? AS TEXT) AND state = 'here'", as_text(path))), None)

    def all(self, state: str = "here") -> list[ImageRecord]:
        """Return all images in a state, by id."""
        return self._select("WHERE state = ? ORDER BY id", state)

    def files(self) -> dict[str, int]:
        """Return path -> id of all present files."""
        return dict(self._database.rows("SELECT path, id FROM images WHERE state = 'here' AND path IS NOT NULL"))

    def without_rows(self, run_id: int) -> list[int]:
        """Return the ids of present images that have no row of a run yet."""
        rows_of = "(SELECT coalesce(rows_of, id) FROM runs WHERE id = ?)"
        rows = self._database.rows(
            "SELECT id FROM images WHERE state = 'here' AND NOT EXISTS "
            f"(SELECT 1 FROM rows WHERE rows.run_id = {rows_of} AND rows.image_id = images.id) ORDER BY id",
            (run_id,),
        )
        return [image_id for (image_id,) in rows]

    def count(self, state: str = "here") -> int:
        """Count the images in a state; each video counts once."""
        statement = "SELECT count(*) FROM images WHERE state = ? AND file_type != ?"
        return int(self._database.value(statement, (state, FRAME)))

    def _select(self, where: str, *values: object) -> list[ImageRecord]:
        return self._records(ImageRecord, f"SELECT {COLUMNS} FROM images {where}", values)


def as_list(ids: Iterable[int]) -> str:
    """Return ids as JSON, the parameter of ``json_each(?)``."""
    return json.dumps([int(i) for i in ids])


def _values(record: NewImage) -> tuple[object, ...]:
    folder = os.path.dirname(record.path) if record.path else ""
    return (
        as_text(record.path) if record.path else None, as_text(record.name), as_text(folder), record.n_bytes,
        record.mtime_ns, record.sha256, record.width, record.height, record.file_type, record.taken, record.phash,
        record.camera, record.latitude, record.longitude, record.place,
    )  # fmt: skip


class SkippedFiles(CatalogueTable):
    """The table of skipped files."""

    def add(self, skipped: Iterable[Skipped]) -> None:
        """Store skipped files with their reasons, replacing earlier reasons."""
        self._database.write_many(
            "INSERT INTO skipped (path, reason, at) VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?) "
            "ON CONFLICT DO UPDATE SET reason = excluded.reason, at = excluded.at",
            ((as_text(item.image), as_text(item.reason), now()) for item in skipped),
        )

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files that can be read now, or are gone."""
        values = ((as_text(path),) for path in paths)
        self._database.write_many("DELETE FROM skipped WHERE path = CAST(? AS TEXT)", values)

    def all(self) -> list[Skipped]:
        """List all skipped files by path."""
        return self._records(Skipped, "SELECT path, reason FROM skipped ORDER BY path")

    def count(self) -> int:
        """Count the skipped files."""
        return int(self._database.value("SELECT count(*) FROM skipped"))


@dataclass(frozen=True, slots=True)
class NewImage:
    """An image to add to a catalogue."""

    name: str  # For display
    path: str | None  # Absolute path or object address; None for an image passed as an array
    n_bytes: int  # Size of the file, or of the array
    # In pixels, after rotation to upright
    width: int
    height: int
    sha256: str  # Hash of the file's or array's bytes; for an object see `content_hash`
    tags: tuple[str, ...] = ()  # Tags given by people
    mtime_ns: int = 0  # Time of the latest change of the file, in nanoseconds; 0 for an array
    file_type: str = ""  # See `file_type_of`; empty for an array
    taken: str | None = None  # ISO 8601, in the camera's local time; None if unknown
    phash: int | None = None  # Perceptual hash: 64 bits as a signed number
    camera: str | None = None  # Maker and model; empty if the file has none, None if it was not read
    # In degrees north and east
    latitude: float | None = None
    longitude: float | None = None
    place: str = ""  # Names of the place, with commas, by the metadata


def file_type_of(path: str | os.PathLike[str]) -> str:
    """Return the type of a file from its suffix, in lower case: "jpeg" for .jpg."""
    suffix = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    return {"jpg": "jpeg", "jpe": "jpeg", "tif": "tiff", "heif": "heic"}.get(suffix, suffix)


class Frame(NamedTuple):
    """An image that is a frame of a video; the first frame has the video's id."""

    image_id: int
    video_id: int
    at: float  # Seconds from the beginning


class Frames(CatalogueTable):
    """The table of frames."""

    def of(self, video_ids: Iterable[int]) -> list[Frame]:
        """Return the frames of videos, by video and time; images that are not videos have none."""
        statement = f"SELECT image_id, video_id, at FROM frames WHERE video_id {LISTED} ORDER BY video_id, at"
        return self._records(Frame, statement, (as_list(video_ids),))

    def by_video(self, video_ids: Iterable[int]) -> dict[int, list[Frame]]:
        """Return video id -> its frames; images that are not videos are left out."""
        return {video: list(group) for video, group in groupby(self.of(video_ids), key=attrgetter("video_id"))}

    def get(self, image_id: int) -> Frame | None:
        """Return the frame with this image id; None for a photo."""
        statement = "SELECT image_id, video_id, at FROM frames WHERE image_id = ?"
        return next(iter(self._records(Frame, statement, (image_id,))), None)

    def with_frames(self, image_ids: Sequence[int]) -> list[int]:
        """Return the images, followed by all but the first frames of the videos among them."""
        return [*image_ids, *(frame.image_id for frame in self.of(image_ids) if frame.image_id != frame.video_id)]

    def videos_of(self, image_ids: Sequence[int]) -> list[int]:
        """Return the ids, with the ids of frames replaced by those of their videos."""
        videos = dict(
            self._database.rows(f"SELECT image_id, video_id FROM frames WHERE image_id {LISTED}", (as_list(image_ids),))
        )
        return [videos.get(image_id, image_id) for image_id in image_ids]

    def set(self, video_id: int, video: NewImage, moments: Sequence[float]) -> list[int]:
        """Replace the frames of a video by frames at `moments`, in seconds; return the frames' image ids.

        The rows of the previous frames become dead.
        """
        with self._database.transaction() as connection:
            old_ids = as_list(frame.image_id for frame in self.of([video_id]) if frame.image_id != video_id)
            dead = f"SELECT segment_id, row FROM rows WHERE image_id {LISTED}"
            connection.execute(f"INSERT INTO dead_rows {dead}", (old_ids,))
            for table in ("rows", "features", "predictions"):
                connection.execute(f"DELETE FROM {table} WHERE image_id {LISTED}", (old_ids,))
            connection.execute(f"UPDATE images SET state = 'gone' WHERE {AMONG}", (old_ids,))  # ids are never reused
            connection.execute("DELETE FROM frames WHERE video_id = ?", (video_id,))
            new_ids = Images(self._database).add(frame_record(video, at) for at in moments[1:])
            connection.execute(f"UPDATE images SET state = '{FRAME}' WHERE {AMONG}", (as_list(new_ids),))
            ids = [video_id, *new_ids]
            connection.executemany(
                "INSERT INTO frames VALUES (?, ?, ?)",
                [(image_id, video_id, at) for image_id, at in zip(ids, moments, strict=True)],
            )
        return ids


def frame_record(video: NewImage, at: float) -> NewImage:
    """Return a frame as an image to add: without a file, and with a hash of the video's hash and the time."""
    sha256 = hashlib.sha256(f"{video.sha256} {at:.3f}".encode()).hexdigest()
    name = f"{video.name} at {moment(at)}"
    return replace(video, name=name, path=None, n_bytes=0, mtime_ns=0, sha256=sha256, tags=(), file_type=FRAME)


def moment(at: float) -> str:
    """Format a time in a video: 1:05, or 1:02:05 after an hour."""
    minutes, seconds = divmod(int(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
