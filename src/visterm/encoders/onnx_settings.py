"""What is known of an ONNX network beyond its graph: a small JSON file beside it, and its own metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from visterm.core.errors import DataError, UserError
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.encoders.preparation import CHECKS

LAYOUTS: Final = ("channels_first", "channels_last")


def settings_beside(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read NETWORK.json beside NETWORK.onnx: how the network takes pictures, where its own file does not say.

    One JSON object; each key may be left out: ``size`` (pixels, or [height, width]), ``mean`` and ``std`` (a number, or
    [red, green, blue]), ``scale``, ``colours`` ("RGB" or "BGR"), ``layout`` ("channels_first" or "channels_last", or
    both: that of the pictures that go in and that of the maps that come out), ``interpolation`` ("bilinear", "bicubic"
    or "lanczos"), ``crop`` (the part of the middle that the network was evaluated on, or null for whole photos) and
    ``output`` (the output to read). Without a file the settings are empty. Raises DataError if it is not a JSON object,
    has an unknown key, or a value that cannot be.
    """
    file = Path(path).with_suffix(".json")
    try:
        text = read_regular_text(file, MB)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}, which should say how to prepare images, cannot be read: {error}.") from error
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file} is not JSON: {error}. It should say how to prepare images, or not be there."
        ) from error
    if not isinstance(settings, dict):
        raise DataError(f"{file} holds a {type(settings).__name__}; expected a JSON object: {_EXAMPLE}.")
    try:
        check_settings(settings)
    except UserError as error:
        raise DataError(f"{file}: {error}") from error
    return settings


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a network that are not known, or have a value that cannot be."""
    for key, value in settings.items():
        if key not in _READERS:
            raise UserError(unknown("key", key, list(_READERS)))
        _READERS[key](value)


def settings_inside(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Read the image metadata that the ONNX standard names (MetadataProps, image category).

    Return some of ``colours``, ``scale``, ``mean`` and ``std``, from ``Image.BitmapPixelFormat`` and
    ``Image.NominalPixelRange``; values that the standard does not name say nothing.
    """
    colours = _PIXEL_FORMATS.get(metadata.get("Image.BitmapPixelFormat", ""))
    numbers = _PIXEL_RANGES.get(metadata.get("Image.NominalPixelRange", ""), {})
    return {**numbers, **({} if colours is None else {"colours": colours})}


def as_layout(value: Any) -> tuple[str, str]:
    """Return the layouts of pictures and of maps, from the name of one for both or from a pair; refuse other names."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or any(not isinstance(name, str) or name not in LAYOUTS for name in pair):
        raise UserError(
            f"layout is {value!r}; expected one of {', '.join(map(repr, LAYOUTS))}, or two: of the pictures that go "
            "in, and of the maps that come out."
        )
    return pair


def _as_output(value: Any) -> str:
    """Return the name of an output; refuse what is no text."""
    if not isinstance(value, str):
        raise UserError(f"output is {value!r}; expected the name of an output.")
    return value


_READERS: Final[dict[str, Callable[[Any], Any]]] = {**CHECKS, "layout": as_layout, "output": _as_output}
_EXAMPLE: Final = '{"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
_PIXEL_FORMATS: Final = {"Rgb8": "RGB", "Bgr8": "BGR"}
_PIXEL_RANGES: Final[dict[str, dict[str, float]]] = {
    "NominalRange_0_255": {"scale": 1.0, "mean": 0.0, "std": 1.0},
    "Normalized_0_1": {"scale": 1 / 255, "mean": 0.0, "std": 1.0},
    "Normalized_1_1": {"scale": 1 / 127.5, "mean": 1.0, "std": 1.0},
}
