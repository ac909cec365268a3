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
    photo_width, photo_height = photo.size
    scale = min(1.0, max_side / max(photo_width, photo_height))
    size = max(1, round(photo_width * scale)), max(1, round(photo_height * scale))
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
    photo_width, photo_height = photo.size
    crop = (prepared["crop"] or 1) if prepared["views"] == "trained" else 1
    if prepared["views"] == "trained" and prepared["resize"] is not None:
        return [_exact_picture(photo, prepared, resample)]
    if prepared["views"] == "trained" and prepared["crop"] is None:
        return [np.asarray(photo.resize((width, height), resample))]
    crop_width = min(photo_width, photo_height * width / height)  # of the largest crop that fits
    crop_height = min(photo_height, photo_width * height / width)
    if crop == 1 and (crop_width, crop_height) == (photo_width, photo_height):
        return [np.asarray(photo.resize((width, height), resample))] * len(prepared["places"])
    pictures = []
    for share in prepared["places"]:  # None: the whole photo; 0 to 1: from its start to its end
        wanted_width, wanted_height = (crop_width * crop, crop_height * crop) if share is not None else photo.size
        start, top = (photo_width - wanted_width) * (share or 0), (photo_height - wanted_height) * (share or 0)
        box = start, top, min(start + wanted_width, photo_width), min(top + wanted_height, photo_height)
        pictures.append(np.asarray(photo.resize((width, height), resample, box=box)))
    return pictures


def _exact_picture(photo: Image.Image, prepared: dict[str, Any], resample: Image.Resampling) -> NDArray[np.uint8]:
    """Return the single input picture for a network with an exactly known resizing method."""
    height, width = prepared["size"]
    photo_width, photo_height = photo.size
    if prepared["resize"] == "squash":
        return np.asarray(photo.resize((width, height), resample))
    if prepared["resize"] == "pad":
        ratio = max(photo_height / height, photo_width / width)
        size = round(photo_width / ratio), round(photo_height / ratio)
        start, top = -((width - size[0]) // 2), -((height - size[1]) // 2)
    else:
        to_int = int if prepared["resize"] == "shortest_floor" else round
        if height == width:
            short_side = round(height / (prepared["crop"] or 1))
            long_side = int(short_side * max(photo_width, photo_height) / min(photo_width, photo_height))
            size = (short_side, long_side) if photo_width <= photo_height else (long_side, short_side)
        else:
            ratio = min(photo_height / height, photo_width / width) * (prepared["crop"] or 1)
            size = round(photo_width / ratio), round(photo_height / ratio)
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
