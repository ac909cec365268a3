"""Read photos and videos as records of a catalogue, and extract frames of videos."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from visterm.core.errors import ImageError
from visterm.core.persist import file_hash
from visterm.core.remote import is_remote, real_path
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Skipped
from visterm.data.contents import content_hash, exif_of, file_state, reading_threads
from visterm.data.images import MISSING_FILE_REASON, image_size
from visterm.data.sidecars import Sidecars, place_of
from visterm.data.videos import VideoFrames, video_facts
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import FRAME, ImageFile, ImageRecord, NewImage, file_type_of

FRAMES_FOLDER = "frames"  # Name of a catalogue's folder with the frames of its videos
NEEDS_FOLDER = "a video: a catalogue in memory takes photos only; save it first"


class ReadVideo(NamedTuple):
    """A readable video and its frames."""

    record: NewImage
    moments: list[float]  # Times of the frames, in seconds
    files: list[Path]  # Image files of the frames, in the order of `moments`


class CatalogueVideos:
    """The videos of a catalogue; a catalogue in memory cannot have videos."""

    def __init__(self, stored: StoredCatalogue, n_jobs: int | None = None) -> None:
        self._stored, self._n_jobs = stored, n_jobs
        self._frames = None if stored.folder is None else VideoFrames(stored.folder / FRAMES_FOLDER)

    def read(
        self, paths: Sequence[str], names: Sequence[str], tags: Sequence[Iterable[str]]
    ) -> list[ReadVideo | Skipped]:
        """Read videos in parallel; an unreadable video is returned as `Skipped` with the reason."""
        with Team(resolve_jobs(self._n_jobs)) as team:
            return team.run(lambda i: self._read(paths[i], names[i], tuple(tags[i])), len(paths))

    def _read(self, path: str, name: str, tags: tuple[str, ...]) -> ReadVideo | Skipped:
        if self._frames is None:
            return Skipped(path, NEEDS_FOLDER)
        try:
            facts = video_facts(path)
            n_bytes, mtime_ns = file_state(path) or (0, 0)
            sha256 = file_hash(path)
            moments = self._frames.moments(path, sha256)
            files = [self._frames.file(path, sha256, at) for at in moments]
        except ImageError as error:
            return Skipped(path, error.reason)
        except OSError as error:
            return Skipped(path, error.strerror or "it cannot be read")
        record = NewImage(
            name, path, n_bytes, facts.width, facts.height, sha256, tags,
            mtime_ns=mtime_ns, file_type=file_type_of(path),
            **facts.exif._replace(camera=facts.exif.camera or "")._asdict(),
        )  # fmt: skip
        return ReadVideo(record, moments, files)

    def picture_of(self, image: ImageRecord, at: float | None = None) -> str | None:
        """Return the image file of a photo, or of a frame of a video; None for an image without a file.

        For a video, `at` chooses the frame nearest to that time in seconds; None: the first frame. A missing frame is
        extracted again. Raises ImageError if that fails.
        """
        frame = self._stored.frames.get(image.id)
        if frame is None or self._frames is None:
            return image.path
        video = image if image.file_type != FRAME else self._stored.images.get(frame.video_id)
        if video is None or video.path is None:
            return None
        if at is not None:
            frame = min(self._stored.frames.of([video.id]), key=lambda other: abs(other.at - at))
        return str(self._frames.file(video.path, video.sha256, frame.at))

    def sweep(self) -> None:
        """Delete the frames of videos that are not in the catalogue. The caller must have the writer lock."""
        if self._frames is not None:
            videos = "SELECT sha256 FROM images WHERE id IN (SELECT video_id FROM frames)"
            self._frames.sweep({sha256 for (sha256,) in self._stored.database.rows(videos)})


def read_records(
    images: Sequence[ImageFile],
    names: Sequence[str],
    tags: Sequence[Iterable[str]],
    *,
    n_jobs: int | None = None,
    undated: list[str] | None = None,
) -> list[NewImage | Skipped]:
    """Read size, hash and EXIF data of images; an unreadable image is returned as `Skipped` with the reason.

    `images` are paths or uint8 arrays (height, width, 3); `tags` has people's tags per image. Photos with an unreadable
    date are appended to `undated`.
    """
    inputs, sidecars = list(zip(images, names, tags, strict=True)), Sidecars()
    with Team(reading_threads(images, n_jobs)) as team:
        return team.run(lambda i: _read_record(*inputs[i], undated, sidecars), len(inputs))


def _read_record(
    image: ImageFile, name: str, tags: Iterable[str], undated: list[str] | None, sidecars: Sidecars
) -> NewImage | Skipped:
    if isinstance(image, np.ndarray):
        sha256 = hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
        return NewImage(name, None, image.nbytes, image.shape[1], image.shape[0], sha256, tuple(tags))
    path = real_path(image)
    try:
        width, height = image_size(path)
        state = file_state(path)
        sha256 = (content_hash(path) or "") if is_remote(path) else file_hash(path)
        if state is None or not sha256:
            return Skipped(path, MISSING_FILE_REASON)
        exif = exif_of(path, unread=undated)
        place = "" if is_remote(path) else place_of(path, sidecars)
        return NewImage(
            name, path, state[0], width, height, sha256, tuple(tags), mtime_ns=state[1], file_type=file_type_of(path),
            place=place, **exif._replace(camera=exif.camera or "")._asdict(),
        )  # fmt: skip
    except ImageError as error:
        return Skipped(os.fspath(image), error.reason)
    except OSError as error:
        return Skipped(os.fspath(image), error.strerror or "it cannot be read")
