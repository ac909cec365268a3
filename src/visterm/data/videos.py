"""Extracting a few frames of each video with ffmpeg and ffprobe, stored as JPEG files in a folder.

Videos are untrusted: the programs run without a shell, network or other files, with limited time and output.
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

MIN_SECONDS_APART = 5.0  # Minimum time between two frames
MAX_SECONDS_APART = 30.0  # Maximum time between frames of the same scene: people often film without cuts
MAX_FRAMES = 60  # Maximum number of frames of a video; the frames of longer videos are further apart
SCENE_CHANGE = 0.3  # Minimum difference between two pictures, 0 to 1, for a new scene
MAX_SECONDS_TO_COMPARE_ALL = 30.0  # Up to this length all pictures are compared, in longer videos only key frames
FRAME_SIDE = 1280  # Longest side of a frame in pixels

# Formats that ffmpeg may open, without formats that refer to other files (concat, hls, image2)
FORMATS = "asf,avi,dv,flv,m4v,matroska,mov,mp4,mpeg,mpegts,mpegvideo,mxf,ogg,webm"

MAX_PIXELS = 2**27
PROBE_SECONDS, SCAN_SECONDS, FRAME_SECONDS = 30.0, 900.0, 60.0  # Timeouts of the programs
MAX_OUTPUT_BYTES = 2**24  # Maximum size of a program's output

# Arguments before the input file, which forbid reading anything else
_INPUT_OPTIONS = ("-protocol_whitelist", "file", "-format_whitelist", FORMATS, "-max_pixels", str(MAX_PIXELS), "-i")
_FFMPEG_OPTIONS = ("-v", "quiet", "-nostdin", "-threads", "1")
_FRAME_TIME = re.compile(rb"pts_time:(\d+(?:\.\d+)?)")
_LOCATION = re.compile(r"([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)")  # ISO 6709: +48.1372+011.5755+519/
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class VideoFacts(NamedTuple):
    """Facts about a video that ffprobe finds without decoding it."""

    # Size of an upright picture in pixels
    width: int
    height: int
    seconds: float  # 0 if unknown
    exif: Exif  # When, where and with which camera it was filmed


def video_facts(path: str | os.PathLike[str]) -> VideoFacts:
    """Return the facts about a video from ffprobe. Raises ImageError if it is not a video, or cannot be read."""
    file = _absolute_path(path)
    entries = "stream=width,height,duration:stream_tags:stream_side_data=rotation:format=duration:format_tags"
    options = ["-v", "quiet", "-show_error", "-of", "json", "-select_streams", "V:0", "-show_entries", entries]
    output = _run("ffprobe", [*options, *_INPUT_OPTIONS, file], PROBE_SECONDS, file)
    try:
        report: dict[str, Any] = json.loads(output or b"{}")
        stream, container = (report.get("streams") or [{}])[0], report.get("format", {})
        width, height = int(stream.get("width", 0)), int(stream.get("height", 0))
        duration = float(stream.get("duration") or container.get("duration") or 0)
        tags = {**stream.get("tags", {}), **container.get("tags", {})}
        rotations = [tags.get("rotate"), *(side.get("rotation") for side in stream.get("side_data_list", []))]
        is_sideways = any(value is not None and round(float(value)) % 180 == 90 for value in rotations)
    except (ValueError, TypeError, AttributeError) as error:
        raise ImageError(file, "damaged: ffprobe does not understand it") from error

    if "error" in report:
        reason = str(report["error"].get("string", "no reason given"))[:120]
        refusal = "not supported: a list of other files, or another format that is not opened"
        raise ImageError(file, refusal if reason == "Invalid argument" else f"damaged: {reason}")

    if width < 1 or height < 1:
        raise ImageError(file, "not a video: it has no pictures")
    date = _DATE.match(str(tags.get("com.apple.quicktime.creationdate") or tags.get("creation_time") or ""))
    seconds = duration if math.isfinite(duration) and duration > 0 else 0.0
    width, height = (height, width) if is_sideways else (width, height)
    prefix = "com.apple.quicktime."
    camera = camera_name(tags.get(f"{prefix}make"), tags.get(f"{prefix}model"))
    location = _LOCATION.match(str(tags.get(f"{prefix}location.ISO6709") or tags.get("location") or ""))
    north, east = map(float, location.groups()) if location else (math.inf, math.inf)
    position = (north, east) if abs(north) <= 90 and abs(east) <= 180 else ()
    return VideoFacts(width, height, seconds, Exif(date[0] if date else None, camera, *position))


class VideoFrames:
    """A folder with frames of videos: ``<SHA-256 of the video>/<milliseconds>.jpg``; each sub-folder is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def moments(self, path: str | os.PathLike[str], sha256: str) -> list[float]:
        """Return the times of a video's frames in seconds, ascending; the frames are extracted if needed.

        Raises ImageError if the video has no frames.
        """
        folder = self._folder_of(path, sha256)
        if not folder.is_dir():
            file = _absolute_path(path)
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="new-") as temporary:
                frames = Path(temporary) / folder.name
                frames.mkdir()
                for at in _scene_times(file, video_facts(file).seconds):
                    if content := _extract_frame(file, at):
                        (frames / _frame_name(at)).write_bytes(content)
                if not any(frames.iterdir()):
                    raise ImageError(file, "damaged: ffmpeg finds no picture in it")
                if not folder.is_dir():  # another process may have extracted a copy of the video first
                    frames.replace(folder)
        return sorted(int(file.stem) / 1000 for file in folder.glob("*.jpg"))

    def file(self, path: str | os.PathLike[str], sha256: str, at: float) -> Path:
        """Return the file of a frame; extract it if it is missing. Raises ImageError if that fails."""
        frame = self._folder_of(path, sha256) / _frame_name(at)
        if not frame.is_file():
            content = _extract_frame(_absolute_path(path), at)
            if not content:
                raise ImageError(os.fspath(path), f"damaged: ffmpeg finds no picture at {at:g} s")
            frame.parent.mkdir(parents=True, exist_ok=True)
            write_whole(frame, content)
        return frame

    def sweep(self, kept: set[str]) -> None:
        """Remove the frames of all videos except those in `kept` (SHA-256), and leftovers of killed processes."""
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder_of(self, path: str | os.PathLike[str], sha256: str) -> Path:
        if not (sha256.isascii() and sha256.isalnum()):  # a catalogue from another person may contain any text
            raise ImageError(os.fspath(path), f"the catalogue says that its hash is {sha256[:80]!r}")
        return self.folder / sha256


def _frame_name(at: float) -> str:
    return f"{round(at * 1000)}.jpg"


def _scene_times(path: str, seconds: float) -> list[float]:
    """Return the times at which scenes begin, to the millisecond, including the first picture."""
    gap = max(MIN_SECONDS_APART, seconds / MAX_FRAMES)
    elapsed = "(t-prev_selected_t)"
    is_changed = f"st(0,max(ld(0),gt(scene,{SCENE_CHANGE})))"  # remembered until frames are far enough apart
    is_due = f"gte({elapsed},{gap})*max({is_changed},gte({elapsed},{max(MAX_SECONDS_APART, gap)}))"
    expression = f"if(isnan(prev_selected_t),1,if({is_due},st(0,0)+1,0))"
    filters = f"scale=320:-2:flags=fast_bilinear,format=rgb24,select='{expression}',metadata=print:file=-"
    keyframes = ["-skip_frame", "nokey"] if seconds > MAX_SECONDS_TO_COMPARE_ALL else []
    output_options = ["-map", "0:V:0", "-vf", filters, "-frames:v", str(MAX_FRAMES), "-f", "null", "-"]
    output = _run("ffmpeg", [*_FFMPEG_OPTIONS, *keyframes, *_INPUT_OPTIONS, path, *output_options], SCAN_SECONDS, path)
    moments = {math.floor(float(time) * 1000) / 1000 for time in _FRAME_TIME.findall(output)}
    return sorted(moments or {0.0})


def _extract_frame(path: str, seconds: float) -> bytes:
    """Return the upright picture at a time, or else a second earlier, as JPEG; empty if the video has neither."""
    vf = f"scale=w='min({FRAME_SIDE},iw*max(sar,0.01))':h='min({FRAME_SIDE},ih)':force_original_aspect_ratio=decrease"
    for start in (seconds, max(0.0, seconds - 1)):
        command = ["-ss", f"{start:.3f}", *_INPUT_OPTIONS, path, "-map", "0:V:0", "-frames:v", "1", "-vf", vf]
        jpeg_options = ["-c:v", "mjpeg", "-q:v", "3", "-f", "image2pipe", "pipe:1"]
        if picture := _run("ffmpeg", [*_FFMPEG_OPTIONS, *command, *jpeg_options], FRAME_SECONDS, path):
            return picture
    return b""


def _absolute_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a video, which ffmpeg cannot take for an option or a URL."""
    if is_remote(path):
        raise ImageError(os.fspath(path), "a video in an object store: copy it to a folder")
    if not VIDEO_FILES.is_readable():
        raise ImageError(os.fspath(path), "a video: install ffmpeg to read it")
    file = os.path.abspath(path)
    if not os.path.isfile(file):
        raise ImageError(file, "not a regular file" if os.path.exists(file) else "no such file")
    return file


def _run(program: str, arguments: list[str], seconds: float, path: str) -> bytes:
    """Run a program and return its standard output. Raises ImageError if it takes too long or writes too much."""
    process = subprocess.Popen(
        [str(shutil.which(program)), *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    timed_out = threading.Event()

    def kill_late() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, kill_late)
    timer.start()
    try:
        output = process.stdout.read(MAX_OUTPUT_BYTES + 1)
    finally:
        timer.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
    if timed_out.is_set():
        raise ImageError(path, f"too slow to decode: {program} took more than {seconds:g} s")
    if len(output) > MAX_OUTPUT_BYTES:
        raise ImageError(path, f"damaged: {program} wrote more than {MAX_OUTPUT_BYTES:,} bytes")
    return output
