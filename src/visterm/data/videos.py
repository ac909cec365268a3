"""Frames of videos, by the programs ffmpeg and ffprobe: a few moments each, kept as JPEG files in a folder.

Videos are untrusted: the programs get no shell, no network and no other file, bounded time and bounded output.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import ImageError
from visterm.core.remote import is_remote
from visterm.core.writing import write_whole
from visterm.data.contents import Exif, camera_name
from visterm.data.image_folders import VIDEO_FILES

APART = 5.0  # Seconds between two frames, at least
STILL = 30.0  # Seconds after which there is a frame though the scene is the same: people often film without cuts
MOST_FRAMES = 60  # Of one video: those of a longer one are further apart
SCENE = 0.3  # Change of a picture, 0 to 1, from which on the scene is another one
WHOLE = 30.0  # Seconds up to which all pictures are compared; of a longer video those that stand alone (key frames)
SIDE = 1280  # Longest side of a frame in pixels

# What ffmpeg may take a file for: none of the formats that name other files (concat, hls, image2)
FORMATS = "asf,avi,dv,flv,m4v,matroska,mov,mp4,mpeg,mpegts,mpegvideo,mxf,ogg,webm"

MOST_PIXELS = 2**27
PROBE_SECONDS, SCAN_SECONDS, FRAME_SECONDS = 30.0, 900.0, 60.0  # After which a program is ended
MOST_BYTES = 2**24  # Of a program's output

# Arguments before a file that is read, and nothing else with it
_READING = ("-protocol_whitelist", "file", "-format_whitelist", FORMATS, "-max_pixels", str(MOST_PIXELS), "-i")
_FFMPEG = ("-v", "quiet", "-nostdin", "-threads", "1")
_MOMENT = re.compile(rb"pts_time:(\d+(?:\.\d+)?)")
_PLACE = re.compile(r"([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)")  # ISO 6709: +48.1372+011.5755+519/
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class VideoFacts(NamedTuple):
    """What is known of a video without decoding it."""

    # Pixels of a picture as people see it, upright
    width: int
    height: int
    seconds: float  # 0 where it is not known
    exif: Exif  # When, where and by which camera


def video_facts(path: str | os.PathLike[str]) -> VideoFacts:
    """Return what ffprobe says of a video. Raises ImageError if it is none, or it cannot be read."""
    file = _checked(path)
    entries = "stream=width,height,duration:stream_tags:stream_side_data=rotation:format=duration:format_tags"
    how = ["-v", "quiet", "-show_error", "-of", "json", "-select_streams", "V:0", "-show_entries", entries]
    answer = _run("ffprobe", [*how, *_READING, file], PROBE_SECONDS, file)
    try:
        report: dict[str, Any] = json.loads(answer or b"{}")
        stream, container = (report.get("streams") or [{}])[0], report.get("format", {})
        width, height = int(stream.get("width", 0)), int(stream.get("height", 0))
        length = float(stream.get("duration") or container.get("duration") or 0)
        tags = {**stream.get("tags", {}), **container.get("tags", {})}
        turned = [tags.get("rotate"), *(side.get("rotation") for side in stream.get("side_data_list", []))]
        sideways = any(value is not None and round(float(value)) % 180 == 90 for value in turned)
    except (ValueError, TypeError, AttributeError) as error:
        raise ImageError(file, "damaged: ffprobe does not understand it") from error

    if "error" in report:
        reason = str(report["error"].get("string", "no reason given"))[:120]
        not_opened = "not supported: a list of other files, or another format that is not opened"
        raise ImageError(file, not_opened if reason == "Invalid argument" else f"damaged: {reason}")
    if width < 1 or height < 1:
        raise ImageError(file, "not a video: it has no pictures")
    when = _DATE.match(str(tags.get("com.apple.quicktime.creationdate") or tags.get("creation_time") or ""))
    seconds = length if math.isfinite(length) and length > 0 else 0.0
    width, height = (height, width) if sideways else (width, height)
    apple = "com.apple.quicktime."
    camera = camera_name(tags.get(f"{apple}make"), tags.get(f"{apple}model"))
    location = _PLACE.match(str(tags.get(f"{apple}location.ISO6709") or tags.get("location") or ""))
    north, east = map(float, location.groups()) if location else (0.0, 0.0)
    is_on_earth = location is not None and abs(north) <= 90 and abs(east) <= 180
    exif = Exif(when[0] if when else None, camera, *((north, east) if is_on_earth else ()))
    return VideoFacts(width, height, seconds, exif)


class VideoFrames:
    """Frames of videos in a folder: ``<SHA-256 of the video>/<milliseconds>.jpg``; a folder that is there is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def moments(self, path: str | os.PathLike[str], sha256: str) -> list[float]:
        """Return the moments of a video that have a frame, in seconds, ascending; they are extracted if need be.

        Raises ImageError if there is none.
        """
        folder = self._folder_of(path, sha256)
        if not folder.is_dir():
            self._extract(path, folder)
        return sorted(int(file.stem) / 1000 for file in folder.glob("*.jpg"))

    def file(self, path: str | os.PathLike[str], sha256: str, at: float) -> Path:
        """Return the file of a frame; it is extracted again if it is not there. Raises ImageError if it cannot be."""
        frame = self._folder_of(path, sha256) / _name(at)
        if not frame.is_file():
            content = _frame(_checked(path), at)
            if not content:
                raise ImageError(os.fspath(path), f"damaged: ffmpeg finds no picture at {at:g} s")
            frame.parent.mkdir(parents=True, exist_ok=True)
            write_whole(frame, content)
        return frame

    def sweep(self, known: set[str]) -> None:
        """Remove the frames of all but some videos, by SHA-256, and what a kill left."""
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder_of(self, path: str | os.PathLike[str], sha256: str) -> Path:
        if not (sha256.isascii() and sha256.isalnum()):  # a catalogue that somebody else made may say anything
            raise ImageError(os.fspath(path), f"the catalogue says that its hash is {sha256[:80]!r}")
        return self.folder / sha256

    def _extract(self, path: str | os.PathLike[str], folder: Path) -> None:
        """Extract the frames of a video into a folder that is there at once when all are."""
        file = _checked(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="new-") as new:
            frames = Path(new) / folder.name
            frames.mkdir()
            for at in _scenes(file, video_facts(file).seconds):
                if content := _frame(file, at):
                    (frames / _name(at)).write_bytes(content)
            if not any(frames.iterdir()):
                raise ImageError(file, "damaged: ffmpeg finds no picture in it")
            if not folder.is_dir():  # a copy of the same video may have been quicker
                frames.replace(folder)


def _name(at: float) -> str:
    return f"{round(at * 1000)}.jpg"


def _scenes(path: str, seconds: float) -> list[float]:
    """Return the moments at which scenes begin, to the millisecond, the first picture among them."""
    apart = max(APART, seconds / MOST_FRAMES)
    since = "(t-prev_selected_t)"
    changed = f"st(0,max(ld(0),gt(scene,{SCENE})))"  # kept until the frames are far enough apart
    due = f"gte({since},{apart})*max({changed},gte({since},{max(STILL, apart)}))"
    expression = f"if(isnan(prev_selected_t),1,if({due},st(0,0)+1,0))"
    filters = f"scale=320:-2:flags=fast_bilinear,format=rgb24,select='{expression}',metadata=print:file=-"
    keyframes = ["-skip_frame", "nokey"] if seconds > WHOLE else []
    frames = ["-map", "0:V:0", "-vf", filters, "-frames:v", str(MOST_FRAMES), "-f", "null", "-"]
    output = _run("ffmpeg", [*_FFMPEG, *keyframes, *_READING, path, *frames], SCAN_SECONDS, path)
    moments = {math.floor(float(time) * 1000) / 1000 for time in _MOMENT.findall(output)}
    return sorted(moments or {0.0})


def _frame(path: str, at: float) -> bytes:
    """Return the picture at a moment as JPEG, upright, or the one before the end of the video; empty if none is."""
    size = f"scale=w='min({SIDE},iw*max(sar,0.01))':h='min({SIDE},ih)':force_original_aspect_ratio=decrease"
    for start in (at, max(0.0, at - 1)):
        command = ["-ss", f"{start:.3f}", *_READING, path, "-map", "0:V:0", "-frames:v", "1", "-vf", size]
        as_jpeg = ["-c:v", "mjpeg", "-q:v", "3", "-f", "image2pipe", "pipe:1"]
        if picture := _run("ffmpeg", [*_FFMPEG, *command, *as_jpeg], FRAME_SECONDS, path):
            return picture
    return b""


def _checked(path: str | os.PathLike[str]) -> str:
    """Return a video's path in full, so that no name is taken for an option or an address."""
    if is_remote(path):
        raise ImageError(os.fspath(path), "a video in an object store: copy it to a folder")
    if not VIDEO_FILES.is_readable():
        raise ImageError(os.fspath(path), "a video: install ffmpeg to read it")
    file = os.path.abspath(path)
    if not os.path.isfile(file):
        raise ImageError(file, "not a regular file" if os.path.exists(file) else "no such file")
    return file


def _run(program: str, arguments: list[str], seconds: float, path: str) -> bytes:
    """Run a program, and return what it wrote to standard output. Raises ImageError if it takes too long."""
    process = subprocess.Popen(
        [str(shutil.which(program)), *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        output = process.stdout.read(MOST_BYTES + 1)
    finally:
        timer.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
    if late.is_set():
        raise ImageError(path, f"too slow to decode: {program} took more than {seconds:g} s")
    if len(output) > MOST_BYTES:
        raise ImageError(path, f"damaged: {program} wrote more than {MOST_BYTES:,} bytes")
    return output
