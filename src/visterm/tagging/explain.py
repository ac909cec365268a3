"""Why a photo got a tag: the score taken apart by features, and by the places of the picture that they come from."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Matrix
from visterm.data.images import ImageLike, image_size
from visterm.encoders.contract import HasPlaces, Places, no_places
from visterm.learning.part_settings import names_with
from visterm.learning.run import Run
from visterm.models.blend.kept import explained_by, explains, what_to_do


@dataclass(frozen=True, slots=True)
class Region:
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

    The shares of all places and of `elsewhere` sum to the score; so do those of all features, `bias` and what models
    add that compare whole photos.
    """

    image: str
    tag: str
    score: float  # As `annotate` gives it
    # The tag's place among the tags of this photo, from 1
    rank: int
    n_tags: int
    size: tuple[int, int] | None  # Width and height of the upright picture; None where no picture was looked at
    # What places and features are: "block" and "visterm"
    place: str
    feature: str
    places: list[Region]  # All of them; they may overlap
    features: list[Feature]  # Those that gave anything, the largest share, above or below 0, first
    bias: float  # What the tag scores whatever the photo shows
    elsewhere: dict[str, float]  # What belongs to no place, by name: the bias, and what else the encoder names
    explained_by: list[str]  # The models that the shares come from: the run's, or members of a blend
    no_heat: str = ""  # Why no place has a share, so that there is no heat map; empty where there is one

    def as_dict(self) -> dict[str, object]:
        """Return all as it stands in JSON."""
        return {
            "image": self.image,
            "tag": self.tag,
            "score": self.score,
            "rank": self.rank,
            "width": self.size and self.size[0],
            "height": self.size and self.size[1],
            "elsewhere": self.elsewhere,
            "from": self.explained_by,
            "no_heat": self.no_heat or None,
            f"{self.place}s": [asdict(region) for region in self.places],
            f"{self.feature}s": [
                {self.feature: item.feature, "share": item.share, f"{self.place}s": item.places}
                for item in self.features
            ],
        }


def explain(tagger: Run, image: str | os.PathLike[str] | NDArray[np.uint8], tag: str) -> Explanation:
    """Describe what each feature and each place of a photo gave to a tag's score.

    The run's model must be linear in the features, or be a blend with such a member. An encoder that knows no places
    leaves `places` empty, and `no_heat` says why. Raises UnknownNameError if the tag is not in the vocabulary;
    ImageError if the image cannot be read; UserError if nothing explains the model's scores.
    """
    check_explains(tagger)
    index = tagger.vocabulary.index(tag)
    row = tagger.encoder.transform([image])
    scores = tagger.model.decision_function(row)[0]
    model = tagger.model.explain(row, index)
    seen, no_heat = _places(tagger, image, row)
    shares = np.asarray(seen.rows @ model.weights, np.float64)
    times = np.asarray((seen.rows != 0).sum(axis=0)).ravel()
    order = np.lexsort((np.arange(len(model.shares)), -np.abs(model.shares)))
    elsewhere = {"bias": model.constant}
    if model.elsewhere:
        elsewhere[_name_of_rest(tagger.model)] = model.elsewhere
    if seen.source:
        elsewhere[seen.source] = float(seen.elsewhere @ model.weights)
    size = None
    if tagger.encoder.reads == "pixels":
        width, height = image_size(image) if isinstance(image, str | os.PathLike) else image.shape[1::-1]
        size = int(width), int(height)

    boxes = seen.boxes * np.tile(size or (1, 1), 2)
    return Explanation(
        image=os.fspath(image) if isinstance(image, str | os.PathLike) else "image",
        tag=tag,
        score=float(scores[index]),
        rank=1 + int((scores > scores[index]).sum()),
        n_tags=len(scores),
        size=size,
        place=seen.place,
        feature=seen.feature,
        places=[
            Region(x, top, right, bottom, share)
            for (x, top, right, bottom), share in zip(boxes.tolist(), shares.tolist(), strict=True)
        ],
        features=[Feature(int(i), float(model.shares[i]), int(times[i])) for i in order if model.shares[i] != 0],
        bias=model.constant,
        elsewhere=elsewhere,
        explained_by=explained_by(tagger.model),
        no_heat=no_heat,
    )


def check_explains(tagger: Run) -> None:
    """Refuse a tagger whose scores cannot be taken apart, and say what to do."""
    if tagger.encoder.by_number:
        raise UserError(
            "Photos known by number have no features that a score could be taken apart by. To see which tags go with "
            "a tag, run `visterm tags RUN --like TAG`."
        )
    if not explains(tagger.model):
        name = MODELS.name_of(tagger.model)
        todo = what_to_do(tagger.model)
        raise UserError(f"The scores of the model '{name}' of this run are no sums over features. {todo}")


def knows_places(tagger: Run) -> bool:
    """Return whether a tagger may show where in a photo a tag comes from: some outputs of networks have no places."""
    return explains(tagger.model) and isinstance(tagger.encoder, HasPlaces)


def _places(tagger: Run, image: ImageLike, row: Matrix) -> tuple[Places, str]:
    """Return an image's row by places, or as what comes from no place, and why."""
    if isinstance(tagger.encoder, HasPlaces):
        try:
            return tagger.encoder.places(image), ""
        except UserError as error:
            why = str(error)
    else:
        able = ", ".join(names_with(ENCODERS, lambda part: hasattr(part, "places")))
        why = (
            f"The encoder '{ENCODERS.name_of(tagger.encoder)}' does not know which places of a picture its numbers "
            f"come from. Fit with one that does: {able}."
        )
    return no_places(row, "features, which have no place"), why


def _name_of_rest(blend: Any) -> str:
    if any(explains(member) for member, weight in zip(blend.members_, blend.weights_, strict=True) if weight):
        return "models that compare whole photos"
    ranking = [MODELS.name_of(member) for member, weight in zip(blend.members_, blend.weights_, strict=True) if weight]
    return f"what the ranking by {' and '.join(ranking)} adds to it"
