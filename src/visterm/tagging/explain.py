"""Explain why a photo got a tag: the contributions to the score of features, and of places in the picture."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix
from visterm.data.images import ImageLike, image_size, read_image
from visterm.encoders.contract import HasPlaces, Places, no_places
from visterm.learning.part_settings import names_with
from visterm.learning.run import Run
from visterm.models.blend.kept import explained_by, explains, what_to_do


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
    image = read_image(image) if isinstance(image, Image) else image
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
