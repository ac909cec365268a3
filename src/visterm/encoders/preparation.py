"""What a network sees of a photo, parts and sizes and numbers; and the row that is made of what it gives."""

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

Settings: TypeAlias = "dict[str, Any]"  # How a network takes pictures, by name, as JSON files and parameters say it
Numbers: TypeAlias = "NDArray[Any]"  # Of any type of number
IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
FILTERS: Final = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
"""How pictures are resized: each filter covers all the pixels that it shrinks into one."""
ORDERS: Final = ("RGB", "BGR")
MOST_SIDE: Final = 2**13  # Pixels of a picture's side: networks take hundreds

VIEWS = {"whole": (None,), "centre": (0.5,), "three": (None, 0.0, 1.0), "trained": (0.5,)}
"""What each name shows: None is the whole photo squeezed into the network's picture; a number is the largest picture of
the network's shape cut out, its place between the start (0) and the end (1) of the side that is too long. "trained"
cuts only the part of the middle that the network was evaluated on (`Preparation.crop`)."""

RESIZES: Final = ("shortest", "shortest_floor", "squash", "pad")
"""How the view "trained" shrinks a photo, where that is known to the pixel: so that its shortest side fits, and the
middle is cut out at whole pixels, as torchvision rounds them (open_clip, timm) or as transformers does
("shortest_floor"); whole and out of shape; or whole, with margins of the colour `fill`."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a network was trained to see; wrong values are refused by name."""

    size: tuple[int, int] = (224, 224)  # Height and width of its pictures, in pixels
    # Of red, green and blue. The network gets ``(scale · pixel - mean) / std``.
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    scale: float = 1 / 255  # What pixels of 0 to 255 are multiplied with before
    colours: str = "RGB"  # {"RGB", "BGR"}. The order in which it takes them.
    interpolation: str = "bilinear"  # {"bilinear", "bicubic", "lanczos"}. The filter that resizes photos.
    crop: float | None = 1.0  # The part of the middle that it was evaluated on; None: whole photos, squeezed
    resize: str | None = None  # One of `RESIZES`; None: the middle is cut out between pixels, in one step
    fill: float = 0  # The grey of margins, 0 to 255

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            object.__setattr__(self, name, check(getattr(self, name)))

    def numbers(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return what a network of floats takes for a picture of uint8, both of shape (height, width, 3)."""
        mean, std = (np.asarray(each, np.float32) for each in (self.mean, self.std))
        return self.ordered((picture * np.float32(self.scale) - mean) / std)

    def ordered(self, picture: Numbers) -> Numbers:
        """Put colours into the order that the network takes; no number changes."""
        return picture if self.colours == "RGB" else picture[..., ::-1]


def as_size(value: Any) -> tuple[int, int]:
    """Return height and width, from one side in pixels or both; refuse anything else."""
    sides = (value, value) if np.ndim(value) == 0 else tuple(value)
    if len(sides) != 2 or not all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and 0 < side <= MOST_SIDE for side in sides
    ):
        expected = f"a whole number, 1 to {MOST_SIDE}, or two: height and width"
        raise UserError(setting="size", value=value, expected=expected)
    return int(sides[0]), int(sides[1])


def as_colours(name: str, value: float | Sequence[float], *, above: float = -math.inf) -> tuple[float, float, float]:
    """Return numbers for red, green and blue, from one for all or three; refuse anything else."""
    wrong = UserError(setting=name, value=value, expected="a number, or three: for red, green and blue")
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise wrong from error

    if numbers.shape not in ((), (3,)) or not np.isfinite(numbers).all():
        raise wrong
    if numbers.min() <= above:
        raise UserError(setting=name, value=value, expected=f"numbers above {above:g}")
    red, green, blue = np.broadcast_to(numbers, (3,)).tolist()
    return red, green, blue


def as_choice(name: str, choices: Iterable[str], value: object) -> str:
    """Return a value that is one of some words; refuse anything else."""
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
    "colours": partial(as_choice, "colours", ORDERS),
    "interpolation": partial(as_choice, "interpolation", FILTERS),
    "crop": partial(_as_number, "crop", above=0, most=1, otherwise="or None for the whole photo"),
    "resize": lambda value: None if value is None else as_choice("resize", RESIZES, value),
    "fill": partial(_as_number, "fill", least=0, most=255),
}
"""What reads and checks each attribute of `Preparation`: the checks of parameters and of settings in files."""


def check_views(views: object) -> None:
    """Refuse a name that is not in `VIEWS`."""
    as_choice("views", VIEWS, views)


def views_of(photo: NDArray[np.uint8], preparation: Preparation, views: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the `views` (a name of `VIEWS`) of one photo, each resized in one step, by a filter for all it shrinks.

    A view is uint8, of `preparation.size`. Of a photo of the network's own shape there is only one.
    """
    image = Image.fromarray(photo)
    height, width = preparation.size
    if views == "trained" and preparation.resize is not None:
        resized, x, y = _resized_and_offset(image.size, preparation)
        picture = Image.new("RGB", (width, height), (round(preparation.fill),) * 3)
        picture.paste(image.resize(resized, FILTERS[preparation.interpolation]), (-x, -y))
        yield np.asarray(picture)
        return
    for box in boxes_of(image.size, preparation, views):
        yield np.asarray(image.resize((width, height), FILTERS[preparation.interpolation], box=box))


def boxes_of(size: tuple[int, int], preparation: Preparation, views: str) -> Iterator[Box | None]:
    """Yield left, top, right and bottom of what each view shows of a photo of some width and height; None is all.

    Of margins, they lie outside the photo.
    """
    if views == "trained" and preparation.resize is not None:
        resized, x, y = _resized_and_offset(size, preparation)
        wide, high = size[0] / resized[0], size[1] / resized[1]
        yield x * wide, y * high, (x + preparation.size[1]) * wide, (y + preparation.size[0]) * high
        return

    part = preparation.crop if views == "trained" else 1.0
    if part is None:
        yield None
        return
    height, width = preparation.size
    cut: tuple[float, float] = (size[0], size[0] * height / width)
    if cut[1] > size[1]:
        cut = (size[1] * width / height, size[1])
    if part == 1 and cut[0] == size[0] and cut[1] == size[1]:
        yield None
        return

    for share in VIEWS[views]:
        if share is None:
            yield None
            continue
        across, down = cut[0] * part, cut[1] * part
        x0, y0 = (size[0] - across) * share, (size[1] - down) * share
        yield x0, y0, min(x0 + across, size[0]), min(y0 + down, size[1])


def _resized_and_offset(size: tuple[int, int], preparation: Preparation) -> tuple[tuple[int, int], int, int]:
    """Return the width and height to which a photo is resized, and where the network's picture begins in that.

    The left and the top are below 0 where there are margins.
    """
    across, down = size
    height, width = preparation.size
    if preparation.resize == "squash":
        return (width, height), 0, 0
    if preparation.resize == "pad":
        ratio = max(down / height, across / width)
        fitted = round(across / ratio), round(down / ratio)
        return fitted, -((width - fitted[0]) // 2), -((height - fitted[1]) // 2)

    if height == width:
        short = round(height / (preparation.crop or 1))
        fitted = (short, int(short * down / across)) if across <= down else (int(short * across / down), short)
    else:
        shown = min(down / height, across / width) * (preparation.crop or 1)
        fitted = round(across / shown), round(down / shown)
    to_whole = int if preparation.resize == "shortest_floor" else round
    return fitted, to_whole((fitted[0] - width) / 2), to_whole((fitted[1] - height) / 2)


SAME = 1e-3  # Share of the mean size of what is averaged, by which averages may differ: of networks of 16 bits, too
POOLINGS = ("mean", "class", "both", "before_classes")
"""How an output becomes a row: the mean of its tokens, the first of them (the class token), that beside the mean of the
others; or what goes into the layer of classes, of which the output is the last."""


def pooled(
    out: Numbers, n_pictures: int, what: str, *, channels_last: bool = False, pooling: str | None = None
) -> NDArray[np.float32]:
    """Return the rows of an output, float32 (n_pictures, n_features).

    The output is rows, tokens (n_pictures, n_tokens, n_features), or maps, with `channels_last` of shape (n_pictures,
    height, width, n_features) and else (n_pictures, n_features, height, width). `pooling` is one of `POOLINGS`, and
    None is "mean". Raises UserError if the output has no tokens to take the class token of; DataError, with `what` as
    the output's name, if it is not finite, or has another shape.
    """
    if out.ndim not in (2, 3, 4) or out.shape[0] != n_pictures or not out.size:
        raise DataError(
            f"{what} has the shape {out.shape} for {n_pictures} images; expected (images, features), "
            "(images, tokens, features), or maps. Choose another output."
        )

    rows: NDArray[np.float32] = out.astype(np.float32)
    if pooling in ("class", "both"):
        if rows.ndim != 3:
            problem = f"pooling is '{pooling}', but {what} has no tokens: it is {out.shape}."
            raise UserError(problem, setting="pooling", value=pooling, advice="Leave it out.")
        rest = [rows[:, 1:].mean(axis=1)] if pooling == "both" else []
        rows = np.concatenate([rows[:, 0], *rest], axis=1)

    if rows.ndim == 4:
        rows = rows.mean(axis=(1, 2) if channels_last else (2, 3))
    elif rows.ndim == 3:
        rows = rows.mean(axis=1)
    if not np.isfinite(rows).all():
        raise DataError(
            f"{what} holds NaN or infinity. Check mean, std and scale of the network, or choose another output."
        )
    return rows


def map_averaging_to(tensor: Numbers, row: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return a tensor of one picture as the map (height, width, n_features) that averages to a row; None if it doesn't.

    Maps are (height, width, n_features) or (n_features, height, width): the layout is the one that fits the row.
    """
    if tensor.ndim != 3:
        return None
    floats = tensor.astype(np.float32)
    for laid in (np.moveaxis(floats, 0, 2), floats):
        if laid.shape[2] == len(row):
            within = SAME * float(np.abs(laid).mean()) + np.finfo(np.float32).tiny
            if np.abs(laid.mean(axis=(0, 1), dtype=np.float64) - row).max() <= within:
                return np.ascontiguousarray(laid)
    return None


def channels_last(
    axes: tuple[int, ...], size: tuple[int, int], *, declared: Sequence[object], pictures_last: bool, what: str
) -> bool:
    """Return whether a map is (height, width, channels), and not (channels, height, width), by its axes' lengths.

    Height and width are those of the picture (`size`) divided by the same number. Where both pairs of axes are, or
    neither is, the channels are the axis that the graph alone declares (of `declared`, the three axes behind the
    images, those that are no whole number may have any length); and else first if those of the pictures are, as ONNX's
    own nodes have them. Raises UserError, with `what` as the output's name, if nothing says it.
    """
    first, last = _is_picture(axes[1:], size), _is_picture(axes[:2], size)
    if first != last:
        return last
    fixed = [isinstance(axis, int) for axis in declared]
    if fixed in ([True, False, False], [False, False, True]):
        return fixed[2]

    if pictures_last:
        raise UserError(
            f"{what} is maps of the axes {axes}, and nothing says which of these are the channels.", setting="layout",
            advice='Say it of pictures and of maps: `encoder.layout`=("channels_last", "channels_first"), or '
            '"channels_last" twice.',
        )  # fmt: skip
    return False


def _is_picture(axes: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Return whether two axes are the picture's sides divided by one number of at least 1, both rounded alike."""
    if size[0] == size[1]:
        return axes[0] == axes[1] <= size[0]
    sides = list(zip(size, axes, strict=True))
    exact = [side / axis for side, axis in sides]
    down = max(side / (axis + 1) for side, axis in sides) < min(exact)
    up = max(exact) < min(side / (axis - 1) if axis > 1 else math.inf for side, axis in sides)
    return (down or up) and max(exact) >= 1
