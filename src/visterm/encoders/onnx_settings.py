"""Settings of an ONNX network from JSON files next to it and from its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from visterm.core.errors import DataError, UserError
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.encoders.preparation import CHECKS, POOLINGS, Settings, as_choice

LAYOUTS: Final = ("channels_first", "channels_last")
OPEN_CLIP: Final = "preprocess_cfg.json"
TRANSFORMERS: Final = "preprocessor_config.json"
_RESIZE_MODES: Final = {"shortest": "shortest", "squash": "squash", "longest": "pad"}
_FILTERS: Final = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_CONVNEXT_SQUEEZE_SIZE: Final = 384  # Minimum size at which its image processor squeezes whole photos


def settings_beside(path: str | os.PathLike[str]) -> Settings:
    """Read the settings files next to NETWORK.onnx, which say how the network takes pictures.

    These are NETWORK.json, whose keys are in docs/encoders_networks.md, and for keys that it omits the
    ``preprocess_cfg.json`` of open_clip or the ``preprocessor_config.json`` of transformers. Without any file, the
    settings are empty. Raises DataError if a file is not a JSON object, or has an unknown key or an invalid value.
    """
    file = Path(path).with_suffix(".json")
    settings = _read(file) if file.exists() else {}
    try:
        check_settings(settings)
    except UserError as error:
        raise DataError(f"{file}: {error}") from error

    folders = [file.parent, *([file.parent.parent] if file.parent.name == "onnx" else [])]
    candidates = (folder / name for folder in folders for name in (OPEN_CLIP, TRANSFORMERS))
    foreign_file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if foreign_file is None:
        return settings

    try:
        convert = open_clip_settings if foreign_file.name == OPEN_CLIP else transformers_settings
        foreign_settings = convert(_read(foreign_file))
        check_settings(foreign_settings)
    except (UserError, TypeError) as error:
        raise DataError(f"{foreign_file}: {error} Name the settings in {file}, and remove this file.") from error
    return {**foreign_settings, **settings}


def _read(file: Path) -> Settings:
    try:
        settings = json.loads(read_regular_text(file, MB))
    except OSError as error:
        raise DataError(f"{file}, which should say how to prepare images, cannot be read: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON: {error}. It should say how to prepare images.") from error
    if not isinstance(settings, dict):
        raise DataError(f"{file} holds a {type(settings).__name__}; expected a JSON object: {_EXAMPLE}.")
    return settings


def open_clip_settings(config: Settings) -> Settings:
    """Return the settings in a ``preprocess_cfg.json``. Raises UserError if one is not supported."""
    mode = config.get("resize_mode") or "shortest"
    if mode not in _RESIZE_MODES:
        raise UserError(setting="resize_mode", value=mode, expected=f"one of {', '.join(_RESIZE_MODES)}")
    key_map = {"size": "size", "mean": "mean", "std": "std", "interpolation": "interpolation", "fill_color": "fill"}
    settings = {key: config[foreign_key] for foreign_key, key in key_map.items() if config.get(foreign_key) is not None}
    if isinstance(settings.get("size"), list) and len(settings["size"]) == 1:
        settings["size"] = settings["size"][0]
    return {**settings, "resize": _RESIZE_MODES[mode]}


def transformers_settings(config: Settings) -> Settings:
    """Return the settings in a ``preprocessor_config.json``. Raises UserError if one is not supported."""
    settings: Settings = {}
    resample = config.get("resample")
    if resample is not None:
        if resample not in _FILTERS:
            raise UserError(setting="resample", value=resample, expected=f"one of {', '.join(map(str, _FILTERS))}")
        settings["interpolation"] = _FILTERS[resample]
    settings["scale"] = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0

    if not config.get("do_normalize", True):
        settings |= {"mean": 0.0, "std": 1.0}
    elif "image_mean" in config and "image_std" in config:
        settings |= {"mean": config["image_mean"], "std": config["image_std"]}
    return settings | _resizing(config)


def _resizing(config: Settings) -> Settings:
    short_edge, sides = _edges(config.get("size"))
    _, crop = _edges(config.get("crop_size"), square=True)
    if not config.get("do_resize", True) or config.get("do_pad"):
        raise UserError("do_resize is off, or do_pad on, which is not supported; expected photos of one size.")

    if config.get("do_center_crop") and crop is not None:
        if short_edge is not None and crop[0] == crop[1] <= short_edge:
            return {"size": crop[0], "resize": "shortest_floor", "crop": crop[0] / short_edge}
        if sides == crop:
            return {"size": list(crop), "resize": "squash"}
    elif sides is not None:
        return {"size": list(sides), "resize": "squash"}
    elif short_edge is not None and config.get("crop_pct") is not None:
        is_large = short_edge >= _CONVNEXT_SQUEEZE_SIZE
        return {"size": short_edge, "resize": "squash" if is_large else "shortest_floor", "crop": config["crop_pct"]}

    raise UserError(
        f"size {config.get('size')!r} with crop_size {config.get('crop_size')!r} is not understood; expected height "
        "and width, or a shortest edge and the crop."
    )


def _edges(size: Any, *, square: bool = False) -> tuple[int | None, tuple[int, int] | None]:
    """Return the shortest edge, or height and width, from a size of transformers; a number is the shortest edge."""
    if isinstance(size, int):
        return (None, (size, size)) if square else (size, None)
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return None, (size["height"], size["width"])
    if isinstance(size, Mapping) and size.keys() == {"shortest_edge"}:
        return size["shortest_edge"], None
    return None, None


def check_settings(settings: Settings) -> None:
    """Refuse unknown settings of a network and invalid values."""
    for key, value in settings.items():
        if key not in _READERS:
            raise UserError(unknown("key", key, list(_READERS)))
        _READERS[key](value)


def embedded_settings(metadata: Mapping[str, str]) -> Settings:
    """Read the image metadata of the ONNX standard (MetadataProps, image category).

    Return ``colours``, ``scale``, ``mean`` and ``std`` as far as ``Image.BitmapPixelFormat`` and
    ``Image.NominalPixelRange`` define them; values outside the standard are ignored.
    """
    colours = _PIXEL_FORMATS.get(metadata.get("Image.BitmapPixelFormat", ""))
    numbers = _PIXEL_RANGES.get(metadata.get("Image.NominalPixelRange", ""), {})
    return {**numbers, **({} if colours is None else {"colours": colours})}


def as_layout(value: object) -> tuple[str, str]:
    """Return the layouts of pictures and of maps, from a single name for both or a pair; refuse other names."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or any(not isinstance(name, str) or name not in LAYOUTS for name in pair):
        expected = f"one of {', '.join(LAYOUTS)}, or two: of the pictures that go in, and of the maps that come out"
        raise UserError(setting="layout", value=value, expected=expected)
    return pair


def _as_output(value: object) -> str:
    if not isinstance(value, str):
        raise UserError(setting="output", value=value, expected="the name of an output")
    return value


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **CHECKS,
    "layout": as_layout,
    "output": _as_output,
    "pooling": partial(as_choice, "pooling", POOLINGS),
}
_EXAMPLE: Final = '{"size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
_PIXEL_FORMATS: Final = {"Rgb8": "RGB", "Bgr8": "BGR"}
_PIXEL_RANGES: Final[dict[str, dict[str, float]]] = {
    "NominalRange_0_255": {"scale": 1.0, "mean": 0.0, "std": 1.0},
    "Normalized_0_1": {"scale": 1 / 255, "mean": 0.0, "std": 1.0},
    "Normalized_1_1": {"scale": 1 / 127.5, "mean": 1.0, "std": 1.0},
}
