"""Prepare photos for a network (views, sizes, numbers), and turn its outputs into rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.checks import check_choice, check_number
from visterm.core.errors import DataError, UserError

Settings: TypeAlias = "dict[str, Any]"  # Settings of `Preparation`, from JSON files and parameters
Numbers: TypeAlias = "NDArray[Any]"  # An array of any numeric type
IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
RESIZE_FILTERS: Final = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
"""Filters for resizing, all with antialiasing."""
CHANNEL_ORDERS: Final = ("RGB", "BGR")
MAX_SIDE: Final = 2**13  # Maximum side of a picture in pixels: usual networks have hundreds

VIEWS = {"whole": (None,), "centre": (0.5,), "three": (None, 0.0, 1.0), "trained": (0.5,)}
"""Kind of view -> the positions of its pictures. None is the whole photo, squeezed into the network's picture; a number
is the largest crop of the network's shape, from the start (0) to the end (1) of the longer side. "trained" only crops
the central part on which the network was evaluated (`Preparation.crop`)."""

RESIZES: Final = ("shortest", "shortest_floor", "squash", "pad")
"""How the view "trained" resizes a photo, if this is known to the pixel. The shortest side fits and the centre is
cropped at whole pixels, rounded as in torchvision (open_clip, timm) or as in transformers ("shortest_floor"); the whole
photo is squeezed ("squash"); or the whole photo gets margins of the colour `fill` ("pad")."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a network's pictures were prepared in training; invalid values raise UserError."""

    size: tuple[int, int] = (224, 224)  # Height and width of the network's pictures, in pixels
    # For red, green and blue. The network gets ``(scale · pixel - mean) / std``.
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    scale: float = 1 / 255  # Factor of the pixels, which are 0 to 255
    colours: str = "RGB"  # {"RGB", "BGR"}. The order of the channels.
    interpolation: str = "bilinear"  # {"bilinear", "bicubic", "lanczos"}. The filter that resizes photos.
    crop: float | None = 1.0  # Share of the central part in the network's evaluation; None: whole photos, squeezed
    resize: str | None = None  # One of `RESIZES`; None: crop and resize in one step, not at whole pixels
    fill: float = 0  # Grey level of margins, 0 to 255

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            object.__setattr__(self, name, check(getattr(self, name)))

    def numbers(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the input of a float network for a uint8 picture, both of shape (height, width, 3)."""
        mean, std = (np.asarray(values, np.float32) for values in (self.mean, self.std))
        return self.ordered((picture * np.float32(self.scale) - mean) / std)

    def ordered(self, picture: Numbers) -> Numbers:
        """Put the channels into the network's order, without changing values."""
        return picture if self.colours == "RGB" else picture[..., ::-1]


def as_size(value: Any) -> tuple[int, int]:
    """Return height and width from a single number of pixels or a pair. Raises UserError for anything else."""
    sides = (value, value) if np.ndim(value) == 0 else tuple(value)
    if len(sides) != 2 or not all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and 0 < side <= MAX_SIDE for side in sides
    ):
        expected = f"a whole number, 1 to {MAX_SIDE}, or two: height and width"
        raise UserError(setting="size", value=value, expected=expected)
    return int(sides[0]), int(sides[1])


def as_colours(name: str, value: float | Sequence[float], *, above: float = -math.inf) -> tuple[float, float, float]:
    """Return numbers for red, green and blue from a single number or three. Raises UserError for anything else."""
    error_to_raise = UserError(setting=name, value=value, expected="a number, or three: for red, green and blue")
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise error_to_raise from error

    if numbers.shape not in ((), (3,)) or not np.isfinite(numbers).all():
        raise error_to_raise
    if numbers.min() <= above:
        raise UserError(setting=name, value=value, expected=f"numbers above {above:g}")
    red, green, blue = np.broadcast_to(numbers, (3,)).tolist()
    return red, green, blue


def as_choice(name: str, choices: Iterable[str], value: object) -> str:
    """Return `value` if it is one of `choices`. Raises UserError for anything else."""
    check_choice(value, name, choices)
    return str(value)


def _as_number(name: str, value: Any, **bounds: Any) -> float | None:
    check_number(value, name, **bounds)
    return None if value is None else float(value)


CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "size": as_size,
    "mean": partial(as_colours, "mean"),
    "std": partial(as_colours, "std", above=0),
    "scale": partial(_as_number, "scale", above=0),
    "colours": partial(as_choice, "colours", CHANNEL_ORDERS),
    "interpolation": partial(as_choice, "interpolation", RESIZE_FILTERS),
    "crop": partial(_as_number, "crop", above=0, most=1, otherwise="or None for the whole photo"),
    "resize": lambda value: None if value is None else as_choice("resize", RESIZES, value),
    "fill": partial(_as_number, "fill", least=0, most=255),
}
"""Functions that check and convert the attributes of `Preparation`, from parameters and from files."""


def views_of(photo: NDArray[np.uint8], preparation: Preparation, views: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of one photo for `views`, a name of `VIEWS`, each resized in one step.

    A picture is uint8, of `preparation.size`. A photo with the network's aspect ratio has only one picture.
    """
    image = Image.fromarray(photo)
    height, width = preparation.size
    if views == "trained" and preparation.resize is not None:
        resized_size, x, y = _resized_and_offset(image.size, preparation)
        picture = Image.new("RGB", (width, height), (round(preparation.fill),) * 3)
        picture.paste(image.resize(resized_size, RESIZE_FILTERS[preparation.interpolation]), (-x, -y))
        yield np.asarray(picture)
        return
    for box in boxes_of(image.size, preparation, views):
        yield np.asarray(image.resize((width, height), RESIZE_FILTERS[preparation.interpolation], box=box))


def boxes_of(size: tuple[int, int], preparation: Preparation, views: str) -> Iterator[Box | None]:
    """Yield left, top, right and bottom of each view in a photo of `size`, (width, height); None is the whole photo.

    With margins, the box extends beyond the photo.
    """
    if views == "trained" and preparation.resize is not None:
        resized_size, x, y = _resized_and_offset(size, preparation)
        x_scale, y_scale = size[0] / resized_size[0], size[1] / resized_size[1]
        yield x * x_scale, y * y_scale, (x + preparation.size[1]) * x_scale, (y + preparation.size[0]) * y_scale
        return

    crop_share = preparation.crop if views == "trained" else 1.0
    if crop_share is None:
        yield None
        return
    height, width = preparation.size
    crop_size: tuple[float, float] = (size[0], size[0] * height / width)
    if crop_size[1] > size[1]:
        crop_size = (size[1] * width / height, size[1])
    if crop_share == 1 and crop_size[0] == size[0] and crop_size[1] == size[1]:
        yield None
        return

    for position in VIEWS[views]:
        if position is None:
            yield None
            continue
        crop_width, crop_height = crop_size[0] * crop_share, crop_size[1] * crop_share
        x0, y0 = (size[0] - crop_width) * position, (size[1] - crop_height) * position
        yield x0, y0, min(x0 + crop_width, size[0]), min(y0 + crop_height, size[1])


def _resized_and_offset(size: tuple[int, int], preparation: Preparation) -> tuple[tuple[int, int], int, int]:
    """Return the width and height that a photo is resized to, and left and top of the network's picture in it.

    Left and top are negative if there are margins.
    """
    w, h = size
    height, width = preparation.size
    if preparation.resize == "squash":
        return (width, height), 0, 0
    if preparation.resize == "pad":
        ratio = max(h / height, w / width)
        fitted_size = round(w / ratio), round(h / ratio)
        return fitted_size, -((width - fitted_size[0]) // 2), -((height - fitted_size[1]) // 2)

    if height == width:
        short = round(height / (preparation.crop or 1))
        fitted_size = (short, int(short * h / w)) if w <= h else (int(short * w / h), short)
    else:
        ratio = min(h / height, w / width) * (preparation.crop or 1)
        fitted_size = round(w / ratio), round(h / ratio)
    to_int = int if preparation.resize == "shortest_floor" else round
    return fitted_size, to_int((fitted_size[0] - width) / 2), to_int((fitted_size[1] - height) / 2)


MEAN_TOLERANCE = 1e-3  # Tolerance of averages relative to the mean absolute value; enough for float16 networks too
POOLINGS = ("mean", "class", "both", "before_classes")
"""How an output becomes a row: the mean of its tokens, the first token (the class token), the class token followed by
the mean of the other tokens ("both"), or the input of the final layer of classes."""


def pooled(
    out: Numbers, n_pictures: int, label: str, *, channels_last: bool = False, pooling: str | None = None
) -> NDArray[np.float32]:
    """Return the rows of an output, float32 (n_pictures, n_features).

    The output is rows, tokens (n_pictures, n_tokens, n_features), or maps: (n_pictures, height, width, n_features) with
    `channels_last` and otherwise (n_pictures, n_features, height, width). `pooling` is one of `POOLINGS`; None means
    "mean". Raises UserError if the class token is requested but the output has no tokens; DataError if the output is
    not finite or has another shape. `label` names the output in messages.
    """
    if out.ndim not in (2, 3, 4) or out.shape[0] != n_pictures or not out.size:
        raise DataError(
            f"{label} has the shape {out.shape} for {n_pictures} images; expected (images, features), "
            "(images, tokens, features), or maps. Choose another output."
        )

    rows: NDArray[np.float32] = out.astype(np.float32)
    if pooling in ("class", "both"):
        if rows.ndim != 3:
            problem = f"pooling is '{pooling}', but {label} has no tokens: it is {out.shape}."
            raise UserError(problem, setting="pooling", value=pooling, advice="Leave it out.")
        rest_mean = [rows[:, 1:].mean(axis=1)] if pooling == "both" else []
        rows = np.concatenate([rows[:, 0], *rest_mean], axis=1)

    if rows.ndim == 4:
        rows = rows.mean(axis=(1, 2) if channels_last else (2, 3))
    elif rows.ndim == 3:
        rows = rows.mean(axis=1)
    if not np.isfinite(rows).all():
        raise DataError(f"{label} has NaN or infinity. Check its mean, std and scale, or choose another output.")
    return rows


def map_averaging_to(tensor: Numbers, row: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return a tensor as a map (height, width, n_features) if its average is `row`; else None.

    The tensor may have the features first or last: the layout that fits the row is used.
    """
    if tensor.ndim != 3:
        return None
    floats = tensor.astype(np.float32)
    for candidate in (np.moveaxis(floats, 0, 2), floats):
        if candidate.shape[2] == len(row):
            tolerance = MEAN_TOLERANCE * float(np.abs(candidate).mean()) + np.finfo(np.float32).tiny
            if np.abs(candidate.mean(axis=(0, 1), dtype=np.float64) - row).max() <= tolerance:
                return np.ascontiguousarray(candidate)
    return None


def channels_last(axes: tuple[int, ...], size: tuple[int, int], *, pictures_last: bool, label: str) -> bool:
    """Return whether a map with these axes is (height, width, channels) and not (channels, height, width).

    Height and width of a map are those of the picture (`size`) divided by the same number. If this fits both layouts or
    no layout, the channels are first if the channels of the pictures are first, as in ONNX's own operators. Raises
    UserError, with `label` as the output's name, if the layout remains unknown.
    """
    fits_first, fits_last = _is_picture(axes[1:], size), _is_picture(axes[:2], size)
    if fits_first != fits_last:
        return fits_last
    if pictures_last:
        raise UserError(
            f"{label} has maps with the axes {axes}, and it is unknown which axis has the channels.", setting="layout",
            advice='Set the layouts of pictures and of maps: `encoder.layout`=("channels_last", "channels_first"), or '
            '"channels_last" for both.',
        )  # fmt: skip
    return False


def _is_picture(axes: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Return whether two axes are the picture's sides divided by a number >= 1, both rounded the same way."""
    if size[0] == size[1]:
        return axes[0] == axes[1] <= size[0]
    sides = list(zip(size, axes, strict=True))
    ratios = [side / axis for side, axis in sides]
    rounded_down = max(side / (axis + 1) for side, axis in sides) < min(ratios)
    rounded_up = max(ratios) < min(side / (axis - 1) if axis > 1 else math.inf for side, axis in sides)
    return (rounded_down or rounded_up) and max(ratios) >= 1
