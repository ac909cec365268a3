"""Rows of videos: one for each frame, encoded as photos are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visterm.core.checks import finite_rows
from visterm.core.errors import ImageError
from visterm.core.progress import Progress
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Matrix, Skipped
from visterm.data.file_kinds import is_video
from visterm.data.videos import VideoFrames
from visterm.encoders.base import stack_rows
from visterm.encoders.contract import AnyEncoder, Encoded

AT_ONCE = 16  # Videos whose frames are encoded together
NO_FRAME = "damaged: no frame of it can be read"


class FrameRows(NamedTuple):
    """Rows of the frames of some videos."""

    rows: Matrix
    frames: list[tuple[int, int]]  # Of each row: which video, and which of its frames; in order


def encode_frames(encoder: AnyEncoder, videos: Sequence[Sequence[Path]]) -> FrameRows:
    """Encode the frames of videos, each a file; those that cannot be read, or whose row is not finite, are left out."""
    every = [(video, place) for video, files in enumerate(videos) for place in range(len(files))]
    X, kept, _ = encoder.encode([str(videos[video][place]) for video, place in every])
    good = np.flatnonzero(finite_rows(X)) if len(kept) else np.empty(0, np.int64)
    return FrameRows(X[good], [every[kept[row]] for row in good])


def encode_all(encoder: AnyEncoder, items: Sequence[Any], progress: Progress) -> Encoded:
    """Encode images, and videos by their frames: `kept` has the place of a video once for each of its frames."""
    videos = [] if encoder.reads == "names" else [place for place, item in enumerate(items) if is_video(item)]
    if not videos:
        return encoder.encode(items, progress=progress)
    photos = np.setdiff1d(np.arange(len(items)), videos)
    X, kept, skipped = encoder.encode([items[place] for place in photos], progress=progress)
    parts, places = [X] if len(kept) else [], photos[kept].tolist()

    for start in range(0, len(videos), AT_ONCE):
        some = videos[start : start + AT_ONCE]
        with tempfile.TemporaryDirectory(prefix="visterm-") as folder:
            read = _read_frames(VideoFrames(Path(folder)), [items[place] for place in some], encoder)
            found = encode_frames(encoder, [() if isinstance(video, Skipped) else video for video in read])
        there = {video for video, _ in found.frames}
        for number, video in enumerate(read):
            if number not in there:
                lost = Skipped(os.fspath(items[some[number]]), NO_FRAME)
                skipped.append(video if isinstance(video, Skipped) else lost)
        if found.frames:
            parts.append(found.rows)
            places += [some[video] for video, _ in found.frames]
        progress.advance(len(some))

    order = np.argsort(places, kind="stable")
    return Encoded(stack_rows(parts)[order] if parts else X, np.array(places, np.int64)[order], skipped)


def _read_frames(frames: VideoFrames, paths: Sequence[str], encoder: AnyEncoder) -> list[list[Path] | Skipped]:
    """Extract the frames of some videos, several at a time."""

    def read(number: int) -> list[Path] | Skipped:
        path, name = paths[number], str(number)
        try:
            return [frames.file(path, name, at) for at in frames.moments(path, name)]
        except ImageError as error:
            return Skipped(os.fspath(path), error.reason)

    with Team(resolve_jobs(getattr(encoder, "n_jobs", None))) as team:
        return team.run(read, len(paths))
