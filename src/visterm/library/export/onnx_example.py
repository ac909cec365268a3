"""Tag photos with an exported graph: `python tag_photo.py PHOTO ...`. Needs only onnxruntime, Pillow and NumPy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps

FOLDER = Path(__file__).parent


def read_photo(path: str, max_side: int) -> Image.Image:
    """Read a photo upright, with its longest side reduced to `max_side`, like visterm."""
    photo = Image.open(path)
    across, down = photo.size
    scale = min(1.0, max_side / max(across, down))
    size = max(1, round(across * scale)), max(1, round(down * scale))
    photo.draft(None, size)  # only JPEG can be decoded at a smaller size
    exif = photo.getexif()
    rgb = photo.convert("RGB")
    rgb = rgb if rgb.size == size else rgb.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    rgb.info["exif"] = exif.tobytes()
    return ImageOps.exif_transpose(rgb)


def pictures_of(photo: Image.Image, prepared: dict[str, Any]) -> list[NDArray[np.uint8]]:
    """Return the network's input pictures of a photo, as uint8 arrays of its input size."""
    height, width = prepared["size"]
    resample = Image.Resampling[prepared["interpolation"].upper()]
    across, down = photo.size
    crop = (prepared["crop"] or 1) if prepared["views"] == "trained" else 1
    if prepared["views"] == "trained" and prepared["resize"] is not None:
        return [_trained(photo, prepared, resample)]
    if prepared["views"] == "trained" and prepared["crop"] is None:
        return [np.asarray(photo.resize((width, height), resample))]
    wide, high = min(across, down * width / height), min(down, across * height / width)  # largest crop that fits
    if crop == 1 and (wide, high) == (across, down):
        return [np.asarray(photo.resize((width, height), resample))] * len(prepared["places"])
    pictures = []
    for share in prepared["places"]:  # None: the whole photo; 0 to 1: from its start to its end
        start, top = (0, 0) if share is None else ((across - wide * crop) * share, (down - high * crop) * share)
        right, bottom = (across, down) if share is None else (start + wide * crop, top + high * crop)
        box = start, top, min(right, across), min(bottom, down)
        pictures.append(np.asarray(photo.resize((width, height), resample, box=box)))
    return pictures


def _trained(photo: Image.Image, prepared: dict[str, Any], resample: Image.Resampling) -> NDArray[np.uint8]:
    """Return the single input picture for a network with an exactly known resizing method."""
    height, width = prepared["size"]
    across, down = photo.size
    if prepared["resize"] == "squash":
        return np.asarray(photo.resize((width, height), resample))
    if prepared["resize"] == "pad":
        ratio = max(down / height, across / width)
        size = round(across / ratio), round(down / ratio)
        start, top = -((width - size[0]) // 2), -((height - size[1]) // 2)
    else:
        to_int = int if prepared["resize"] == "shortest_floor" else round
        if height == width:
            short = round(height / (prepared["crop"] or 1))
            long = int(short * max(across, down) / min(across, down))
            size = (short, long) if across <= down else (long, short)
        else:
            ratio = min(down / height, across / width) * (prepared["crop"] or 1)
            size = round(across / ratio), round(down / ratio)
        start, top = to_int((size[0] - width) / 2), to_int((size[1] - height) / 2)
    picture = Image.new("RGB", (width, height), (round(prepared["fill"]),) * 3)
    picture.paste(photo.resize(size, resample), (-start, -top))
    return np.asarray(picture)


def main(photos: list[str]) -> None:
    """Print the five best tags of each photo."""
    prepared = json.loads((FOLDER / "preparation.json").read_text(encoding="utf-8"))
    labels = (FOLDER / "labels.txt").read_text(encoding="utf-8").splitlines()
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx")
    for path in photos:
        pictures = np.stack(pictures_of(read_photo(path, prepared["max_side"]), prepared))
        results: Any = session.run(list(prepared["outputs"]), {"pictures": pictures})
        outputs: dict[str, Any] = dict(zip(prepared["outputs"], results, strict=True))
        scores = outputs["scores"]
        displayed = outputs.get("confidences", scores)
        best = np.argsort(-scores[0], kind="stable")[:5]
        print(path, ", ".join(f"{labels[tag]} {displayed[0][tag]:.4f}" for tag in best), sep=": ")


if __name__ == "__main__":
    main(sys.argv[1:])
