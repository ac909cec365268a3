"""Videos of plain colours, drawn by ffmpeg itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COLOURS = {"red": "0xC82828", "green": "0x28B43C", "blue": "0x323CC8", "grey": "0x787878"}  # of tiny_catalogues

QUICK = {".mp4": ("-preset", "ultrafast"), ".webm": ("-deadline", "realtime", "-cpu-used", "8")}
"""How to encode in a moment, by ending: what the files are like is no matter."""

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None,
    reason="wants the programs ffmpeg and ffprobe: apt-get install ffmpeg",
)


def draw_video(path: Path, *scenes: str, seconds: float = 6, size: str = "64x48", more: tuple[str, ...] = ()) -> Path:
    """Draw a video of a scene for each colour, one after another; its endings say the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = (f"color={COLOURS[scene]}:s={size}:d={seconds}:r=5,noise=alls=20:allf=t" for scene in scenes)
    inputs = [part for colour in colours for part in ("-f", "lavfi", "-i", colour)]
    joined = f"{''.join(f'[{i}]' for i in range(len(scenes)))}concat=n={len(scenes)},format=yuv420p"
    made = ["-filter_complex", joined, "-g", "10", *QUICK.get(path.suffix, ()), *more, str(path.absolute())]
    command = ["ffmpeg", "-v", "error", "-y", *inputs, *made]
    subprocess.run(command, check=True)
    return path
