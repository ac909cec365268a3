"""Frames of videos: images that have rows and are found as their video, at the moment that they show."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from visterm.store.database import Table
from visterm.store.images import FRAME, Images, Record, as_list

AMONG = "IN (SELECT value FROM json_each(?))"


class Frame(NamedTuple):
    """An image that is a moment of a video; the first frame is the video's own image."""

    image_id: int
    video_id: int
    at: float  # Seconds from the beginning


class Frames(Table):
    """The table of frames."""

    def of(self, video_ids: Iterable[int]) -> list[Frame]:
        """Return the frames of some videos, by video and moment; of images that are no videos there are none."""
        if not self.known:
            return []
        statement = f"SELECT image_id, video_id, at FROM frames WHERE video_id {AMONG} ORDER BY video_id, at"
        return [Frame(*row) for row in self._database.rows(statement, (as_list(video_ids),))]

    def by_video(self, video_ids: Iterable[int]) -> dict[int, list[Frame]]:
        """Return the frames of those of some images that are videos."""
        found: defaultdict[int, list[Frame]] = defaultdict(list)
        for frame in self.of(video_ids):
            found[frame.video_id].append(frame)
        return dict(found)

    def get(self, image_id: int) -> Frame | None:
        """Return which moment of a video an image is; None of a photo."""
        found = self._database.rows("SELECT image_id, video_id, at FROM frames WHERE image_id = ?", (image_id,))
        return Frame(*found[0]) if found else None

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
        statement = f"SELECT image_id, video_id FROM frames WHERE image_id {AMONG}"
        videos = dict(self._database.rows(statement, (as_list(image_ids),)))
        return [videos.get(image_id, image_id) for image_id in image_ids]

    def set(self, video_id: int, video: Record, moments: Sequence[float]) -> list[int]:
        """Keep the moments of a video, in seconds, in place of those it had; return the image of each.

        The rows of those that it had are dead.
        """
        with self._database.transaction() as connection:
            old = as_list(frame.image_id for frame in self.of([video_id]) if frame.image_id != video_id)
            connection.execute(f"INSERT INTO dead_rows SELECT segment_id, row FROM rows WHERE image_id {AMONG}", (old,))
            for table in ("rows", "features", "predictions"):
                connection.execute(f"DELETE FROM {table} WHERE image_id {AMONG}", (old,))
            connection.execute(f"UPDATE images SET state = 'gone' WHERE id {AMONG}", (old,))  # no id is used again
            connection.execute("DELETE FROM frames WHERE video_id = ?", (video_id,))
            others = Images(self._database).add(frame_record(video, at) for at in moments[1:])
            connection.execute(f"UPDATE images SET state = '{FRAME}' WHERE id {AMONG}", (as_list(others),))
            ids = [video_id, *others]
            connection.executemany(
                "INSERT INTO frames VALUES (?, ?, ?)",
                [(image_id, video_id, at) for image_id, at in zip(ids, moments, strict=True)],
            )
        return ids


def frame_record(video: Record, at: float) -> Record:
    """Return what is known of a frame: it has no file of its own, and its hash tells video and moment."""
    sha256 = hashlib.sha256(f"{video.sha256} {at:.3f}".encode()).hexdigest()
    name = f"{video.name} at {moment(at)}"
    return replace(video, name=name, path=None, n_bytes=0, mtime_ns=0, sha256=sha256, tags=(), file_type=FRAME)


def moment(at: float) -> str:
    """Return a moment of a video as people write it: 1:05, or 1:02:05 after an hour."""
    minutes, seconds = divmod(int(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
