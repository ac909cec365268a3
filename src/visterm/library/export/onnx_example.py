"""Tag photos with an exported graph: `python tag_photo.py PHOTO ...`. Needs only onnxruntime, Pillow and NumPy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps

from visterm.encoders.preparation import views_of

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
    settings: Any = SimpleNamespace(**prepared)
    pictures = list(views_of(np.asarray(photo), settings, prepared["views"]))
    return pictures * (len(prepared["places"]) // len(pictures))


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
