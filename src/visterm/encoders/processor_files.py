"""How a network takes photos, read from the files that transformers and open_clip put beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from visterm.core.errors import UserError

OPEN_CLIP: Final = "preprocess_cfg.json"
TRANSFORMERS: Final = "preprocessor_config.json"
_RESIZES: Final = {"shortest": "shortest", "squash": "squash", "longest": "pad"}
_RESAMPLE: Final = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_CONVNEXT_WHOLE: Final = 384  # From this size on, its image processor squeezes whole photos


def processor_file(path: Path) -> Path | None:
    """Return the file that says how photos are prepared for a network: beside it, or beside its folder ``onnx``."""
    folders = [path.parent, *([path.parent.parent] if path.parent.name == "onnx" else [])]
    return next((f / name for f in folders for name in (OPEN_CLIP, TRANSFORMERS) if (f / name).is_file()), None)


def of_open_clip(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a ``preprocess_cfg.json`` names. Raises UserError if it does what we cannot."""
    mode = config.get("resize_mode") or "shortest"
    if mode not in _RESIZES:
        raise UserError(f"resize_mode is {mode!r}; expected one of {', '.join(map(repr, _RESIZES))}.")
    named = {"size": "size", "mean": "mean", "std": "std", "interpolation": "interpolation", "fill_color": "fill"}
    found = {ours: config[theirs] for theirs, ours in named.items() if config.get(theirs) is not None}
    if isinstance(found.get("size"), list) and len(found["size"]) == 1:
        found["size"] = found["size"][0]
    return {**found, "resize": _RESIZES[mode]}


def of_transformers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a ``preprocessor_config.json`` names. Raises UserError if it does what we cannot."""
    found: dict[str, Any] = {}
    resample = config.get("resample")
    if resample is not None:
        if resample not in _RESAMPLE:
            raise UserError(f"resample is {resample!r}; expected one of {', '.join(map(str, _RESAMPLE))}.")
        found["interpolation"] = _RESAMPLE[resample]
    if config.get("do_rescale", True):
        found["scale"] = config.get("rescale_factor", 1 / 255)
    else:
        found["scale"] = 1.0
    if not config.get("do_normalize", True):
        found |= {"mean": 0.0, "std": 1.0}
    elif "image_mean" in config and "image_std" in config:
        found |= {"mean": config["image_mean"], "std": config["image_std"]}
    return found | _resizing(config)


def _resizing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``size``, ``resize`` and ``crop``."""
    short, sides = _edges(config.get("size"))
    _, cut = _edges(config.get("crop_size"), square=True)
    if not config.get("do_resize", True) or config.get("do_pad"):
        raise UserError("do_resize is off, or do_pad on, which is not understood; expected photos of one size.")
    if config.get("do_center_crop") and cut is not None:
        if short is not None and cut[0] == cut[1] <= short:
            return {"size": cut[0], "resize": "shortest_floor", "crop": cut[0] / short}
        if sides == cut:
            return {"size": list(cut), "resize": "squash"}
    elif sides is not None:
        return {"size": list(sides), "resize": "squash"}
    elif short is not None and config.get("crop_pct") is not None:
        whole = short >= _CONVNEXT_WHOLE
        return {"size": short, "resize": "squash" if whole else "shortest_floor", "crop": config["crop_pct"]}
    raise UserError(
        f"size {config.get('size')!r} with crop_size {config.get('crop_size')!r} is not understood; expected height "
        "and width, or a shortest edge and the crop."
    )


def _edges(given: Any, *, square: bool = False) -> tuple[int | None, tuple[int, int] | None]:
    """Return the shortest edge, or height and width, as transformers names them; a number is the shortest edge."""
    if isinstance(given, int):
        return (None, (given, given)) if square else (given, None)
    if isinstance(given, Mapping) and {"height", "width"} <= given.keys():
        return None, (given["height"], given["width"])
    if isinstance(given, Mapping) and given.keys() == {"shortest_edge"}:
        return given["shortest_edge"], None
    return None, None
