"""What is known of an ONNX network beyond its graph: a small JSON file beside it, and its own metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from visterm.core.checks import check_choice
from visterm.core.errors import DataError, UserError
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.encoders.pooling import POOLINGS
from visterm.encoders.preparation import CHECKS
from visterm.encoders.processor_files import OPEN_CLIP, of_open_clip, of_transformers, processor_file

LAYOUTS: Final = ("channels_first", "channels_last")


def settings_beside(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what lies beside NETWORK.onnx: how the network takes pictures, where its own file does not say.

    That is NETWORK.json, and what it leaves out is read from the ``preprocess_cfg.json`` of open_clip or the
    ``preprocessor_config.json`` of transformers. NETWORK.json is
    one JSON object; each key may be left out: ``size`` (pixels, or [height, width]), ``mean`` and ``std`` (a number, or
    [red, green, blue]), ``scale``, ``colours`` ("RGB" or "BGR"), ``layout`` ("channels_first" or "channels_last", or
    both: that of the pictures that go in and that of the maps that come out), ``interpolation`` ("bilinear", "bicubic"
    or "lanczos"), ``crop`` (the part of the middle that the network was evaluated on, or null for whole photos),
    ``resize`` (one of `preparation.RESIZES`), ``fill`` (the grey of margins), ``output`` (the output to read) and
    ``pooling`` (one of `pooling.POOLINGS`). Without a file the settings are empty. Raises DataError if a file is not a
    JSON object, has an unknown key, or a value that cannot be.
    """
    file = Path(path).with_suffix(".json")
    own = _read(file) if file.exists() else {}
    try:
        check_settings(own)
    except UserError as error:
        raise DataError(f"{file}: {error}") from error
    beside = processor_file(Path(path))
    if beside is None:
        return own
    try:
        theirs = (of_open_clip if beside.name == OPEN_CLIP else of_transformers)(_read(beside))
        check_settings(theirs)
    except (UserError, TypeError) as error:
        raise DataError(f"{beside}: {error} Name the settings in {file}, and remove this file.") from error
    return {**theirs, **own}


def _read(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises DataError if the file holds none."""
    try:
        text = read_regular_text(file, MB)
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


def _as_pooling(value: Any) -> str:
    """Return the name of a pooling; refuse others."""
    check_choice(value, "pooling", POOLINGS)
    return str(value)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **CHECKS,
    "layout": as_layout,
    "output": _as_output,
    "pooling": _as_pooling,
}
_EXAMPLE: Final = '{"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
_PIXEL_FORMATS: Final = {"Rgb8": "RGB", "Bgr8": "BGR"}
_PIXEL_RANGES: Final[dict[str, dict[str, float]]] = {
    "NominalRange_0_255": {"scale": 1.0, "mean": 0.0, "std": 1.0},
    "Normalized_0_1": {"scale": 1 / 255, "mean": 0.0, "std": 1.0},
    "Normalized_1_1": {"scale": 1 / 127.5, "mean": 1.0, "std": 1.0},
}
