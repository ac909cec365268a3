"""Why a photo got a tag: the score taken apart by features, and by the places of the picture that they come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS, MODELS
from visterm.data.images import image_size
from visterm.encoders.places import HasPlaces
from visterm.models.blend.kept import explains
from visterm.tagging.part_settings import names_with
from visterm.tagging.run import Run


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle of the upright picture, in its pixels, and what it gave to the score."""

    left: float
    top: float
    right: float
    bottom: float
    share: float


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, what it gave to the score, and the number of places that it was seen at."""

    feature: int
    share: float
    places: int


@dataclass(frozen=True)
class Explanation:
    """A tag's score of one photo, taken apart in two ways.

    The shares of all places and of `elsewhere` sum to the score; so do those of all features and `bias`.
    """

    image: str
    tag: str
    score: float  # As `annotate` gives it
    # The tag's place among the tags of this photo, from 1
    rank: int
    n_tags: int
    size: tuple[int, int]  # Width and height of the upright picture
    # What places and features are: "block" and "visterm"
    place: str
    feature: str
    places: list[Place]  # All of them; they may overlap
    features: list[Feature]  # Those that gave anything, the largest share, above or below 0, first
    bias: float  # What the tag scores whatever the photo shows
    elsewhere: dict[str, float]  # What belongs to no place, by name: the bias, and what else the encoder names
    explained_by: list[str]  # The members of a blend that the shares come from; empty where the model itself explains

    def as_dict(self) -> dict[str, Any]:
        """Return all as it stands in JSON."""
        return {
            "image": self.image,
            "tag": self.tag,
            "score": self.score,
            "rank": self.rank,
            "width": self.size[0],
            "height": self.size[1],
            "elsewhere": self.elsewhere,
            "explained_by": self.explained_by,
            f"{self.place}s": [
                {
                    "left": place.left,
                    "top": place.top,
                    "right": place.right,
                    "bottom": place.bottom,
                    "share": place.share,
                }
                for place in self.places
            ],
            f"{self.feature}s": [
                {self.feature: item.feature, "share": item.share, f"{self.place}s": item.places}
                for item in self.features
            ],
        }


def explain(tagger: Run, image: str | os.PathLike[str] | NDArray[np.uint8], tag: str) -> Explanation:
    """Describe what each feature and each place of a photo gave to a tag's score.

    The run's model must be linear in the features, and its encoder know places. Raises UnknownNameError if the tag is
    not in the vocabulary; ImageError if the image cannot be read; UserError if the model's scores are no sums over
    features, or the encoder's rows no sums over places.
    """
    check_explains(tagger)
    index = tagger.vocabulary.index(tag)
    row = tagger.encoder.transform([image])
    scores = tagger.model.decision_function(row)[0]
    model = tagger.model.explain(row, index)
    seen = tagger.encoder.places(image)
    shares = np.asarray(seen.rows @ model.weights, np.float64)
    width, height = image_size(image) if isinstance(image, str | os.PathLike) else image.shape[1::-1]
    boxes = seen.boxes * np.array([width, height, width, height])
    times = np.asarray((seen.rows != 0).sum(axis=0)).ravel()
    order = np.lexsort((np.arange(len(model.shares)), -np.abs(model.shares)))
    elsewhere = {"bias": model.constant}
    if model.elsewhere:
        elsewhere["models that compare whole photos"] = model.elsewhere
    if seen.source:
        elsewhere[seen.source] = float(seen.elsewhere @ model.weights)
    return Explanation(
        image=os.fspath(image) if isinstance(image, str | os.PathLike) else "image",
        tag=tag,
        score=float(scores[index]),
        rank=1 + int((scores > scores[index]).sum()),
        n_tags=len(scores),
        size=(int(width), int(height)),
        place=seen.place,
        feature=seen.feature,
        places=[
            Place(left, top, right, bottom, share)
            for (left, top, right, bottom), share in zip(boxes.tolist(), shares.tolist(), strict=True)
        ],
        features=[Feature(int(i), float(model.shares[i]), int(times[i])) for i in order if model.shares[i] != 0],
        bias=model.constant,
        elsewhere=elsewhere,
        explained_by=[MODELS.name_of(member) for member in model.members],
    )


def check_explains(tagger: Run) -> None:
    """Refuse a tagger whose scores cannot be taken apart, and say which can."""
    if not isinstance(tagger.encoder, HasPlaces):
        raise UserError(
            f"The encoder '{ENCODERS.name_of(tagger.encoder)}' does not know which places of a picture its numbers "
            f"come from. Fit with one that does: {', '.join(names_with(ENCODERS, 'places'))}."
        )
    if not explains(tagger.model):
        raise UserError(
            f"The scores of the model '{MODELS.name_of(tagger.model)}' are no sums over features, so nothing has a "
            f"share in them. Fit one whose scores are: {', '.join(names_with(MODELS, 'explain'))}."
        )
