"""The pictures that a network sees of a photo: which parts, at which size, and the numbers that pixels become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.checks import check_number
from visterm.core.errors import UserError

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
    crop: float | None = 1.0
    """The part of the middle that it was evaluated on, up to 1; None: whole photos, squeezed. For the view
    "trained"."""
    resize: str | None = None  # One of `RESIZES`; None: the middle is cut out between pixels, in one step
    fill: float = 0  # The grey of margins, 0 to 255

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            object.__setattr__(self, name, check(getattr(self, name)))

    def numbers(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return what a network of floats takes for a picture of uint8, both of shape (height, width, 3)."""
        mean, std = (np.asarray(each, np.float32) for each in (self.mean, self.std))
        values = (picture * np.float32(self.scale) - mean) / std
        return self.ordered(values)

    def ordered(self, picture: NDArray[Any]) -> NDArray[Any]:
        """Put colours into the order that the network takes; no number changes."""
        return picture if self.colours == "RGB" else picture[..., ::-1]


def as_size(value: Any) -> tuple[int, int]:
    """Return height and width, from one side in pixels or both; refuse anything else."""
    sides = (value, value) if np.ndim(value) == 0 else tuple(value)
    if len(sides) != 2 or not all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and 0 < side <= MOST_SIDE for side in sides
    ):
        raise UserError(
            f"size is {value!r}; expected a whole number of pixels, 1 to {MOST_SIDE}, or two: height and width."
        )
    return int(sides[0]), int(sides[1])


def as_colours(name: str, value: float | Sequence[float]) -> tuple[float, float, float]:
    """Return numbers for red, green and blue, from one for all or three; refuse anything else."""
    wrong = UserError(f"{name} is {value!r}; expected a number, or three: for red, green and blue.")
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise wrong from error
    if numbers.shape not in ((), (3,)) or not np.isfinite(numbers).all():
        raise wrong
    red, green, blue = np.broadcast_to(numbers, (3,)).tolist()
    return red, green, blue


def _as_divisors(value: float | Sequence[float]) -> tuple[float, float, float]:
    numbers = as_colours("std", value)
    if min(numbers) <= 0:
        raise UserError(f"std is {value!r}; expected numbers above 0.")
    return numbers


def _as_scale(value: Any) -> float:
    check_number(value, "scale", above=0)
    return float(value)


def _as_crop(value: Any) -> float | None:
    """Return the part of the middle that is shown; None for all."""
    if value is None:
        return None
    check_number(value, "crop", above=0, otherwise="at most 1, or None for the whole photo")
    if value > 1:
        raise UserError(f"crop is {value!r}; expected at most 1, the part of the middle that is shown.")
    return float(value)


def _as_grey(value: Any) -> float:
    check_number(value, "fill", least=0, most=255)
    return float(value)


def _one_of(name: str, value: Any, known: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise UserError(f"{name} is {value!r}; expected one of {', '.join(map(repr, known))}.")
    return value


CHECKS: Final = {
    "size": as_size,
    "mean": lambda value: as_colours("mean", value),
    "std": _as_divisors,
    "scale": _as_scale,
    "colours": lambda value: _one_of("colours", value, ORDERS),
    "interpolation": lambda value: _one_of("interpolation", value, FILTERS),
    "crop": _as_crop,
    "resize": lambda value: None if value is None else _one_of("resize", value, RESIZES),
    "fill": _as_grey,
}
"""What reads and checks each attribute of `Preparation`: the checks of parameters and of settings in files."""


def check_views(views: Any) -> None:
    """Refuse a name that is not in `VIEWS`."""
    _one_of("views", views, VIEWS)


def views_of(photo: NDArray[np.uint8], preparation: Preparation, views: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the `views` (a name of `VIEWS`) of one photo, each resized in one step, by a filter for all it shrinks.

    A view is uint8, of `preparation.size`. Of a photo of the network's own shape there is only one.
    """
    image = Image.fromarray(photo)
    height, width = preparation.size
    if views == "trained" and preparation.resize is not None:
        resized, left, top = _placed(image.size, preparation)
        found = Image.new("RGB", (width, height), (round(preparation.fill),) * 3)
        found.paste(image.resize(resized, FILTERS[preparation.interpolation]), (-left, -top))
        yield np.asarray(found)
        return
    for box in boxes_of(image.size, preparation, views):
        yield np.asarray(image.resize((width, height), FILTERS[preparation.interpolation], box=box))


def boxes_of(size: tuple[int, int], preparation: Preparation, views: str) -> Iterator[Box | None]:
    """Yield left, top, right and bottom of what each view shows of a photo of some width and height; None is all.

    Of margins, they lie outside the photo.
    """
    if views == "trained" and preparation.resize is not None:
        resized, x, y = _placed(size, preparation)
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
    for place in VIEWS[views]:
        if place is None:
            yield None
            continue
        across, down = cut[0] * part, cut[1] * part
        left, top = (size[0] - across) * place, (size[1] - down) * place
        yield left, top, min(left + across, size[0]), min(top + down, size[1])


def _placed(size: tuple[int, int], preparation: Preparation) -> tuple[tuple[int, int], int, int]:
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
    whole = int if preparation.resize == "shortest_floor" else round
    return fitted, whole((fitted[0] - width) / 2), whole((fitted[1] - height) / 2)
