"""Explain why a photo got a tag: what features and places add to the score; draw it as a heat map over the photo.

A heat map is red where a place adds to the score, and blue where it subtracts.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix
from visterm.core.writing import whole_file
from visterm.data.images import ImageLike, image_size, read_image
from visterm.encoders.contract import HasPlaces, Places, no_places
from visterm.learning.part_settings import names_with
from visterm.learning.run import Run
from visterm.models.blend.kept import explained_by, explains, what_to_do

PILLOW_FORMATS: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""File extension -> Pillow's name of the format."""

LOSSY_QUALITY: Final = 95  # Keeps thin lines and small letters clean

PHOTO_SIDE = 640  # Long side of the photo in the drawing, in pixels
COLOUR_OF_ADDED: Final = np.array([214, 72, 10], np.float64)
COLOUR_OF_SUBTRACTED: Final = np.array([20, 90, 190], np.float64)
PAPER_COLOUR: Final = (255, 255, 255)
INK_COLOUR: Final = (30, 30, 30)

SMOOTHING: Final = 0.5  # Deviation of the bell curve that blurs the heat, in sizes of a place

_PHOTO_OPACITY = 0.55
_MAX_HEAT_OPACITY = 0.85
_GAP = 16
_BAR_HEIGHT = 14
_TEXT_SIZE = 17


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of the upright picture, in pixels, and its contribution to the score."""

    left: float
    top: float
    right: float
    bottom: float
    share: float


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, its contribution to the score, and the number of places with the feature."""

    index: int
    share: float
    places: int


@dataclass(frozen=True)
class Explanation:
    """The contributions to a tag's score for a photo, by place and by feature.

    The shares of all places and of `elsewhere` sum to the score; so do the shares of all features, `bias`, and the
    share of models that compare whole photos.
    """

    image: str
    tag: str
    score: float  # The score from `annotate`
    rank: int  # The tag's rank among the tags of this photo, from 1
    n_tags: int
    size: tuple[int, int] | None  # Width and height of the upright picture; None if the encoder doesn't read pixels
    # Nouns for a place and a feature in texts, such as "block" and "visterm" (a cluster of image descriptors)
    place_noun: str
    feature_noun: str
    places: list[Region] = field(repr=False)  # All places; they may overlap
    features: list[Feature] = field(repr=False)  # Features with a share other than 0, largest absolute share first
    bias: float  # The part of the score that doesn't depend on the photo
    elsewhere: dict[str, float]  # Shares without a place: the bias, and those of features without a place, by name
    explained_by: list[str]  # The models that the shares come from: the run's model, or members of a blend
    no_heat_map_reason: str = ""  # Why there is no heat map: no place has a share; empty if there is a heat map

    def as_dict(self) -> dict[str, object]:
        """Return the explanation in its JSON form."""
        return {
            "image": self.image,
            "tag": self.tag,
            "score": self.score,
            "rank": self.rank,
            "width": self.size and self.size[0],
            "height": self.size and self.size[1],
            "elsewhere": self.elsewhere,
            "from": self.explained_by,
            "no_heat": self.no_heat_map_reason or None,
            f"{self.place_noun}s": [asdict(region) for region in self.places],
            f"{self.feature_noun}s": [
                {self.feature_noun: item.index, "share": item.share, f"{self.place_noun}s": item.places}
                for item in self.features
            ],
        }


def explain(run: Run, image: ImageLike | NDArray[np.generic], tag: str) -> Explanation:
    """Return the contribution of each feature and each place of a photo to a tag's score.

    The run's model must be linear in the features, or be a blend with such a member. If the encoder doesn't support
    places, `places` is empty, and `no_heat_map_reason` says why. Raises UnknownNameError if the tag is not in the
    vocabulary; ImageError if the image cannot be read; UserError if the model's scores cannot be explained.
    """
    check_explains(run)
    index = run.vocabulary.index(tag)
    image = read_image(image) if isinstance(image, Image.Image) else image
    row = run.encoder.transform([image])
    scores = run.model.decision_function(row)[0]
    parts = run.model.explain(row, index)
    image_places, no_heat_map_reason = _places(run, image, row)
    shares = np.asarray(image_places.rows @ parts.weights, np.float64)
    place_counts = np.asarray((image_places.rows != 0).sum(axis=0)).ravel()
    order = np.lexsort((np.arange(len(parts.shares)), -np.abs(parts.shares)))
    elsewhere = {"bias": parts.constant}
    if parts.elsewhere:
        elsewhere[_name_of_other_models(run.model)] = parts.elsewhere
    if image_places.source:
        elsewhere[image_places.source] = float(image_places.elsewhere @ parts.weights)
    size = None
    if run.encoder.reads == "pixels":
        width, height = image_size(image) if isinstance(image, str | os.PathLike) else image.shape[1::-1]
        size = int(width), int(height)

    boxes = image_places.boxes * np.tile(size or (1, 1), 2)
    return Explanation(
        image=os.fspath(image) if isinstance(image, str | os.PathLike) else "image",
        tag=tag,
        score=float(scores[index]),
        rank=1 + int((scores > scores[index]).sum()),
        n_tags=len(scores),
        size=size,
        place_noun=image_places.place_noun,
        feature_noun=image_places.feature_noun,
        places=[
            Region(x, top, right, bottom, share)
            for (x, top, right, bottom), share in zip(boxes.tolist(), shares.tolist(), strict=True)
        ],
        features=[Feature(int(i), float(parts.shares[i]), int(place_counts[i])) for i in order if parts.shares[i] != 0],
        bias=parts.constant,
        elsewhere=elsewhere,
        explained_by=explained_by(run.model),
        no_heat_map_reason=no_heat_map_reason,
    )


def check_explains(run: Run) -> None:
    """Raise UserError, with advice, if a run's scores cannot be explained."""
    if run.encoder.by_number:
        raise UserError(
            "Photos known by number have no features, so scores cannot be split by features. To see tags that are "
            "similar to a tag, run `visterm tags RUN --like TAG`."
        )
    if not explains(run.model):
        name = MODELS.name_of(run.model)
        advice = what_to_do(run.model)
        raise UserError(f"The scores of the model '{name}' of this run are not sums over features. {advice}")


def may_have_heat_maps(run: Run) -> bool:
    """Return whether a run may support heat maps; some outputs of networks have no places, so it may not."""
    return explains(run.model) and isinstance(run.encoder, HasPlaces)


def _places(run: Run, image: ImageLike | NDArray[np.generic], row: Matrix) -> tuple[Places, str]:
    """Return an image's features by place; or, if they have no places, all features and the reason."""
    if isinstance(run.encoder, HasPlaces):
        try:
            return run.encoder.places(image), ""
        except UserError as error:
            reason = str(error)
    else:
        supported = ", ".join(names_with(ENCODERS.classes().values(), lambda part: hasattr(part, "places")))
        reason = (
            f"The encoder '{ENCODERS.name_of(run.encoder)}' cannot assign its features to places of a picture. "
            f"Fit with one of these encoders: {supported}."
        )
    return no_places(row, "features, which have no place"), reason


def _name_of_other_models(blend: Any) -> str:
    if any(explains(member) for member, weight in zip(blend.members_, blend.weights_, strict=True) if weight):
        return "models that compare whole photos"
    names = [MODELS.name_of(member) for member, weight in zip(blend.members_, blend.weights_, strict=True) if weight]
    return f"what the ranking by {' and '.join(names)} adds to it"


def heat_map_size(explanation: Explanation) -> tuple[int, int]:
    """Return the width and height of the explained picture. Raises UserError if there is no heat map."""
    if explanation.no_heat_map_reason or explanation.size is None:
        raise UserError(f"There is no heat map: {explanation.no_heat_map_reason}")
    return explanation.size


def heat(explanation: Explanation, size: tuple[int, int]) -> NDArray[np.float64]:
    """Spread the share of each place evenly over its rectangle, in a drawing of `size` (width, height in pixels).

    Returns the share of each pixel, float64, shape (height, width), with the same sum as the shares of all places. A
    rectangle that ends inside a pixel covers a part of the pixel.
    """
    width, height = size
    full_size = heat_map_size(explanation)
    x_scale, y_scale = width / full_size[0], height / full_size[1]
    shares = np.zeros((height, width))
    for region in explanation.places:
        first_col, cols = _covered(region.left * x_scale, region.right * x_scale, width)
        top, rows = _covered(region.top * y_scale, region.bottom * y_scale, height)
        area = rows.sum() * cols.sum()
        shares[top : top + len(rows), first_col : first_col + len(cols)] += np.outer(rows * (region.share / area), cols)
    return shares


def smooth_heat(explanation: Explanation, size: tuple[int, int]) -> NDArray[np.float64]:
    """Return the heat of a drawing without the edges of the places, which say nothing about the photo.

    It is blurred by a bell curve whose deviation is half of a typical place; its sum stays the same.
    """
    from scipy.ndimage import gaussian_filter  # slow to import

    shares, full_size = heat(explanation, size), heat_map_size(explanation)
    if not explanation.places:
        return shares
    width = float(np.median([region.right - region.left for region in explanation.places])) * size[0] / full_size[0]
    height = float(np.median([region.bottom - region.top for region in explanation.places])) * size[1] / full_size[1]
    smooth: NDArray[np.float64] = gaussian_filter(shares, (SMOOTHING * height, SMOOTHING * width))
    return smooth


def heat_overlay(explanation: Explanation, side: int) -> Image.Image:
    """Draw the heat as an overlay for the photo: transparent where the share is 0, stronger for larger shares.

    The drawing is RGBA with the proportions of the photo; its long side has `side` pixels.
    """
    shares = smooth_heat(explanation, _drawn_size(explanation, side))
    return _overlay(shares / (float(np.abs(shares).max()) or 1.0))


def draw_heat(photo: NDArray[np.uint8], explanation: Explanation, path: str | os.PathLike[str]) -> None:
    """Draw the upright photo, the photo with the heat map, and a legend, into an image file.

    The file is ``.png``, ``.jpg``, ``.jpeg`` or ``.webp``; raises UserError for another extension.
    """
    image_format = format_of(path)
    size = _drawn_size(explanation, PHOTO_SIDE)
    font = ImageFont.load_default(_TEXT_SIZE)
    picture = Image.fromarray(photo).resize(size, Image.Resampling.LANCZOS)
    shares = smooth_heat(explanation, size)
    share_per_percent = shares * (shares.size / 100)
    limit = float(np.abs(share_per_percent).max()) or 1.0
    lines = _text_lines(explanation)
    pictures_width = 2 * size[0] + _GAP
    measure = ImageDraw.Draw(picture)
    sheet_size = (
        max(pictures_width, max(int(measure.textlength(line, font=font)) for line in lines)) + 2 * _GAP,
        size[1] + 3 * _GAP + _line_height(font) * len(lines) + _BAR_HEIGHT + _line_height(font) + _GAP // 2,
    )
    sheet = Image.new("RGB", sheet_size, PAPER_COLOUR)
    sheet.paste(picture, (_GAP, _GAP))
    sheet.paste(_under_heat(picture, share_per_percent / limit), (2 * _GAP + size[0], _GAP))
    pen = ImageDraw.Draw(sheet)
    y = size[1] + 2 * _GAP

    for number, line in enumerate(lines):
        pen.text((_GAP, y + number * _line_height(font)), line, fill=INK_COLOUR, font=font)
    _draw_legend(sheet, (_GAP, y + _line_height(font) * len(lines)), min(pictures_width, PHOTO_SIDE), limit, font)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as temporary:
        sheet.save(temporary, format=image_format, quality=LOSSY_QUALITY)


def format_of(path: str | os.PathLike[str]) -> str:
    """Return Pillow's name of the format of a file extension, in any case.

    Raises UserError if the extension is not supported.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in PILLOW_FORMATS:
        ending = f"ends in {suffix}" if suffix else "has no extension"
        raise UserError(
            f"{os.fspath(path)} {ending}",
            setting="out", value=path, expected=f"the name of a picture that ends in {', '.join(PILLOW_FORMATS)}",
        )  # fmt: skip
    return PILLOW_FORMATS[suffix.lower()]


def _covered(start: float, end: float, length: int) -> tuple[int, NDArray[np.float64]]:
    """Return the first pixel of a span, and the covered share of this pixel and the following ones."""
    first_pixel = min(int(start), length - 1)
    stop = max(first_pixel + 1, min(int(np.ceil(end)), length))
    edges = np.clip(np.arange(first_pixel, stop + 1), start, end)
    parts = np.diff(edges)
    return first_pixel, parts if parts.sum() > 0 else np.ones(stop - first_pixel)


def _drawn_size(explanation: Explanation, side: int) -> tuple[int, int]:
    """Return the width and height of the picture if its long side has `side` pixels."""
    size = heat_map_size(explanation)
    return max(1, round(size[0] * side / max(size))), max(1, round(size[1] * side / max(size)))


def _overlay(strengths: NDArray[np.float64]) -> Image.Image:
    """Return the colours of shares as RGBA, more opaque for stronger shares; `strengths` are from -1 to 1."""
    opacity = np.abs(strengths) * _MAX_HEAT_OPACITY
    colour = np.where(strengths[..., None] > 0, COLOUR_OF_ADDED, COLOUR_OF_SUBTRACTED)
    return Image.fromarray(np.rint(np.dstack([colour, 255 * opacity])).astype(np.uint8), "RGBA")


def _under_heat(picture: Image.Image, strengths: NDArray[np.float64]) -> Image.Image:
    """Blend the colours of shares over a faded picture; `strengths` are from -1 to 1."""
    faded = Image.blend(Image.new("L", picture.size, 255), picture.convert("L"), _PHOTO_OPACITY)
    return Image.alpha_composite(faded.convert("RGBA"), _overlay(strengths)).convert("RGB")


def _text_lines(explanation: Explanation) -> list[str]:
    shares = np.array([region.share for region in explanation.places])
    added, subtracted = float(shares[shares > 0].sum()), float(shares[shares < 0].sum())
    parts = [f"{explanation.place_noun}s add {added:.3f} and subtract {-subtracted:.3f}"]
    parts += [f"{name} {share:+.3f}" for name, share in explanation.elsewhere.items()]
    rank = f"rank {explanation.rank:,} of {explanation.n_tags:,} tags"
    return [
        f"{explanation.tag}: score {explanation.score:.3f}, {rank}, explained by {', '.join(explanation.explained_by)}",
        f"From the picture: {parts[0]}.   Without a place: {', '.join(parts[1:])}.",
        "Colours show the contribution to the score per percent of the picture's area:",
    ]


def _draw_legend(sheet: Image.Image, at: tuple[int, int], length: int, limit: float, font: Any) -> None:
    start, top = at[0], at[1] + _GAP // 2
    scale = np.tile(np.linspace(-1, 1, length), (_BAR_HEIGHT, 1))
    sheet.paste(_under_heat(Image.new("L", (length, _BAR_HEIGHT), 128), scale), (start, top))
    pen = ImageDraw.Draw(sheet)
    for x, label, anchor in (
        (start, f"{-limit:+.3g}: against the tag", "la"),
        (start + length / 2, "0", "ma"),
        (start + length, f"for the tag: {limit:+.3g}", "ra"),
    ):
        pen.text((x, top + _BAR_HEIGHT + 4), label, fill=INK_COLOUR, font=font, anchor=anchor)


def _line_height(font: Any) -> int:
    return int(sum(font.getmetrics())) + 4
