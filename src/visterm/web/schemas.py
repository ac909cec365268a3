"""What requests hold and answers look like, as the API's description says it; answers are tested against it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from visterm.core.vocabulary import MOST_LETTERS, MOST_TAGS

TagName = Annotated[str, Field(min_length=1, max_length=MOST_LETTERS, examples=["beach"])]


class Answer(BaseModel):
    """Base of what is answered."""


class Given(BaseModel):
    """Base of what is sent: a name that is not known is an error, so that no wish is silently passed over."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, given: Any) -> Any:
        """Leave one unknown name to be refused: errors about thousands take longer than all else."""
        if not isinstance(given, dict):
            return given
        known = {name: value for name, value in given.items() if name in cls.model_fields}
        unknown = next((name for name in given if name not in known), None)
        return known if unknown is None else known | {unknown: given[unknown]}


class Error(Answer):
    """What was wrong."""

    code: str = Field(description="What programs tell it by.")
    message: str = Field(description="What is wrong, what is accepted, what to do.")
    field: str | None = Field(None, description="The part of the request that it is about.")


class ErrorAnswer(Answer):
    """The one shape of errors."""

    error: Error


class HitAnswer(Answer):
    """An image that was found."""

    id: int
    image: str = Field(description="Its name.")
    score: float | None
    confidence: float | None = Field(None, description="The chance that it is meant; absent without a calibration.")
    source: Literal["person", "accepted"] | None = Field(
        None, description="How a person tagged it with all the words: gave them, or accepted some; absent of others."
    )
    thumbnail: str = Field(description="Address of its thumbnail.")


class SearchAnswer(Answer):
    """One page of a search."""

    hits: list[HitAnswer]
    unknown: list[str] = Field(description="Words that are no tags, and were left out.")
    untrained: list[str] = Field(description="Words without training images, found by their vectors.")
    n_likely: int | None = Field(description="Images above the cut-off, where one was asked for.")
    next: str | None = Field(description="The cursor of the next page; null on the last one.")


class TagAnswer(Answer):
    """A tag that the model gives."""

    tag: str
    score: float
    confidence: float | None = None
    trained: bool = True


class AnnotatedAnswer(Answer):
    """A picture that was sent, and its tags, best first."""

    image: str
    tags: list[TagAnswer]


class SkippedAnswer(Answer):
    """A picture that could not be read."""

    image: str
    reason: str


class AnnotateAnswer(Answer):
    """The pictures that were sent."""

    images: list[AnnotatedAnswer]
    skipped: list[SkippedAnswer]


class ImageFacts(Answer):
    """What is known of an image's file."""

    id: int
    path: str | None
    name: str
    n_bytes: int
    width: int
    height: int
    file_type: str
    taken: str | None
    added: str
    state: Literal["here", "gone"]
    reviewed: str | None


class GivenTagAnswer(Answer):
    """A tag from people."""

    tag: str
    source: str


class PredictionAnswer(Answer):
    """A tag that the run gave when the image was indexed."""

    tag: str
    score: float
    confidence: float | None


class WrittenTagAnswer(Answer):
    """A tag that was written into a file."""

    image_id: int
    tag: str
    target: str
    at: str


class ImageAnswer(Answer):
    """One image, with its tags."""

    image: ImageFacts
    tags: list[str] = Field(description="Given or accepted, and not rejected.")
    given: list[GivenTagAnswer]
    predicted: list[PredictionAnswer]
    verdicts: dict[str, int] = Field(description="1 accepted, -1 rejected.")
    written: list[WrittenTagAnswer]


class VerdictGiven(Given):
    """A person's answer to whether a tag is right."""

    tag: TagName
    verdict: int = Field(ge=-1, le=1, description="1 right, -1 wrong, 0 takes back what was said.")


class VerdictAnswer(Answer):
    """What was written down."""

    id: int = Field(description="Number in the log of feedback, by which it can be undone.")
    image_id: int
    tag: str
    verdict: int
    before: int = Field(description="What had been said before; 0: nothing.")


class TagsChange(Given):
    """Tags that a person gives to an image, or takes from it."""

    give: list[TagName] = Field([], max_length=MOST_TAGS)
    take: list[TagName] = Field([], max_length=MOST_TAGS)


class TagCountAnswer(Answer):
    """A tag, and how often it is what."""

    tag: str
    given: int
    accepted: int
    rejected: int
    predicted: int
    precision: float | None = Field(description="Share of the verdicts that accept it.")
    learned: bool = Field(description="Whether the run knows it.")


class TagsAnswer(Answer):
    """One page of the tags."""

    tags: list[TagCountAnswer]
    n_tags: int
    next: str | None


class CompletionAnswer(Answer):
    """A tag that begins so."""

    tag: str
    images: int = Field(description="Training images; 0: a word without any.")


class CompletionsAnswer(Answer):
    """Tags that begin with what was typed, the most frequent first."""

    tags: list[CompletionAnswer]


class NeighbourAnswer(Answer):
    """A tag near another one."""

    tag: str
    score: float


class NeighboursAnswer(Answer):
    """The tags nearest to one, by cosine."""

    tag: str
    neighbours: list[NeighbourAnswer]


class PlacedTagAnswer(Answer):
    """A tag on the map."""

    tag: str
    x: float
    y: float
    images: int


class TagMapAnswer(Answer):
    """A map of the tags: like ones lie together; x and y from 0 to 1."""

    tags: list[PlacedTagAnswer]


class ExplanationAnswer(Answer):
    """What gave to a tag's score of an image."""

    id: int
    tag: str
    score: float
    rank: int
    n_tags: int
    from_places: float = Field(description="What all places of the picture gave together.")
    elsewhere: dict[str, float] = Field(description="What belongs to no place, by name: the bias, ...")
    explained_by: list[str] = Field(description="Members of a blend that the shares come from.")
    strongest: list[dict[str, float]] = Field(description="Places in the picture, from 0 to 1, and their shares.")
    heat: str = Field(description="Address of the heat map.")


class DuplicateAnswer(Answer):
    """A picture of a group."""

    id: int
    image: str
    path: str | None
    width: int
    height: int
    bytes: int
    distance: int | None = Field(None, description="Bits in which its hash differs from the keeper's.")
    same_bytes: bool | None = None


class DuplicateGroupAnswer(Answer):
    """Pictures that look the same: the one to keep, and the others."""

    keep: DuplicateAnswer
    copies: list[DuplicateAnswer]


class DuplicatesAnswer(Answer):
    """One page of the groups, largest first."""

    groups: list[DuplicateGroupAnswer]
    n_groups: int
    next: str | None


class JobGiven(Given):
    """Work to be done in the background."""

    kind: Literal["index", "fit", "duplicates", "use run"] = Field(
        description="index: look for new, changed and gone photos; fit: learn from tags and feedback; duplicates: hash "
        "pictures so that duplicates can be found; use run: search with another run of the catalogue."
    )
    full: bool = Field(False, description="Of fit: learn all anew, and not only move the rows of tags.")
    use_even_if_worse: bool = Field(False, description="Of fit: use the new run even if it is significantly worse.")
    run: str = Field("", pattern="^[0-9a-f]{0,64}$", description="Of use run: the first letters of its fingerprint.")


class JobAnswer(Answer):
    """A job and how far it is."""

    id: int
    kind: str
    state: Literal["waiting", "running", "cancelling", "done", "failed", "cancelled", "lost"]
    done: int
    total: int | None
    message: str
    started: str
    finished: str | None
    error: str | None


class JobsAnswer(Answer):
    """One page of the jobs, newest first."""

    jobs: list[JobAnswer]
    next: str | None


class HealthAnswer(Answer):
    """That the service runs, and can read its catalogue."""

    status: Literal["ok"]
    version: str


class AboutAnswer(Answer):
    """The catalogue that is served."""

    version: str
    images: int
    searchable: int
    tags: int
    run: str
    model: str
    encoder: str
    calibrated: bool
    search: str = Field(description="Whether searches are exact, or go through an index.")


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that a route may answer, of those that every route may answer too."""
    return {status: {"model": ErrorAnswer, "description": DESCRIPTIONS[status]} for status in (*COMMON, *statuses)}


COMMON = (400, 401, 403, 421, 422, 500, 503, 507)
DESCRIPTIONS = {
    400: "The request is not understood.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked for it.",
    404: "There is no such thing.",
    408: "The request's body came too slowly.",
    409: "Not now: the catalogue is in use, or something has to be done before.",
    413: "The request is too large.",
    415: "The body is of a type that is not taken.",
    421: "The service does not go by that name.",
    422: "A value is not accepted, or a picture cannot be read.",
    500: "The service failed, or a file of the catalogue is damaged; its log says more.",
    503: "The service is busy, or its disk fails; Retry-After says when to ask again.",
    507: "The disk that the catalogue is on is full: nothing was written.",
}
