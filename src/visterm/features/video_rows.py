"""Rows of videos: one row per frame, encoded like photos."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from visterm.core.checks import finite_rows, stack_rows
from visterm.core.errors import ImageError
from visterm.core.progress import Progress
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Matrix, Skipped
from visterm.data.image_folders import is_video
from visterm.data.videos import VideoFrames
from visterm.encoders.contract import AnyEncoder, Encoded

VIDEO_BATCH = 16  # Number of videos whose frames are encoded together
NO_FRAME = "damaged: no frame of it can be read"


def encode_frames(encoder: AnyEncoder, videos: Sequence[Sequence[Path]]) -> tuple[Matrix, list[tuple[int, int]]]:
    """Encode the frames of videos, given as files; return the rows, and the indices (video, frame) of each row.

    Frames that cannot be read, or whose row is not finite, are left out.
    """
    frames = [(video, frame) for video, files in enumerate(videos) for frame in range(len(files))]
    X, kept, _ = encoder.encode([str(videos[video][frame]) for video, frame in frames])
    finite = np.flatnonzero(finite_rows(X)) if len(kept) else np.empty(0, np.int64)
    return X[finite], [frames[kept[row]] for row in finite]


def encode_all(encoder: AnyEncoder, items: Sequence[Any], progress: Progress) -> Encoded:
    """Encode images, and videos by their frames: `kept` repeats the position of a video for each of its frames."""
    videos = [] if encoder.reads == "names" else [position for position, item in enumerate(items) if is_video(item)]
    if not videos:
        return encoder.encode(items, progress=progress)
    photos = np.setdiff1d(np.arange(len(items)), videos)
    X, kept, skipped = encoder.encode([items[position] for position in photos], progress=progress)
    parts, positions = [X] if len(kept) else [], photos[kept].tolist()

    for start in range(0, len(videos), VIDEO_BATCH):
        batch = videos[start : start + VIDEO_BATCH]
        with tempfile.TemporaryDirectory(prefix="visterm-") as folder:
            read = _read_frames(VideoFrames(Path(folder)), [items[position] for position in batch], encoder)
            rows, frames = encode_frames(encoder, [() if isinstance(video, Skipped) else video for video in read])
        with_frames = {video for video, _ in frames}
        for number, video in enumerate(read):
            if number not in with_frames:
                no_frame = Skipped(os.fspath(items[batch[number]]), NO_FRAME)
                skipped.append(video if isinstance(video, Skipped) else no_frame)
        if frames:
            parts.append(rows)
            positions += [batch[video] for video, _ in frames]
        progress.advance(len(batch))

    order = np.argsort(positions, kind="stable")
    return Encoded(stack_rows(parts)[order] if parts else X, np.array(positions, np.int64)[order], skipped)


def _read_frames(frames: VideoFrames, paths: Sequence[str], encoder: AnyEncoder) -> list[list[Path] | Skipped]:
    def read(number: int) -> list[Path] | Skipped:
        path, name = paths[number], str(number)
        try:
            return [frames.file(path, name, at) for at in frames.moments(path, name)]
        except ImageError as error:
            return Skipped(os.fspath(path), error.reason)

    with Team(resolve_jobs(getattr(encoder, "n_jobs", None))) as team:
        return team.run(read, len(paths))
