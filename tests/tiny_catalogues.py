"""Photos of plain colours with tags, a run that learned from them, and what tests of catalogues need besides."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from visterm import Tagger
from visterm.core.persist import new_folder
from visterm.learning.learned import write_run

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200), "grey": (120, 120, 120)}
ENCODER = {"codebook": 12, "scales": [1.0], "sample_blocks": 2000, "max_side": 32}


def draw_photo(path: Path, colour: str, seed: int) -> Path:
    """Draw a photo of 32 pixels of a colour, with noise by the seed: no two have the same bytes."""
    noise = np.random.default_rng(seed).integers(-30, 30, (32, 32, 3))
    pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def draw_photos(folder: Path, n: int = 24, seed: int = 0) -> dict[str, list[str]]:
    """Draw photos of the four colours in turn, named by number, and give the tags of each name."""
    tags = {}
    for number in range(n):
        colour = list(COLOURS)[number % len(COLOURS)]
        draw_photo(folder / f"{number:03d}.png", colour, 1000 * seed + number)
        tags[f"{number:03d}.png"] = [colour, "warm" if colour == "red" else "cool"]
    return tags


def fit_run(folder: Path, tags: dict[str, list[str]], out: Path, *, model: str = "wsabie", seed: int = 0) -> Path:
    """Fit a run on photos, in about a second."""
    params = {"dim": 4, "epochs": 20, "valid_share": 0.0, "learning_rate": 0.02} if model == "wsabie" else {}
    tagger = Tagger(model=model, encoder="visterms", encoder_params=ENCODER, model_params=params, seed=seed, n_jobs=1)
    names = sorted(tags)
    tagger.fit([folder / name for name in names], [tags[name] for name in names], calibrate=False)
    tagger.save(out)
    return out


def save_unchecked(tagger: Tagger, path: Path) -> None:
    """Write a run that `Tagger.save` refuses, as nothing can open it: what a stranger may send."""
    with new_folder(path, "run", fingerprint=tagger.fingerprint) as folder:
        write_run(tagger.parts, folder)


def write_tags(path: Path, tags: dict[str, list[str]]) -> Path:
    """Write tags as CSV."""
    path.write_text("image,tags\n" + "".join(f"{name},{';'.join(given)}\n" for name, given in tags.items()))
    return path


def touch(path: Path, seconds: int) -> None:
    """Set a file's date, that many seconds after the epoch."""
    os.utime(path, (seconds, seconds))
